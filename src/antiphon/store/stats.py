"""How large is each table, how long is it kept, and how old is its oldest row?"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.copy import open_place
from antiphon.store.open import NEEDS_DRIVER, is_postgres, path_of
from antiphon.store.retention import TABLES
from antiphon.store.sqlite.backup import parts_of
from antiphon.store.sqlite.connection import unavailable

__all__ = ["TableStats", "read_stats"]

_TIMES: Final = {"created_at": 1, "reserved_at": 1000, "at": 1, "start": 1}
"""Columns that state when a row was made, and how many units of each are a second."""
_PATIENCE: Final = 5.0
_COLUMNS: Final = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
"""
_SIZE: Final = """
    SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint
    FROM pg_partition_tree(to_regclass($1))
"""


class TableStats(NamedTuple):
    """One table, or the folder with the contents of files."""

    name: str
    kind: str
    """Its class of retention."""
    rows: int
    size: int | None
    """In bytes, with its indexes; None if that cannot be known."""
    oldest: int | None
    """When its oldest row was made, in seconds since the epoch; None if no column states it."""


async def read_stats(url: str) -> list[TableStats]:
    """Return every table of a store, the largest first. It is only read.

    Raise OlderDatabase if it is not up to date, and ValueError if the URL cannot be used.
    """
    async with open_place(url, is_target=False):
        pass  # it is there, ours, and up to date
    if is_postgres(url):
        found = await _read_postgres(url)
    else:
        path = path_of(url)
        try:
            found = list(_read_sqlite(path))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{path}: {unavailable(error).message}") from error
    return sorted(found, key=lambda one: (-(one.size or 0), -one.rows, one.name))


def _read_sqlite(path: Path) -> Iterator[TableStats]:
    parts = parts_of(path)
    for file in (parts.main, parts.files):
        if file.is_file():
            with contextlib.closing(_open(file)) as connection:
                connection.execute("BEGIN")
                yield from _tables(connection)
    if parts.blobs.is_dir():
        sizes = [one.stat().st_size for one in parts.blobs.iterdir() if one.is_file()]
        yield TableStats("contents (folder)", "file", len(sizes), sum(sizes), None)


def _tables(connection: sqlite3.Connection) -> Iterator[TableStats]:
    sizes = _sizes(connection)
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in names:
        if name not in TABLES:
            continue  # what SQLite and its indexes of words need themselves
        columns = {column for _, column, *_ in connection.execute(f"PRAGMA table_info({name})")}
        (rows,) = connection.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 # ours
        size = None if sizes is None else sizes.get(name, 0)
        oldest = None
        if (question := _oldest(name, columns)) is not None:
            (oldest,) = connection.execute(question).fetchone()
        yield TableStats(name, TABLES[name], rows, size, oldest)


def _sizes(connection: sqlite3.Connection) -> dict[str, int] | None:
    """Return the bytes of each table with its indexes; None if this SQLite cannot report them."""
    question = """
        SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_master USING (name)
        WHERE aggregate = TRUE GROUP BY tbl_name
    """
    try:
        return dict(connection.execute(question).fetchall())
    except sqlite3.OperationalError:
        return None


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE, isolation_level=None
    )


async def _read_postgres(url: str) -> list[TableStats]:
    try:
        from antiphon.store.postgres.database import connect
        from antiphon.store.postgres.errors import FAULTS, unavailable
    except ModuleNotFoundError as error:
        raise ValueError(NEEDS_DRIVER) from error
    found: list[TableStats] = []
    try:
        connection = await connect(url, timeout=_PATIENCE)
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                for name, kind in TABLES.items():
                    columns = {row[0] for row in await connection.fetch(_COLUMNS, name)}
                    if not columns:
                        continue  # a table of SQLite alone
                    rows = await connection.fetchval(
                        f"SELECT count(*) FROM {name}"  # noqa: S608 # constants
                    )
                    size = await connection.fetchval(_SIZE, name)
                    question, oldest = _oldest(name, columns), None
                    if question is not None:
                        oldest = await connection.fetchval(question)
                    found.append(TableStats(name, kind, rows, size, oldest))
        finally:
            connection.terminate()
    except FAULTS as error:
        raise unavailable(error) from error
    return found


def _oldest(name: str, columns: set[str]) -> str | None:
    """Return the question for the time of the oldest row, in seconds; None if no column has it."""
    column = next((name for name in _TIMES if name in columns), None)
    if column is None:
        return None
    return f"SELECT CAST(min({column}) / {_TIMES[column]} AS BIGINT) FROM {name}"  # noqa: S608 # ours
