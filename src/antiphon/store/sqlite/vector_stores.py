"""Facet `vector_stores` in SQLite: the words in FTS5, the search, and what is left to erase.

Removed text leaves the file before the caller is answered, unless that takes longer than
`patience`: then the sweep goes on with it. See `vector_clean`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.base.vector_stores import (
    AttachedFile,
    Chunk,
    FileBatch,
    FoundChunk,
    Job,
    Search,
    VectorStore,
)
from antiphon.store.sql.steps import Each, Steps
from antiphon.store.sql.vector_stores import SqlVectorStores
from antiphon.store.sqlite.files_database import FilesDatabase
from antiphon.store.sqlite.tables import SqliteTables
from antiphon.store.sqlite.vector_clean import clean_step, has_leftovers
from antiphon.store.sqlite.vector_search import search_stores
from antiphon.store.sqlite.vector_words import NO_FTS5, check_fts5, has_fts5, index_steps
from antiphon.store.vectors import VectorCache, numpy_engine

__all__ = ["SqliteVectorStores"]

_TEXT: Final = "INSERT INTO vector_chunks (key, text) VALUES ($1, $2)"
_VECTOR: Final = "INSERT OR REPLACE INTO vector_vectors (key, vector) VALUES ($1, $2)"


class SqliteVectorStores(SqlVectorStores):
    """See `VectorStores` for what the methods do."""

    def __init__(self, tables: SqliteTables, database: FilesDatabase, patience: float) -> None:
        super().__init__(tables, _SqliteChunks())
        self._database = database
        self._patience = patience
        self._cache = VectorCache()  # used in the thread that reads

    @property
    def fault(self) -> str | None:
        return None if has_fts5() else NO_FTS5

    async def engine(self) -> str:
        return numpy_engine()

    async def add(
        self,
        owner: str,
        store: VectorStore,
        files: Sequence[AttachedFile] = (),
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        check_fts5()
        return await super().add(owner, store, files, once)

    async def attach(
        self,
        owner: str,
        store_id: str,
        files: Sequence[AttachedFile],
        batch: FileBatch | None = None,
        once: ClaimRequest | None = None,
    ) -> Claim | bool:
        check_fts5()
        return await super().attach(owner, store_id, files, batch, once)

    async def add_chunks(self, job: Job, chunks: Sequence[Chunk], *, embedding: str = "") -> bool:
        check_fts5()
        return await super().add_chunks(job, chunks, embedding=embedding)

    async def search(self, owner: str, search: Search) -> list[FoundChunk]:
        check_fts5()
        if not await self._database.exists():
            return []
        return await self._database.read(
            lambda connection: search_stores(connection, self._cache, owner, search)
        )

    async def clean_up(self) -> None:
        """Erase what was removed, in steps, for as long as a caller waits."""
        if not await self._database.exists() or not await self._database.read(has_leftovers):
            return
        end = time.monotonic() + self._patience
        while await self._database.write(clean_step):
            if time.monotonic() > end:
                return
        await self._database.remove(lambda connection, gone: True)


class _SqliteChunks:
    """See `ChunkTables`."""

    def add_texts(self, store: int, rows: Sequence[tuple[int, str]]) -> Steps[None]:
        if rows:
            yield Each(_TEXT, rows)
            yield from index_steps(store, rows)

    def put_vectors(self, rows: Sequence[tuple[int, bytes]]) -> Steps[None]:
        yield Each(_VECTOR, rows)
