"""Everything between a file and a result, in one process: what indexes and what searches.

It owns the embeddings, and the reader of documents if none is given. Both are used when a file or
a query needs them, and not before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from antiphon.tools.documents.base import DocumentReader
from antiphon.tools.documents.reader import Documents
from antiphon.tools.index.embed import Embedder, Pay
from antiphon.tools.index.ingest import FileStore, Ingest, IngestSettings
from antiphon.tools.index.search import Searcher

__all__ = ["FileIndex"]


class FileIndex:
    """The files of a store, searchable."""

    def __init__(
        self,
        store: FileStore,
        *,
        reader: DocumentReader | None = None,
        embedder: Embedder | None = None,
        settings: IngestSettings | None = None,
    ) -> None:
        self._own: Documents | None = None
        if reader is None:
            reader = self._own = Documents()
        self.embedder = embedder
        self.ingest = Ingest(store, reader, embedder, settings)
        self.searcher = Searcher(store.vector_stores, embedder)

    def pay_with(self, pay: Pay) -> None:
        """Charge the calls of an upstream that makes vectors in this way."""
        if self.embedder is not None:
            self.embedder.pay_with(pay)

    def wake(self) -> None:
        """Index what was attached just now."""
        self.ingest.wake()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Index files inside this context; on exit, give back jobs and close everything."""
        try:
            async with self.ingest.running():
                yield
        finally:
            if self._own is not None:
                await self._own.close()
            if self.embedder is not None:
                await self.embedder.close()
