"""Can the extension `vector` (pgvector) compare vectors in this database, and how is it reached?

It is used where the server has it and our role may create it, or somebody has. Its names are
qualified by its schema, which need not be on our search path. Vectors stay in `vector_vectors`
too, as bytes: a database can lose the extension, and gateways that do not use it share the file.
"""

from __future__ import annotations

import math
import struct
from array import array
from typing import Any, Final, NamedTuple

import asyncpg

from antiphon.store.vectors import to_numbers

__all__ = ["MAX_NUMBERS", "Pgvector", "can_hold", "find_pgvector"]

# Any: asyncpg has no types of its own.
Connection = Any

MAX_NUMBERS: Final = 16_000
"""Longer vectors do not fit."""
_HEAD: Final = struct.Struct(">HH")
_AVAILABLE: Final = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')"
_INSTALLED: Final = """
    SELECT quote_ident(nspname), nspname, extversion
    FROM pg_extension JOIN pg_namespace AS names ON names.oid = extnamespace
    WHERE extname = 'vector'
"""
_HAS_PUBLIC: Final = "SELECT to_regnamespace('public') IS NOT NULL"
_IS_READY: Final = """
    SELECT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('vector_dense')
        AND attname = 'vector' AND NOT attisdropped)
"""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('antiphon vector_dense', 0))"


class Pgvector(NamedTuple):
    """The extension, as it is installed."""

    schema: str
    """Quoted."""
    name: str
    version: str

    async def register(self, connection: Connection) -> None:
        """Let this connection send and receive vectors as they are stored: bytes of float32."""
        await connection.set_type_codec(
            "vector", schema=self.name, encoder=_encode, decoder=_decode, format="binary"
        )


async def find_pgvector(connection: Connection) -> Pgvector | str:
    """Return the extension, and have its table ready; or the reason why it cannot be used."""
    found = await _installed(connection)
    if found is not None and await connection.fetchval(_IS_READY):
        return found
    if found is None and not await connection.fetchval(_AVAILABLE):
        return "the database server does not have the extension `vector`"
    try:
        async with connection.transaction():
            await connection.execute(_LOCK)
            return await _make(connection)
    except asyncpg.PostgresError as error:
        return f"the extension `vector` cannot be used: {error}"


async def _installed(connection: Connection) -> Pgvector | None:
    row = await connection.fetchrow(_INSTALLED)
    return None if row is None else Pgvector(*row)


async def _make(connection: Connection) -> Pgvector:
    found = await _installed(connection)
    if found is None:
        # Not in our own schema: whoever drops that must not take the extension from others.
        place = " SCHEMA public" if await connection.fetchval(_HAS_PUBLIC) else ""
        await connection.execute(f"CREATE EXTENSION vector{place}")
        found = await _installed(connection)
        assert found is not None
    if not await connection.fetchval(_IS_READY):
        # If the extension was dropped, the table has lost its column.
        await connection.execute("DROP TABLE IF EXISTS vector_dense")
        await connection.execute("DELETE FROM vector_loaded")
        await connection.execute(
            f"CREATE TABLE vector_dense (key BIGINT PRIMARY KEY, vector {found.schema}.vector)"
        )
    return found


def can_hold(vector: bytes) -> bool:
    """Return whether the extension takes these bytes as a vector."""
    count, rest = divmod(len(vector), 4)
    return not rest and 1 <= count <= MAX_NUMBERS and math.isfinite(sum(to_numbers(vector)))


def _encode(vector: bytes) -> bytes:
    """Return the extension's own form of a vector: big endian, after how many there are."""
    numbers = array("f", vector)
    numbers.byteswap()
    return _HEAD.pack(len(numbers), 0) + numbers.tobytes()


def _decode(data: bytes) -> bytes:
    numbers = array("f", data[_HEAD.size :])
    numbers.byteswap()
    return numbers.tobytes()
