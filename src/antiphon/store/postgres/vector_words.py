"""The words of chunks in PostgreSQL: an inverted index in rows, ranked by BM25.

PostgreSQL splits and stems texts (configuration `english`, without stop words), but its own
rankings know nothing of rare and common words, so we keep what BM25 needs. As in SQLite, words
that most chunks have are left out, and of the others the rarest are looked for, until more than
RANKED chunks have one. A small vector store loses nothing by that.
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

__all__ = ["PostgresChunks", "add_words", "rank_words"]

RANKED: Final = 6_000
# A longer text makes no `tsvector`: its lexemes and their places take a megabyte at most.
_MAX_INDEXED: Final = 200_000
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75
_LEAST: Final = 1e-6

_TEXTS: Final = "INSERT INTO vector_chunks SELECT * FROM unnest($1::bigint[], $2::bytea[])"
_VECTORS: Final = """
    INSERT INTO vector_vectors SELECT * FROM unnest($1::bigint[], $2::bytea[])
    ON CONFLICT (key) DO UPDATE SET vector = excluded.vector
"""
_TERMS: Final = """
    WITH texts AS MATERIALIZED (
        SELECT place, to_tsvector('english', text) AS lexemes
        FROM unnest($3::int[], $4::text[]) AS given (place, text)),
    found AS MATERIALIZED (
        SELECT place, lexeme, cardinality(positions) AS times
        FROM texts, unnest(lexemes) AS terms (lexeme, positions, weights)),
    sizes AS MATERIALIZED (
        SELECT place, CAST(sum(times) AS integer) AS length FROM found GROUP BY place),
    added AS (
        INSERT INTO vector_terms
        SELECT $1, lexeme, $2, count(*), array_agg(place), array_agg(times), array_agg(length)
        FROM found JOIN sizes USING (place) GROUP BY lexeme)
    INSERT INTO vector_lengths SELECT $2, coalesce(sum(length), 0) FROM sizes
    ON CONFLICT (part) DO UPDATE SET terms = vector_lengths.terms + excluded.terms
"""
_LEXEMES: Final = "SELECT DISTINCT lexeme FROM unnest(to_tsvector('english', $1))"
_COUNTS: Final = """
    SELECT term, CAST(sum(chunks) AS bigint) FROM vector_terms
    WHERE store = $1 AND term = ANY($2::text[]) GROUP BY term
"""
_LENGTHS: Final = """
    SELECT CAST(sum(terms) AS bigint) FROM vector_lengths WHERE part >= $1 AND part < $2
"""
_RANK: Final = """
    SELECT part, place,
        CAST(-sum(weight * times / (times + $5::float8 + $6::float8 * length)) AS float8) AS score
    FROM unnest($2::text[], $3::float8[]) AS wanted (term, weight)
    JOIN vector_terms AS terms ON terms.store = $1 AND terms.term = wanted.term,
        unnest(places, counts, lengths) AS found (place, times, length)
    WHERE part IN ({})
    GROUP BY part, place ORDER BY score, part, place LIMIT $4
"""  # a constant


class PostgresChunks:
    """See `ChunkTables`."""

    def add_texts(self, store: int, rows: Sequence[tuple[int, str]]) -> Steps[None]:
        if not rows:
            return
        yield Sql(_TEXTS, ([key for key, _ in rows], [text.encode() for _, text in rows]))
        yield Sql(_TERMS, _terms_of(rows))

    def put_vectors(self, rows: Sequence[tuple[int, bytes]]) -> Steps[None]:
        if rows:
            yield Sql(_VECTORS, ([key for key, _ in rows], [vector for _, vector in rows]))


async def add_words(connection: Connection, rows: Sequence[tuple[int, str]]) -> None:
    """Make the words of chunks of any vector stores searchable. The rows are sorted."""
    for _, some in itertools.groupby(rows, lambda row: part_of(row[0])[0]):
        await connection.execute(_TERMS, *_terms_of(list(some)))


def _terms_of(rows: Sequence[tuple[int, str]]) -> tuple[object, ...]:
    """Return the values for the terms of some chunks of one part."""
    part, _ = part_of(rows[0][0])
    places = [part_of(key)[1] for key, _ in rows]
    texts = [text.replace("\0", " ")[:_MAX_INDEXED] for _, text in rows]
    return part >> PART_BITS, part, places, texts


async def rank_words(
    connection: Connection,
    words: Iterable[str],
    store: tuple[int, int],
    parts: tuple[str, Sequence[object]],
    limit: int,
) -> list[Ranked]:
    """Return the best chunks, each with a score that is smaller for a better one.

    `store` has the key of the vector store and how many chunks it has, `parts` the query for the
    parts that may be found, whose values come after the sixth.
    """
    key, total = store
    text = " ".join(split_words(words))
    lexemes = [row[0] for row in await connection.fetch(_LEXEMES, text)]
    counts = {row[0]: row[1] for row in await connection.fetch(_COUNTS, key, lexemes)}
    chosen = _choose(counts, total)
    if not chosen:
        return []
    weights = [_weight(counts[term], total) for term in chosen]
    length = await connection.fetchval(_LENGTHS, first_part(key), first_part(key + 1))
    mean = max(1.0, float(length or 0) / total)
    rows = await connection.fetch(
        _RANK.format(parts[0]),
        key,
        chosen,
        weights,
        limit,
        _SATURATION * (1 - _LENGTH),
        _SATURATION * _LENGTH / mean,
        *parts[1],
    )
    return [((part << PLACE_BITS) + place, score) for part, place, score in rows]


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
