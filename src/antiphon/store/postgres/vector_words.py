"""The words of chunks in PostgreSQL: an inverted index in rows, ranked by BM25.

PostgreSQL splits and stems texts (configuration `english`, without stop words), but its own
rankings know nothing of rare and common words, so we keep what BM25 needs. A posting is a number:

    part in the store (24 bits) | place (17) | how often (6) | how many terms the chunk has (16)

`vector_blocks` has one term of many chunks in a row. The chunks of small files first wait in
`vector_waiting`, where a row has many terms of few chunks: a row for each term would be slow to
write, and slow to search. See `vector_blocks` for how they become blocks. As in SQLite, words that
most chunks have are left out, and of the others the rarest are looked for, until more than RANKED
chunks have one. A small vector store loses nothing by that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Final

from antiphon.store.found_chunks import Ranked
from antiphon.store.postgres.database import Connection
from antiphon.store.sql.steps import Sql, Steps
from antiphon.store.vector_rows import PART_BITS, PLACE_BITS, first_part, part_of, split_words

__all__ = ["BUCKETS", "PART_SHIFT", "add_texts", "add_words", "indexed_text", "rank_words"]

RANKED: Final = 6_000
BUCKETS: Final = 128
"""Over so many rows the terms of chunks that wait are distributed, by a hash."""
PART_SHIFT: Final = 39
"""A posting begins with the part: these are the bits after it."""
_LARGE: Final = 400  # chunks; so many make blocks at once
# A longer text makes no `tsvector`: its lexemes and their places take a megabyte at most.
_MAX_INDEXED: Final = 200_000
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_LEAST: Final = 1e-6

_TEXTS: Final = "INSERT INTO vector_chunks SELECT * FROM unnest($1::bigint[], $2::bytea[])"
_POSTINGS: Final = """
    WITH texts AS MATERIALIZED (
        SELECT place, to_tsvector('english', text) AS lexemes
        FROM unnest($3::int[], $4::text[]) AS given (place, text)),
    found AS MATERIALIZED (
        SELECT place, lexeme COLLATE "C" AS lexeme, cardinality(positions) AS times
        FROM texts, unnest(lexemes) AS terms (lexeme, positions, weights)),
    sizes AS MATERIALIZED (
        SELECT place, CAST(sum(times) AS integer) AS length FROM found GROUP BY place),
    postings AS MATERIALIZED (
        SELECT lexeme, (($2::bigint & 16777215) << 39) + (place::bigint << 22)
            + (least(times, 63) << 16) + least(length, 65535) AS posting
        FROM found JOIN sizes USING (place)),
    added AS ({})
    INSERT INTO vector_lengths SELECT $2, coalesce(sum(length), 0) FROM sizes
    ON CONFLICT (part) DO UPDATE SET terms = vector_lengths.terms + excluded.terms
"""
_AS_BLOCKS: Final = _POSTINGS.format("""
        INSERT INTO vector_blocks
        SELECT $1, lexeme, count(*), min(posting), max(posting), array_agg(posting)
        FROM postings GROUP BY lexeme
""")
_AS_WAITING: Final = _POSTINGS.format("""
        INSERT INTO vector_waiting
        SELECT $1, hashtextextended(lexeme, 0) & 127 AS bucket, $2, count(*),
            array_agg(lexeme), array_agg(posting)
        FROM postings GROUP BY bucket
""")
_LEXEMES: Final = "SELECT DISTINCT lexeme FROM unnest(to_tsvector('english', $1))"
_COUNTS: Final = """
    SELECT term, CAST(sum(chunks) AS bigint) FROM (
        SELECT term, chunks FROM vector_blocks WHERE store = $1 AND term = ANY($2::text[])
        UNION ALL
        SELECT wanted.term, cardinality(array_positions(terms, wanted.term))
        FROM unnest($2::text[]) AS wanted (term) JOIN vector_waiting AS waiting
        ON store = $1 AND bucket = hashtextextended(wanted.term, 0) & 127) AS found
    GROUP BY term
"""
_LENGTHS: Final = """
    SELECT CAST(sum(terms) AS bigint) FROM vector_lengths WHERE part >= $1 AND part < $2
"""
_RANK: Final = """
    WITH wanted AS MATERIALIZED (
        SELECT * FROM unnest($2::text[], $3::float8[]) AS given (term, weight)),
    found AS (
        SELECT weight, posting FROM wanted
        JOIN vector_blocks AS blocks ON store = $1 AND blocks.term = wanted.term,
            unnest(postings) AS posting
        UNION ALL
        SELECT weight, postings[at] FROM wanted
        JOIN vector_waiting AS waiting
            ON store = $1 AND bucket = hashtextextended(wanted.term, 0) & 127,
            unnest(array_positions(terms, wanted.term)) AS at),
    allowed AS MATERIALIZED (
        SELECT part & 16777215 AS part FROM vector_files WHERE {})
    SELECT posting >> 22 AS chunk, CAST(-sum(weight * (posting >> 16 & 63)
        / ((posting >> 16 & 63) + $5::float8 + $6::float8 * (posting & 65535))) AS float8) AS score
    FROM found WHERE posting >> 39 IN (SELECT part FROM allowed)
    GROUP BY chunk ORDER BY score, chunk LIMIT $4
"""  # a constant


def add_texts(rows: Sequence[tuple[int, str]]) -> Steps[None]:
    """Add chunks of one part, and make their words searchable."""
    if rows:
        yield Sql(_TEXTS, ([key for key, _ in rows], [text.encode() for _, text in rows]))
        yield Sql(*_addition(rows))


async def add_words(connection: Connection, rows: Sequence[tuple[int, str]]) -> None:
    """Make the words of chunks of any vector stores searchable. The rows are sorted."""
    for _, some in itertools.groupby(rows, lambda row: part_of(row[0])[0]):
        statement, values = _addition(list(some))
        await connection.execute(statement, *values)


def _addition(rows: Sequence[tuple[int, str]]) -> tuple[str, tuple[object, ...]]:
    """Return the statement that adds the words of some chunks of one part, and its values."""
    part, _ = part_of(rows[0][0])
    places = [part_of(key)[1] for key, _ in rows]
    statement = _AS_BLOCKS if len(rows) >= _LARGE else _AS_WAITING
    return statement, (part >> PART_BITS, part, places, [indexed_text(text) for _, text in rows])


def indexed_text(text: str) -> str:
    """Return what of a text is indexed."""
    return text.replace("\0", " ")[:_MAX_INDEXED]


async def rank_words(
    connection: Connection,
    words: Iterable[str],
    store: tuple[int, int],
    files: tuple[str, Sequence[object]],
    limit: int,
) -> list[Ranked]:
    """Return the best chunks, each with a score that is smaller for a better one.

    `store` has the key of the vector store and how many chunks it has, `files` the condition on
    the files that may be found, whose values come after the sixth.
    """
    key, total = store
    text = " ".join(split_words(words))
    lexemes = [row[0] for row in await connection.fetch(_LEXEMES, text)]
    rows = await connection.fetch(_COUNTS, key, lexemes)
    counts = {row[0]: row[1] for row in rows if row[1]}
    chosen = _choose(counts, total)
    if not chosen:
        return []
    length = await connection.fetchval(_LENGTHS, first_part(key), first_part(key + 1))
    mean = max(1.0, float(length or 0) / total)
    rows = await connection.fetch(
        _RANK.format(files[0]),
        key,
        chosen,
        [_weight(counts[term], total) for term in chosen],
        limit,
        _SATURATION * (1 - _LENGTH),
        _SATURATION * _LENGTH / mean,
        *files[1],
    )
    first = first_part(key) << PLACE_BITS
    return [(first + chunk, score) for chunk, score in rows]


def _choose(counts: dict[str, int], total: int) -> list[str]:
    """Return the rarest terms, no more than can be ranked."""
    found = sorted(counts, key=lambda term: (counts[term], term))
    rare = [term for term in found if counts[term] * 2 <= total]
    chosen: list[str] = []
    room = RANKED
    for term in rare or found:
        room -= counts[term]
        if chosen and room < 0:
            break
        chosen.append(term)
    return chosen


def _weight(count: int, total: int) -> float:
    count = min(count, total)  # chunks that are being cleaned up are counted, too
    return max(math.log((total - count + 0.5) / (count + 0.5)), _LEAST)
