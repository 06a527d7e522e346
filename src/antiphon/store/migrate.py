"""What would bring a store up to date, and do it.

Any gateway does the same when it opens the store. Here it can be known before, and done apart
from a start.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.open import NEEDS_DRIVER, is_postgres, path_of, public_url
from antiphon.store.sqlite.backup import parts_of
from antiphon.store.sqlite.connection import connect, unavailable
from antiphon.store.sqlite.files_migrations import FILES
from antiphon.store.sqlite.migrations import STORE, Schema, version_of

__all__ = ["Pending", "find_pending", "migrate_store"]

_PATIENCE: Final = 30.0


class Pending(NamedTuple):
    """One database of a store, and what is missing in it."""

    name: str
    version: int
    """Its present version; 0 if it is not there yet."""
    newest: int
    statements: list[str]
    """What would be done, in short."""

    @property
    def is_newest(self) -> bool:
        """Whether nothing is missing."""
        return self.version == self.newest


async def find_pending(url: str) -> list[Pending]:
    """Return the databases of a store with what each lacks. Nothing is written.

    Raise NewerDatabase or ForeignDatabase for one that this version cannot use, and ValueError for
    a URL that names no database.
    """
    if is_postgres(url):
        return [await _postgres(url, is_done=False)]
    return [_look(path, schema) for path, schema in _files(url)]


async def migrate_store(url: str) -> list[Pending]:
    """Bring a store up to date, or raise and leave it as it is; return what was missing."""
    if is_postgres(url):
        return [await _postgres(url, is_done=True)]
    found = await find_pending(url)
    for path, schema in _files(url):
        try:
            connect(path, patience=_PATIENCE, schema=schema).close()
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"{path}: {unavailable(error).message}") from error
    return found


def _files(url: str) -> list[tuple[Path, Schema]]:
    scheme, _, name = url.partition(":")
    if scheme != "sqlite" or not name.strip("/"):
        raise ValueError("name a store as sqlite:PATH or postgresql://USER@HOST/DATABASE")
    parts = parts_of(path_of(url))
    # The second database is made when it is needed.
    more = [(parts.files, FILES)] if parts.files.is_file() else []
    return [(parts.main, STORE), *more]


def _look(path: Path, schema: Schema) -> Pending:
    version = 0
    if path.is_file():
        try:
            with contextlib.closing(
                sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE)
            ) as connection:
                version = version_of(connection, schema)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{path}: {unavailable(error).message}") from error
    return _pending(str(path), version, schema.migrations)


async def _postgres(url: str, *, is_done: bool) -> Pending:
    try:
        from antiphon.store.postgres.database import connect
        from antiphon.store.postgres.errors import FAULTS, unavailable
        from antiphon.store.postgres.migrations import MIGRATIONS, migrate, version_of
    except ModuleNotFoundError as error:
        raise ValueError(NEEDS_DRIVER) from error
    try:
        connection = await connect(url, timeout=_PATIENCE)
        try:
            version = await version_of(connection, len(MIGRATIONS))
            if is_done:
                await migrate(connection)
        finally:
            connection.terminate()
    except FAULTS as error:
        raise unavailable(error) from error
    return _pending(public_url(url), version, MIGRATIONS)


def _pending(name: str, version: int, migrations: Sequence[Sequence[str]]) -> Pending:
    missing = [_in_short(one) for migration in migrations[version:] for one in migration]
    return Pending(name, version, len(migrations), missing)


def _in_short(statement: str) -> str:
    """Return the beginning of a statement, which has the names of what it changes."""
    return " ".join(statement.partition("(")[0].split())[:100]
