"""Which versions of antiphon may use a database? The same answer for every kind of store.

A database has a version, which is the number of migrations that were applied, and a level: the
version that a gateway must know. A migration that older gateways need not know of leaves the
level as it is, so that they may still start. Any other one raises it. `allow_older` of `downgrade`
lowers it, if the operator wants that.
"""

from __future__ import annotations

from typing import NamedTuple

from antiphon.protocol.errors import StoreUnavailable

__all__ = ["NewerDatabase", "OlderDatabase", "Versions"]


class Versions(NamedTuple):
    """What a database has, and what a gateway must know."""

    level: int
    version: int


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
