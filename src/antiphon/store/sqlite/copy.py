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
from antiphon.store.sqlite.presence import count_alive, is_alive
from antiphon.store.sqlite.queue import WriteQueue

__all__ = ["SqlitePlace"]

_PATIENCE: Final = 5.0
_ROWS_AT_ONCE: Final = 200


class SqlitePlace:
    """See `Place` for what the methods do."""

    def __init__(self, path: Path, *, is_target: bool) -> None:
        self._path = path.absolute()
        self._is_target = is_target
        self._queue = WriteQueue(self._path)
        self._connection = (
            connect(self._path, patience=_PATIENCE) if is_target else _connect_reader(self._path)
        )

    async def begin(self) -> None:
        if self._is_target:
            self._queue.enter(_PATIENCE)
        self._connection.execute("BEGIN IMMEDIATE" if self._is_target else "BEGIN")

    async def count(self, table: Table) -> int:
        return await self.number(f"SELECT count(*) FROM {_current(table)}")  # noqa: S608

    async def count_busy(self) -> int:
        writers = self._connection.execute(
            "SELECT writer, count(*) FROM responses WHERE writer IS NOT NULL GROUP BY writer"
        ).fetchall()
        return sum(count for writer, count in writers if is_alive(self._path, writer))

    async def count_alive(self) -> int:
        return count_alive(self._path)

    async def number(self, question: str) -> int:
        return int(self._connection.execute(question).fetchone()[0])

    async def size(self) -> int:
        """Return how many bytes the file and its journal take."""
        journal = self._path.with_name(f"{self._path.name}-wal")
        files = (path for path in (self._path, journal) if path.is_file())
        return sum(path.stat().st_size for path in files)

    async def rows(self, table: Table) -> AsyncIterator[list[Row]]:
        key = ", ".join(table.key).replace("number", "rowid")
        columns = ", ".join(table.columns)
        cursor = self._connection.execute(
            f"SELECT {columns} FROM {_current(table)} ORDER BY {key}"  # noqa: S608 # constants
        )
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            yield rows

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        marks = ", ".join("?" for _ in table.columns)
        columns = ", ".join(table.columns)
        self._connection.executemany(
            f"INSERT INTO {table.name} ({columns}) VALUES ({marks})",  # noqa: S608 # constants
            rows,
        )

    async def commit(self) -> None:
        self._connection.execute("COMMIT")

    async def close(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.close()
        self._queue.close()


def _current(table: Table) -> str:
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
