"""Vectors that the database itself compares, with the extension `vector`: exact, by cosine.

`vector_dense` holds the vectors of `vector_vectors` in the extension's own type, each of length
one. Like the cache of
`store.vectors` it never decides what exists: `vector_loaded` has the version of a file up to which
its vectors are here, and those of other files are compared by the gateway. Vectors are put here
with the bytes; those that were stored before the extension was there follow in the sweep.
There is no approximate index: filters leave any share of the rows, and results must be exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.pgvector import MAX_NUMBERS, Pgvector, can_hold
from antiphon.store.sql.steps import Sql, Steps
from antiphon.store.vector_rows import chunk_keys, part_of
from antiphon.store.vectors import Near, to_unit

__all__ = ["IS_LOADED", "can_compare", "load_missing", "nearest", "put_dense"]

IS_LOADED: Final = """
    version = (SELECT loaded.version FROM vector_loaded AS loaded
        WHERE loaded.part = vector_files.part)
"""
"""Whether all vectors of a file are here."""
_NUMBER: Final = 4
_CHUNKS_AT_ONCE: Final = 1_000
# The change that adds these vectors makes the version one higher. If all earlier ones are here, or
# there are none, then all are here.
_MARK: Final = f"""
    INSERT INTO vector_loaded SELECT part, version + 1 FROM vector_files
    WHERE part = $1 AND ({IS_LOADED}
        OR NOT EXISTS (SELECT FROM vector_vectors WHERE key >= $2 AND key < $3))
    ON CONFLICT (part) DO UPDATE SET version = excluded.version
"""  # noqa: S608 # a constant
_PUT: Final = """
    INSERT INTO vector_dense SELECT * FROM unnest($1::bigint[], $2::{schema}.vector[])
    ON CONFLICT (key) DO UPDATE SET vector = excluded.vector
"""
# The negative product of vectors of length one is their cosine, and is found faster than that.
# A vector with another number of numbers cannot be compared.
_NEAREST: Final = """
    SELECT key, -product FROM (
        SELECT key, CASE WHEN {schema}.vector_dims(vector) = $3
            THEN vector OPERATOR({schema}.<#>) $2::{schema}.vector END AS product
        FROM unnest($1::bigint[]) AS parts (part) JOIN vector_dense
        ON key >= part * 131072 AND key < (part + 1) * 131072) AS found
    WHERE product IS NOT NULL ORDER BY product, key LIMIT $4
"""
_MISSING: Final = f"""
    SELECT part, version FROM vector_files
    WHERE part IS NOT NULL AND embedding <> '' AND ({IS_LOADED}) IS NOT TRUE
        AND status = 'completed'
    ORDER BY part LIMIT $1
"""  # noqa: S608 # a constant
_BYTES: Final = """
    SELECT key, vector FROM vector_vectors WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3
"""
_LOADED: Final = """
    INSERT INTO vector_loaded SELECT part, version FROM vector_files
    WHERE part = $1 AND version = $2
    ON CONFLICT (part) DO UPDATE SET version = excluded.version
"""


def put_dense(extension: Pgvector, rows: Sequence[tuple[int, bytes]]) -> Steps[None]:
    """Add vectors of one part, before their bytes are stored."""
    part, _ = part_of(rows[0][0])
    keys = chunk_keys(part)
    yield Sql(_MARK, (part, keys.start, keys.stop))
    yield Sql(*_put(extension, rows))


def _put(extension: Pgvector, rows: Sequence[tuple[int, bytes]]) -> tuple[str, tuple[object, ...]]:
    held = [row for row in rows if can_hold(row[1])]
    statement = _PUT.format(schema=extension.schema)
    return statement, ([key for key, _ in held], [to_unit(vector) for _, vector in held])


async def nearest(
    database: Database, extension: Pgvector, parts: Sequence[int], vector: bytes, limit: int
) -> list[Near]:
    """Return the nearest of the chunks of these parts, the nearest first."""
    numbers = len(vector) // _NUMBER
    if not parts or not can_hold(vector):
        return []
    statement = _NEAREST.format(schema=extension.schema)
    rows = await database.ask_rows(statement, list(parts), to_unit(vector), numbers, limit)
    return [(key, cosine) for key, cosine in rows]


def can_compare(vector: bytes) -> bool:
    """Return whether vectors of this length are here."""
    return len(vector) // _NUMBER <= MAX_NUMBERS


async def load_missing(database: Database, extension: Pgvector, limit: int) -> int:
    """Load the vectors of some files that were stored without the extension; return how many."""
    files = await database.ask_rows(_MISSING, limit)
    for part, version in files:
        keys = chunk_keys(part)
        first = keys.start
        while rows := await database.ask_rows(_BYTES, first, keys.stop, _CHUNKS_AT_ONCE):
            await database.change(partial(_load, extension, rows))
            first = rows[-1][0] + 1
        await database.ask_value(_LOADED, part, version)
    return len(files)


async def _load(
    extension: Pgvector, rows: Sequence[tuple[int, bytes]], connection: Connection
) -> None:
    statement, values = _put(extension, rows)
    await connection.execute(statement, *values)
