"""A PostgreSQL database as a place to copy from and to.

It stores the ids of items as bytes and the time of a response as a fraction; rows are converted
from and to the values that SQLite stores (see `copy_tables`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from antiphon.store.copy_tables import TABLES, Row, Table
from antiphon.store.postgres.database import connect
from antiphon.store.postgres.migrations import check_version, migrate

__all__ = ["PostgresPlace"]

_CONNECT_SECONDS: Final = 5.0
_ROWS_AT_ONCE: Final = 200

_BUSY: Final = """
    SELECT count(*) FROM responses JOIN nodes ON nodes.name = responses.writer
    WHERE nodes.lease_until > clock_timestamp()
"""
_ALIVE: Final = "SELECT count(*) FROM nodes WHERE lease_until > clock_timestamp()"
# The next row gets the key after the greatest, as in SQLite.
_NEXT_KEY: Final = """
    SELECT setval(pg_get_serial_sequence('{table}', 'key'), coalesce(max(key), 0) + 1, FALSE)
    FROM {table}
"""


class PostgresPlace:
    """See `Place` for what the methods do. Made by `open`."""

    def __init__(self, connection: Any) -> None:  # Any: asyncpg has no types of its own
        self._connection = connection
        self._transaction: Any = None

    @classmethod
    async def open(cls, url: str, *, is_target: bool) -> PostgresPlace:
        """Connect. A target is brought up to date; any other must be. Raises as asyncpg does."""
        connection = await connect(
            url, timeout=_CONNECT_SECONDS, server_settings={"application_name": "antiphon copy"}
        )
        try:
            await (migrate if is_target else check_version)(connection)
        except BaseException:
            connection.terminate()
            raise
        return cls(connection)

    async def begin(self, *, is_target: bool) -> None:
        """Begin to read one state, or to write with all other writers locked out."""
        if is_target:
            self._transaction = self._connection.transaction()
            await self._transaction.start()
            tables = ", ".join(table.name for table in TABLES)
            await self._connection.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")
        else:
            self._transaction = self._connection.transaction(
                isolation="repeatable_read", readonly=True
            )
            await self._transaction.start()

    async def count(self, table: Table) -> int:
        """Return how many rows there are."""
        return await self._number(f"SELECT count(*) FROM {table.name}")  # noqa: S608 # a constant

    async def count_busy(self) -> int:
        """Return how many unfinished turns a gateway is at work on."""
        return await self._number(_BUSY)

    async def count_alive(self) -> int:
        """Return how many stores of running gateways use this database."""
        return await self._number(_ALIVE)

    async def count_unfinished(self) -> int:
        """Return how many turns are unfinished."""
        return await self._number("SELECT count(*) FROM responses WHERE writer IS NOT NULL")

    async def size(self) -> int:
        """Return how many bytes our tables take, with their indexes."""
        sizes = (f"pg_total_relation_size('{table.name}')" for table in TABLES)
        return await self._number(f"SELECT {' + '.join(sizes)}")

    async def rows(self, table: Table) -> AsyncIterator[list[Row]]:
        """Yield all rows in the order of their key, some at a time."""
        columns, key = ", ".join(table.columns), ", ".join(table.key)
        cursor = await self._connection.cursor(
            f"SELECT {columns} FROM {table.name} ORDER BY {key}"  # noqa: S608 # constants
        )
        turn = _turner(table, _FROM_HERE)
        while found := await cursor.fetch(_ROWS_AT_ONCE):
            yield [turn(row) for row in found]

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows."""
        turn = _turner(table, _TO_HERE)
        await self._connection.copy_records_to_table(
            table.name, records=[turn(row) for row in rows], columns=table.columns
        )

    async def commit(self) -> None:
        """Commit what was written, and let new keys continue after the copied ones."""
        for table in TABLES:
            if table.columns[0] == "key":
                await self._connection.execute(_NEXT_KEY.format(table=table.name))
        await self._transaction.commit()
        self._transaction = None

    async def close(self) -> None:
        """Close; what was not committed is discarded."""
        self._connection.terminate()

    async def _number(self, question: str) -> int:
        return int(await self._connection.fetchval(question))


def _to_name(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _from_name(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _to_time(value: float) -> float:
    return float(value)


def _from_time(value: float) -> float:
    return int(value) if value.is_integer() else value


_Turn = Callable[[Any], Any]
_TO_HERE: Final[dict[tuple[str, str], _Turn]] = {
    ("items", "id"): _to_name,
    ("conversation_items", "id"): _to_name,
    ("responses", "created_at"): _to_time,
}
_FROM_HERE: Final[dict[tuple[str, str], _Turn]] = {
    ("items", "id"): _from_name,
    ("conversation_items", "id"): _from_name,
    ("responses", "created_at"): _from_time,
}


def _turner(table: Table, ways: dict[tuple[str, str], _Turn]) -> Callable[[Any], Row]:
    """Return a function that converts a row of one side to the other."""
    turns = {
        place: ways[table.name, column]
        for place, column in enumerate(table.columns)
        if (table.name, column) in ways
    }

    def turn(row: Any) -> Row:
        values = list(row)
        for place, way in turns.items():
            values[place] = way(values[place])
        return tuple(values)

    return turn
