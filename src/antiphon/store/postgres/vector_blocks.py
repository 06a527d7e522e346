"""How do words that wait become blocks, and how do removed words leave them?

Both are done in small transactions of their own, one at a time for each vector store. Nothing is
lost if a node dies in between: what waits is searched as well, and a part is named in
`vector_gone` until everything of it is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.vector_words import BUCKETS, PART_SHIFT, indexed_text
from antiphon.store.vector_rows import MAX_PARTS, PART_BITS, chunk_keys

__all__ = ["delete_part", "fold", "fold_here"]

# What waits is searched more slowly, and a block of a few chunks is not worth its row.
_MAX_POSTINGS: Final = 300_000
_MAX_ROWS: Final = 48 * BUCKETS
_CHUNKS_AT_ONCE: Final = 500
_BLOCKS_AT_ONCE: Final = 5_000

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('vector words ' || $1::bigint, 0))"
_WAITING: Final = """
    SELECT count(*), CAST(coalesce(sum(size), 0) AS bigint) FROM vector_waiting WHERE store = $1
"""
_FOLD: Final = """
    WITH gone AS (
        DELETE FROM vector_waiting WHERE store = $1 AND bucket = $2 RETURNING terms, postings)
    INSERT INTO vector_blocks
    SELECT $1, term, count(*), min(posting), max(posting), array_agg(posting ORDER BY posting)
    FROM gone, unnest(terms, postings) AS waiting (term, posting) GROUP BY term
"""
_IS_LEFT: Final = """
    SELECT NOT EXISTS (SELECT FROM vector_stores WHERE key = $1 AND is_emptied = 0)
"""
_DELETE_BLOCKS: Final = """
    WITH gone AS (
        DELETE FROM vector_blocks WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM vector_blocks WHERE store = $1 LIMIT $2))
        RETURNING TRUE)
    SELECT count(*) FROM gone
"""
_TEXTS: Final = """
    SELECT key, text FROM vector_chunks WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3
"""
# The words of these texts, where they are in blocks with postings of this part.
_DELETE_WORDS: Final = """
    WITH terms AS MATERIALIZED (
        SELECT DISTINCT lexeme COLLATE "C" AS term
        FROM unnest($4::text[]) AS given (text), unnest(to_tsvector('english', text))),
    touched AS MATERIALIZED (
        SELECT blocks.ctid AS place, chunks, ARRAY(
            SELECT posting FROM unnest(postings) AS posting WHERE posting < $2 OR posting >= $3
        ) AS kept
        FROM terms JOIN vector_blocks AS blocks ON store = $1 AND blocks.term = terms.term
        WHERE low < $3 AND high >= $2),
    gone AS (
        DELETE FROM vector_blocks WHERE ctid = ANY(ARRAY(
            SELECT place FROM touched WHERE cardinality(kept) = 0)))
    UPDATE vector_blocks AS blocks SET chunks = cardinality(kept), postings = kept
    FROM touched WHERE blocks.ctid = place AND cardinality(kept) BETWEEN 1 AND touched.chunks - 1
"""
_DELETE_CHUNKS: Final = (
    "DELETE FROM vector_chunks WHERE key >= $1 AND key < $2",
    "DELETE FROM vector_vectors WHERE key >= $1 AND key < $2",
)
_DELETE_DENSE: Final = "DELETE FROM vector_dense WHERE key >= $1 AND key < $2"
_DELETE_PART: Final = (
    "DELETE FROM vector_loaded WHERE part = $1",
    "DELETE FROM vector_waiting WHERE part = $1",
    "DELETE FROM vector_lengths WHERE part = $1",
    "DELETE FROM vector_gone WHERE part = $1",
)


async def fold(database: Database, store: int) -> None:
    """Make blocks of what waits, if it has become much."""
    if await database.ask(partial(_is_much, store)):
        for bucket in range(BUCKETS):
            await database.change(partial(_fold_bucket, store, bucket))


async def fold_here(connection: Connection, store: int) -> None:
    """Like `fold`, in the transaction of this connection."""
    if await _is_much(store, connection):
        for bucket in range(BUCKETS):
            await _fold_bucket(store, bucket, connection)


async def delete_part(database: Database, part: int) -> None:
    """Delete the chunks of a part that no file has any more, with their words."""
    store = part >> PART_BITS
    if await database.ask_value(_IS_LEFT, store):
        # Nothing of this vector store is left, and its key is free only after this.
        while await database.ask_value(_DELETE_BLOCKS, store, _BLOCKS_AT_ONCE):
            pass
    keys = chunk_keys(part)
    while rows := await database.ask_rows(_TEXTS, keys.start, keys.stop, _CHUNKS_AT_ONCE):
        await database.change(partial(_delete_chunks, part, rows))
    await database.change(partial(_forget, part))


async def _is_much(store: int, connection: Connection) -> bool:
    rows, postings = await connection.fetchrow(_WAITING, store)
    return bool(rows >= _MAX_ROWS or postings >= _MAX_POSTINGS)


async def _fold_bucket(store: int, bucket: int, connection: Connection) -> None:
    await connection.execute(_LOCK, store)
    await connection.execute(_FOLD, store, bucket)


async def _delete_chunks(
    part: int, rows: Sequence[tuple[int, bytes]], connection: Connection
) -> None:
    store, number = part >> PART_BITS, part & (MAX_PARTS - 1)
    first, end = number << PART_SHIFT, ((number + 1) << PART_SHIFT) - 1
    texts = [indexed_text(text.decode()) for _, text in rows]
    await connection.execute(_LOCK, store)
    await connection.execute("DELETE FROM vector_waiting WHERE part = $1", part)
    await connection.execute(_DELETE_WORDS, store, first, end, texts)
    for statement in _DELETE_CHUNKS:
        await connection.execute(statement, rows[0][0], rows[-1][0] + 1)
    if await connection.fetchval("SELECT to_regclass('vector_dense') IS NOT NULL"):
        await connection.execute(_DELETE_DENSE, rows[0][0], rows[-1][0] + 1)


async def _forget(part: int, connection: Connection) -> None:
    await connection.execute(_LOCK, part >> PART_BITS)
    for statement in _DELETE_PART:
        await connection.execute(statement, part)
