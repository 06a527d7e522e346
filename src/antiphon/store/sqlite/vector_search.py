"""The search of the facet `vector_stores` in SQLite: filter, then rank, then join both rankings."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from antiphon.store.base.vector_stores import FoundChunk, Search
from antiphon.store.encoding import is_storable
from antiphon.store.filter_sql import filter_sql
from antiphon.store.found_chunks import Places, Ranked, join_rankings
from antiphon.store.sqlite.vector_words import Range, rank_words
from antiphon.store.vector_rows import chunk_keys, first_part, part_of
from antiphon.store.vectors import Kind, Near, VectorCache, has_numpy, nearest_plain

__all__ = ["search_stores"]

_FILES_AT_ONCE: Final = 500


class _Store(NamedTuple):
    """A vector store that is searched, and the condition on its files, with its values."""

    key: int
    chunks: int
    condition: str
    values: Sequence[object]
    has_filter: bool


def search_stores(
    connection: sqlite3.Connection, cache: VectorCache, owner: str, search: Search
) -> list[FoundChunk]:
    """Return the best chunks of both rankings."""
    stores = list(_find_stores(connection, owner, search))
    by_words: list[Ranked] = []
    by_vector: list[Near] = []
    for store in stores:
        by_words += rank_words(connection, search.words, _range(connection, store), search.limit)
        if search.vector is not None:
            by_vector += _rank_vectors(connection, cache, store, search, search.vector)
    found = join_rankings(by_words, by_vector, search.limit)
    return _show(connection, found)


def _find_stores(connection: sqlite3.Connection, owner: str, search: Search) -> Iterator[_Store]:
    for store_id in filter(is_storable, dict.fromkeys(search.store_ids)):
        row = connection.execute(
            """SELECT key, (SELECT sum(chunks) FROM vector_files WHERE store = vector_stores.key)
            FROM vector_stores WHERE owner = ? AND id = ?""",
            (owner, store_id),
        ).fetchone()
        if row is None or not row[1]:
            continue
        values: list[object] = [row[0]]
        condition = "store = ? AND part IS NOT NULL"
        if search.filter is not None:

            def mark(value: object, values: list[object] = values) -> str:
                values.append(value)
                return "?"

            condition += f" AND {filter_sql(search.filter, str(row[0]), mark)}"
        yield _Store(row[0], row[1], condition, values, search.filter is not None)


def _range(connection: sqlite3.Connection, store: _Store) -> Range:
    """Return what the ranking by words may find. Removed chunks may still be in the index."""
    has_gone = connection.execute(
        "SELECT 1 FROM vector_gone WHERE part >= ? AND part < ? LIMIT 1",
        (first_part(store.key), first_part(store.key + 1)),
    ).fetchone()
    if has_gone is None and not store.has_filter:
        return Range(store.key, store.chunks)
    parts = f"SELECT part FROM vector_files WHERE {store.condition}"  # noqa: S608 # placeholders
    return Range(store.key, store.chunks, parts, store.values)


def _rank_vectors(
    connection: sqlite3.Connection,
    cache: VectorCache,
    store: _Store,
    search: Search,
    vector: bytes,
) -> list[Near]:
    question = f"""SELECT part, version, chunks FROM vector_files
        WHERE {store.condition} AND embedding = ?"""  # noqa: S608 # placeholders
    files = connection.execute(question, (*store.values, search.embedding)).fetchall()
    versions = {part: version for part, version, _ in files}
    kind = Kind(store.key, search.embedding, len(vector))
    if not has_numpy():
        rows = ((key, one) for _, key, one in _vectors(connection, list(versions)))
        fitting = (row for row in rows if len(row[1]) == kind.size)
        return nearest_plain(vector, fitting, search.limit)
    if not cache.has_room(kind, sum(chunks for *_, chunks in files)):
        return _rank_uncached(connection, kind, versions, vector, search.limit)
    _load(connection, cache, kind, versions)
    return cache.nearest(kind, versions, vector, search.limit)


def _rank_uncached(
    connection: sqlite3.Connection, kind: Kind, versions: dict[int, int], vector: bytes, limit: int
) -> list[Near]:
    """Read all vectors of a vector store that is too large to be kept in memory."""
    near: list[Near] = []
    for some in _groups(list(versions)):
        block = VectorCache()
        block.put(kind, dict.fromkeys(some, 0), list(_vectors(connection, some)))
        near += block.nearest(kind, some, vector, limit)
    return near


def _load(
    connection: sqlite3.Connection, cache: VectorCache, kind: Kind, versions: dict[int, int]
) -> None:
    """Load the vectors of files that the cache does not have as they are now."""
    missing = cache.missing(kind, versions)
    if not missing:
        return
    living = connection.execute(
        "SELECT part FROM vector_files WHERE store = ? AND part IS NOT NULL", (kind.store,)
    )
    cache.retain(kind, {part for (part,) in living})
    for some in _groups(missing):
        rows = list(_vectors(connection, some))
        cache.put(kind, {part: versions[part] for part in some}, rows)


def _groups(parts: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(parts), _FILES_AT_ONCE):
        yield parts[at : at + _FILES_AT_ONCE]


def _vectors(
    connection: sqlite3.Connection, parts: Sequence[int]
) -> Iterator[tuple[int, int, bytes]]:
    for part in parts:
        keys = chunk_keys(part)
        rows = connection.execute(
            "SELECT key, vector FROM vector_vectors WHERE key >= ? AND key < ?",
            (keys.start, keys.stop),
        )
        for key, vector in rows:
            yield part, key, vector


def _show(connection: sqlite3.Connection, found: dict[int, Places]) -> list[FoundChunk]:
    return [_show_one(connection, key, places) for key, places in found.items()]


def _show_one(connection: sqlite3.Connection, key: int, places: Places) -> FoundChunk:
    part, place = part_of(key)
    store_id, file_id, body, text = connection.execute(
        """SELECT (SELECT id FROM vector_stores WHERE key = store), file, body,
            (SELECT text FROM vector_chunks WHERE key = ?)
        FROM vector_files WHERE part = ?""",
        (key, part),
    ).fetchone()
    filename, attributes, *_ = json.loads(body)
    return FoundChunk(
        store_id=store_id,
        file_id=file_id,
        filename=filename,
        attributes=attributes,
        place=place,
        text=text,
        by_words=places.by_words,
        by_vector=places.by_vector,
        similarity=places.similarity,
    )
