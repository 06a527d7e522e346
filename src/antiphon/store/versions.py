"""What is wrong with the version of a database: the same errors for every kind of store."""

from __future__ import annotations

from antiphon.protocol.errors import StoreUnavailable

__all__ = ["NewerDatabase", "OlderDatabase"]


class NewerDatabase(StoreUnavailable):
    """The file was written by an antiphon that knows more than this one."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"the database has version {version} and this antiphon knows versions up to {known}: "
            "upgrade antiphon, or name another file"
        )
        self.version = version
        self.known = known


class OlderDatabase(StoreUnavailable):
    """The database is to be read as it is, and was written by an older antiphon or by none."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"the database has version {version} and this antiphon reads version {known}: bring it"
            " up to date first, with `antiphon store migrate`"
        )
        self.version = version
        self.known = known
