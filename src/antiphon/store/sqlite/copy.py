"""A store in SQLite as a place to copy from and to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from antiphon.store.copy_tables import Row, Table
from antiphon.store.sqlite.connection import connect
from antiphon.store.sqlite.copy_files import FilesPlace
from antiphon.store.sqlite.copy_rows import DatabaseRows, connect_reader, size_of
from antiphon.store.sqlite.log import CLOSED
from antiphon.store.sqlite.migrations import (
    OLDEST_LEVEL,
    SHARED_INPUTS,
    lower_level,
    read_level,
)
from antiphon.store.sqlite.presence import count_alive, is_alive
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.shared_inputs import (
    COUNT_WHOLE,
    WHOLE_ITEMS,
    are_shared,
    write_out,
)

__all__ = ["SqlitePlace"]

_PATIENCE: Final = 5.0


class SqlitePlace:
    """See `Place` for what the methods do."""

    def __init__(self, path: Path, *, is_target: bool) -> None:
        self._path = path.absolute()
        self._is_target = is_target
        self._queue = WriteQueue(self._path)
        self._connection = (
            connect(self._path, patience=_PATIENCE) if is_target else connect_reader(self._path)
        )
        self._rows = DatabaseRows(self._connection)
        self._files = FilesPlace(self._path, is_target=is_target)

    async def begin(self) -> None:
        if self._is_target:
            self._queue.enter(_PATIENCE)
        self._connection.execute("BEGIN IMMEDIATE" if self._is_target else "BEGIN")
        self._files.begin()

    async def count(self, table: Table) -> int:
        if table.is_of_files:
            return self._files.count(table)
        if table.is_whole and are_shared(self._connection):
            return await self.number(COUNT_WHOLE)
        return self._rows.count(self._current(table))

    async def count_busy(self) -> int:
        writers = self._connection.execute(
            "SELECT writer, count(*) FROM responses WHERE writer IS NOT NULL GROUP BY writer"
        ).fetchall()
        return sum(count for writer, count in writers if is_alive(self._path, writer))

    async def count_alive(self) -> int:
        return count_alive(self._path)

    async def number(self, question: str) -> int:
        return int(self._connection.execute(question).fetchone()[0])

    async def files_number(self, question: str) -> int:
        return self._files.number(question)

    @property
    def oldest_level(self) -> int:
        return OLDEST_LEVEL

    async def level(self) -> int:
        return read_level(self._connection)

    async def lower_level(self, level: int) -> None:
        lower_level(self._connection, level, before=write_out if level < SHARED_INPUTS else None)

    async def size(self) -> int:
        """Return how many bytes the files of the store take, with their journals."""
        return size_of(self._path) + self._files.size()

    async def connections(self) -> dict[str, int]:
        return {}

    async def rows(self, table: Table) -> AsyncIterator[list[Row]]:
        source = self._files if table.is_of_files else self._rows
        for rows in source.rows(table if table.is_of_files else self._current(table)):
            yield rows

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        (self._files if table.is_of_files else self._rows).write(table, rows)

    async def commit(self) -> None:
        """Make durable what was written, the files first: they are found by nobody until then."""
        self._files.commit()
        self._connection.execute("COMMIT")

    async def close(self) -> None:
        self._files.close()
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.close()
        self._queue.close()

    def _current(self, table: Table) -> Table:
        """Return the table without what is about to be purged, and with what is stored once."""
        if table.is_whole and are_shared(self._connection):
            return table._replace(name=WHOLE_ITEMS)
        return table._replace(where=f"NOT {CLOSED}") if table.name == "log" else table
