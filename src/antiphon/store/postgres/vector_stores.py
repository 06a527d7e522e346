"""Facet `vector_stores` in PostgreSQL: the search, and the chunks that no file has any more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from antiphon.store.base.vector_stores import Chunk, Filter, FoundChunk, Job, Search
from antiphon.store.filter_sql import filter_sql
from antiphon.store.found_chunks import Places, Ranked, join_rankings
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.tables import PostgresTables
from antiphon.store.postgres.vector_blocks import delete_part, fold
from antiphon.store.postgres.vector_chunks import PostgresChunks
from antiphon.store.postgres.vector_dense import IS_LOADED, can_compare, load_missing, nearest
from antiphon.store.postgres.vector_words import rank_words
from antiphon.store.sql.vector_stores import SqlVectorStores
from antiphon.store.vector_rows import part_of
from antiphon.store.vectors import Kind, Near, VectorCache, has_numpy, nearest_plain, numpy_engine

__all__ = ["PostgresVectorStores"]

_FILES_AT_ONCE: Final = 200
_LOADED_AT_ONCE: Final = 20
# PostgreSQL then hashes what was found. As a join without statistics it would compare every file
# with every attribute.
_HASHED: Final = "({}) IS TRUE"
_KEY: Final = "SELECT key FROM vector_stores WHERE owner = $1 AND id = $2"
_STORE: Final = """
    SELECT key, (SELECT CAST(sum(chunks) AS bigint) FROM vector_files WHERE store = stores.key)
    FROM vector_stores AS stores WHERE owner = $1 AND id = $2
"""
_VECTORS: Final = """
    SELECT part, vectors.key, vector FROM unnest($1::bigint[]) AS parts (part)
    JOIN vector_vectors AS vectors
    ON vectors.key >= part * 131072 AND vectors.key < (part + 1) * 131072
"""
_SHOW: Final = """
    SELECT chunks.key, stores.id, files.file, files.body, chunks.text
    FROM unnest($1::bigint[], $2::bigint[]) AS wanted (key, part)
    JOIN vector_chunks AS chunks ON chunks.key = wanted.key
    JOIN vector_files AS files ON files.part = wanted.part
    JOIN vector_stores AS stores ON stores.key = files.store
"""


class _Store(NamedTuple):
    """A vector store that is searched, and the filter."""

    key: int
    chunks: int
    filter: Filter | None

    def condition(self, first: int) -> tuple[str, list[object]]:
        """Return the condition on files, and its values, which are numbered from `first` on."""
        values: list[object] = [self.key]
        condition = f"store = ${first} AND part IS NOT NULL"
        if self.filter is None:
            return condition, values

        def mark(value: object) -> str:
            values.append(value)
            return f"${first + len(values) - 1}"

        return f"{condition} AND {filter_sql(self.filter, str(self.key), mark, _HASHED)}", values


class PostgresVectorStores(SqlVectorStores):
    """See `VectorStores` for what the methods do."""

    def __init__(self, tables: PostgresTables, database: Database, patience: float) -> None:
        super().__init__(tables, PostgresChunks(database))
        self._database = database
        self._patience = patience
        self._cache = VectorCache()
        self._cache_lock = asyncio.Lock()
        self._folding: set[int] = set()
        self.fault: str | None = None

    async def add_chunks(self, job: Job, chunks: Sequence[Chunk], *, embedding: str = "") -> bool:
        is_ours = await super().add_chunks(job, chunks, embedding=embedding)
        if is_ours:
            await self._fold(job.owner, job.store_id)
        return is_ours

    async def _fold(self, owner: str, store_id: str) -> None:
        """Make blocks of the words that wait, unless another job of this process does it."""
        key = await self._database.ask_value(_KEY, owner, store_id)
        if key is None or key in self._folding:
            return
        self._folding.add(key)
        try:
            await fold(self._database, key)
        finally:
            self._folding.discard(key)

    async def search(self, owner: str, search: Search) -> list[FoundChunk]:
        names = [name for name in dict.fromkeys(search.store_ids) if self._tables.is_text(name)]
        by_words: list[Ranked] = []
        by_vector: list[Near] = []
        for name in names:
            rows = await self._database.ask_rows(_STORE, owner, name)
            if rows and rows[0][1]:
                store = _Store(rows[0][0], rows[0][1], search.filter)
                by_words += await self._rank_words(store, search)
                if search.vector is not None:
                    by_vector += await self._rank_vectors(store, search, search.vector)
        return await self._show(join_rankings(by_words, by_vector, search.limit))

    async def _rank_words(self, store: _Store, search: Search) -> list[Ranked]:
        files = store.condition(7)

        async def rank(connection: Connection) -> list[Ranked]:
            return await rank_words(
                connection,
                search.words,
                (store.key, store.chunks),
                files,
                search.limit,
            )

        return await self._database.view(rank)

    async def _rank_vectors(self, store: _Store, search: Search, vector: bytes) -> list[Near]:
        condition, values = store.condition(2)
        files = await self._database.ask_rows(
            f"""SELECT part, version, chunks, {IS_LOADED} FROM vector_files
            WHERE embedding = $1 AND {condition}""",  # noqa: S608 # placeholders
            search.embedding,
            *values,
        )
        near: list[Near] = []
        extension = self._database.pgvector
        if extension is not None and can_compare(vector):
            loaded = [file[0] for file in files if file[3]]
            near = await nearest(self._database, extension, loaded, vector, search.limit)
            files = [file for file in files if not file[3]]
        return near + await self._rank_here(store, search, vector, files)

    async def _rank_here(
        self, store: _Store, search: Search, vector: bytes, files: Sequence[Any]
    ) -> list[Near]:
        """Rank the vectors that the database does not compare itself."""
        if not files:
            return []
        versions = {part: version for part, version, *_ in files}
        kind = Kind(store.key, search.embedding, len(vector))
        is_kept = has_numpy() and self._cache.has_room(kind, sum(row[2] for row in files))
        if not is_kept:
            return await self._rank_uncached(kind, versions, vector, search.limit)
        async with self._cache_lock:
            await self._load(kind, versions)
            return await asyncio.to_thread(
                self._cache.nearest, kind, versions, vector, search.limit
            )

    async def _rank_uncached(
        self, kind: Kind, versions: dict[int, int], vector: bytes, limit: int
    ) -> list[Near]:
        """Read all vectors: there are too many to be kept in memory, or there is no numpy."""
        near: list[Near] = []
        for some in _groups(list(versions)):
            rows = await self._vectors(some, kind.size)
            if has_numpy():
                block = VectorCache()
                block.put(kind, dict.fromkeys(some, 0), rows)
                near += block.nearest(kind, some, vector, limit)
            else:
                near += nearest_plain(vector, ((row[1], row[2]) for row in rows), limit)
        return near

    async def _load(self, kind: Kind, versions: dict[int, int]) -> None:
        """Load the vectors of files that the cache does not have as they are now."""
        missing = self._cache.missing(kind, versions)
        if not missing:
            return
        living = await self._database.ask_rows(
            "SELECT part FROM vector_files WHERE store = $1 AND part IS NOT NULL", kind.store
        )
        self._cache.retain(kind, {row[0] for row in living})
        for some in _groups(missing):
            rows = await self._vectors(some, kind.size)
            self._cache.put(kind, {part: versions[part] for part in some}, rows)

    async def _vectors(self, parts: Sequence[int], size: int) -> list[tuple[int, int, bytes]]:
        rows = await self._database.ask_rows(_VECTORS, list(parts))
        return [(row[0], row[1], row[2]) for row in rows if len(row[2]) == size]

    async def _show(self, found: dict[int, Places]) -> list[FoundChunk]:
        keys = list(found)
        parts = [part_of(key)[0] for key in keys]
        rows = await self._database.ask_rows(_SHOW, keys, parts)
        return [_found(found[row[0]], *row) for row in rows]

    async def engine(self) -> str:
        reason = await self._database.why_not_pgvector()
        extension = self._database.pgvector
        if extension is None:
            return f"{numpy_engine()}; {reason}"
        return f"pgvector {extension.version}, exact, in the database"

    async def load_vectors(self) -> None:
        """Let the database compare vectors that were stored before it could."""
        end = time.monotonic() + self._patience
        while self._database.pgvector is not None and time.monotonic() < end:
            if not await load_missing(self._database, self._database.pgvector, _LOADED_AT_ONCE):
                return

    async def clean_up(self) -> None:
        """Delete the chunks that no file has any more, in steps."""
        end = time.monotonic() + self._patience
        while time.monotonic() < end:
            part = await self._database.ask_value("SELECT part FROM vector_gone LIMIT 1")
            if part is None:
                return
            await delete_part(self._database, part)


def _groups(parts: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(parts), _FILES_AT_ONCE):
        yield parts[at : at + _FILES_AT_ONCE]


def _found(
    places: Places, key: int, store_id: str, file_id: str, body: bytes, text: bytes
) -> FoundChunk:
    filename, attributes, *_ = json.loads(body)
    return FoundChunk(
        store_id=store_id,
        file_id=file_id,
        filename=filename,
        attributes=attributes,
        place=part_of(key)[1],
        text=text.decode(),
        by_words=places.by_words,
        by_vector=places.by_vector,
        similarity=places.similarity,
    )
