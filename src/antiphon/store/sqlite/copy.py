"""A SQLite file as a place to copy from and to."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from antiphon.store.copy_tables import Row, Table
from antiphon.store.sqlite.connection import connect, refuse_read_only
from antiphon.store.sqlite.log import CLOSED
from antiphon.store.sqlite.migrations import check_version
from antiphon.store.sqlite.presence import Presence, count_alive
from antiphon.store.sqlite.queue import WriteQueue

__all__ = ["SqlitePlace"]

_PATIENCE: Final = 5.0
_ROWS_AT_ONCE: Final = 200


class SqlitePlace:
    """See `Place` for what the methods do.

    A target is created if it is not there, and brought up to date. Any other file is only read,
    and raises OlderDatabase if it is not up to date.
    """

    def __init__(self, path: Path, *, is_target: bool) -> None:
        self._path = path.absolute()
        self._queue = WriteQueue(self._path)
        self._connection = (
            connect(self._path, patience=_PATIENCE) if is_target else _connect_reader(self._path)
        )

    async def begin(self, *, is_target: bool) -> None:
        """Begin to read one state, or to write with all other writers locked out."""
        if is_target:
            self._queue.enter(_PATIENCE)
        self._connection.execute("BEGIN IMMEDIATE" if is_target else "BEGIN")

    async def count(self, table: Table) -> int:
        """Return how many rows there are."""
        return self._number(f"SELECT count(*) FROM {_statements(table)}")  # noqa: S608 # a constant

    async def count_busy(self) -> int:
        """Return how many unfinished turns a gateway is at work on."""
        writers = self._connection.execute(
            "SELECT writer, count(*) FROM responses WHERE writer IS NOT NULL GROUP BY writer"
        ).fetchall()
        presence = Presence(self._path)
        try:
            return sum(count for writer, count in writers if presence.is_alive(writer))
        finally:
            presence.close()

    async def count_alive(self) -> int:
        """Return how many stores of running gateways use this file."""
        return count_alive(self._path)

    async def count_unfinished(self) -> int:
        """Return how many turns are unfinished."""
        return self._number("SELECT count(*) FROM responses WHERE writer IS NOT NULL")

    async def size(self) -> int:
        """Return how many bytes the file and its journal take."""
        journal = self._path.with_name(f"{self._path.name}-wal")
        files = (path for path in (self._path, journal) if path.is_file())
        return sum(path.stat().st_size for path in files)

    async def rows(self, table: Table) -> AsyncIterator[list[Row]]:
        """Yield all rows in the order of their key, some at a time."""
        key = ", ".join(table.key).replace("number", "rowid")
        columns = ", ".join(table.columns)
        cursor = self._connection.execute(
            f"SELECT {columns} FROM {_statements(table)} ORDER BY {key}"  # noqa: S608 # constants
        )
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            yield rows

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        marks = ", ".join("?" for _ in table.columns)
        columns = ", ".join(table.columns)
        self._connection.executemany(
            f"INSERT INTO {table.name} ({columns}) VALUES ({marks})",  # noqa: S608 # constants
            rows,
        )

    async def commit(self) -> None:
        """Make durable what was written."""
        self._connection.execute("COMMIT")

    async def close(self) -> None:
        """Close; what was not committed is discarded."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.close()
        self._queue.close()

    def _number(self, question: str) -> int:
        found: sqlite3.Cursor = self._connection.execute(question)
        return int(found.fetchone()[0])


def _statements(table: Table) -> str:
    """Return the table without what is about to be purged from it."""
    return f"log WHERE NOT {CLOSED}" if table.name == "log" else table.name


def _connect_reader(path: Path) -> sqlite3.Connection:
    """Open a file that is there, for reading. What is in its journal is read too."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        check_version(connection)
    except BaseException as error:
        connection.close()
        refuse_read_only(error, path)
        raise
    return connection
