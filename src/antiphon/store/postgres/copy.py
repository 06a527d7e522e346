"""A PostgreSQL database as a place to copy from and to.

It stores the ids of items as bytes and the time of a response as a fraction; rows are converted
from and to the values that SQLite stores (see `copy_tables`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

from antiphon.store.copy_tables import TABLES, Row, Table
from antiphon.store.postgres.database import CONNECTIONS, Connection, connect
from antiphon.store.postgres.log_partitions import cover
from antiphon.store.postgres.migrations import (
    OLDEST_LEVEL,
    check_version,
    lower_level,
    migrate,
    read_level,
)
from antiphon.store.postgres.vector_blocks import fold_here
from antiphon.store.postgres.vector_words import add_words
from antiphon.store.vector_rows import PART_BITS, part_of

__all__ = ["PostgresPlace"]

_CONNECT_SECONDS: Final = 5.0

_BUSY: Final = """
    SELECT count(*) FROM responses JOIN nodes ON nodes.name = responses.writer
    WHERE nodes.lease_until > clock_timestamp()
"""
# With partitions.
_SIZE: Final = """
    SELECT sum(pg_total_relation_size(part.relid))
    FROM unnest($1::text[]) AS name, pg_partition_tree(name::regclass) AS part
"""
# Of a turn that has ended, the whole log is in `logs`.
_ENDED: Final = "EXISTS (SELECT FROM logs WHERE logs.response = log.response)"
_ALIVE: Final = "SELECT count(*) FROM nodes WHERE lease_until > clock_timestamp()"
# The next row gets the key after the greatest, as in SQLite.
_NEXT_KEY: Final = """
    SELECT setval(pg_get_serial_sequence('{table}', 'key'), coalesce(max(key), 0) + 1, FALSE)
    FROM {table}
"""


class PostgresPlace:
    """See `Place` for what the methods do. Made by `open`."""

    def __init__(self, connection: Connection, *, is_target: bool) -> None:
        self._connection = connection
        self._is_target = is_target
        self._transaction: Any = None

    @classmethod
    async def open(cls, url: str, *, is_target: bool) -> PostgresPlace:
        """Connect. Raises as asyncpg does."""
        connection = await connect(
            url, timeout=_CONNECT_SECONDS, server_settings={"application_name": "antiphon copy"}
        )
        try:
            await (migrate if is_target else check_version)(connection)
        except BaseException:
            connection.terminate()
            raise
        return cls(connection, is_target=is_target)

    async def begin(self) -> None:
        settings = {} if self._is_target else {"isolation": "repeatable_read", "readonly": True}
        self._transaction = self._connection.transaction(**settings)
        await self._transaction.start()
        if self._is_target:
            tables = ", ".join(table.name for table in TABLES)
            await self._connection.execute(f"LOCK TABLE {tables} IN EXCLUSIVE MODE")

    async def count(self, table: Table) -> int:
        return await self.number(f"SELECT count(*) FROM {_source(table)}")  # noqa: S608 # a constant

    async def count_busy(self) -> int:
        return await self.number(_BUSY)

    async def count_alive(self) -> int:
        return await self.number(_ALIVE)

    async def number(self, question: str, *values: object) -> int:
        return int(await self._connection.fetchval(question, *values))

    async def files_number(self, question: str) -> int:
        return await self.number(question)

    @property
    def oldest_level(self) -> int:
        return OLDEST_LEVEL

    async def level(self) -> int:
        return await read_level(self._connection)

    async def lower_level(self, level: int) -> None:
        await lower_level(self._connection, level)

    async def size(self) -> int:
        """Return how many bytes our tables take, with their indexes."""
        return await self.number(_SIZE, [table.name for table in TABLES])

    async def connections(self) -> dict[str, int]:
        return {
            "connections at most": CONNECTIONS * await self.count_alive(),
            "… of the server": await self.number("SHOW max_connections"),
        }

    async def rows(self, table: Table) -> AsyncIterator[list[Row]]:
        columns, key = ", ".join(table.columns), ", ".join(table.key)
        cursor = await self._connection.cursor(
            f"SELECT {columns} FROM {_source(table)} ORDER BY {key}"  # noqa: S608 # constants
        )
        convert = _converter(table, is_back=True)
        while found := await cursor.fetch(table.at_once):
            yield [convert(row) for row in found]

    async def write(self, table: Table, rows: Sequence[Row]) -> None:
        convert = _converter(table, is_back=False)
        if table.name == "responses" and rows:
            await cover(self._connection, rows[-1][0] + 1)  # rows come in the order of their keys
        await self._connection.copy_records_to_table(
            table.name, records=[convert(row) for row in rows], columns=table.columns
        )
        if table.name == "vector_chunks":
            await add_words(self._connection, rows)
            for store in dict.fromkeys(part_of(row[0])[0] >> PART_BITS for row in rows):
                await fold_here(self._connection, store)

    async def commit(self) -> None:
        """Commit what was written, and let new keys continue after the copied ones."""
        for table in TABLES:
            if table.columns[0] == "key":
                await self._connection.execute(_NEXT_KEY.format(table=table.name))
        await self._transaction.commit()
        self._transaction = None

    async def close(self) -> None:
        self._connection.terminate()


def _source(table: Table) -> str:
    return f"log WHERE NOT {_ENDED}" if table.name == "log" else table.source


def _encode_name(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _decode_name(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _decode_time(value: float) -> float:
    return int(value) if value.is_integer() else value


_Convert = Callable[[Any], Any]
# By table and column: from SQLite's value to ours, and back.
_CONVERSIONS: Final[dict[tuple[str, str], tuple[_Convert, _Convert]]] = {
    ("items", "id"): (_encode_name, _decode_name),
    ("conversation_items", "id"): (_encode_name, _decode_name),
    ("responses", "created_at"): (float, _decode_time),
    ("vector_chunks", "text"): (_encode_name, _decode_name),
}


def _converter(table: Table, *, is_back: bool) -> Callable[[Sequence[Any]], Row]:
    """Return a function that converts a row of SQLite to ours, or back."""
    conversions = [
        (place, _CONVERSIONS[table.name, column][is_back])
        for place, column in enumerate(table.columns)
        if (table.name, column) in _CONVERSIONS
    ]

    def convert(row: Sequence[Any]) -> Row:
        values = list(row)
        for place, one in conversions:
            values[place] = one(values[place])
        return tuple(values)

    return convert
