"""Which chunks answer a query? One way for the tool `file_search` and for the REST API.

Words are always searched. If there are embeddings, the vector of the query is searched too, and
both rankings become one (`rank`). A query whose vector cannot be made fails: results by words
alone would look like the usual ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.store.base.vector_stores import Filter, FoundChunk, Search, VectorStore, VectorStores
from antiphon.tools.index.embed import Embedder
from antiphon.tools.index.rank import Ranked, Ranking, rank

__all__ = ["MAX_RESULTS", "FileQuery", "Searcher"]

MAX_RESULTS: Final = 50
"""How many results a search may ask for."""
_DEPTH: Final = 100  # chunks of each ranking that are put together


class FileQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for: the best answers to any of the queries."""

    store_ids: Sequence[str]
    queries: Sequence[str]
    filter: Filter | None = None
    ranking: Ranking = Ranking()


class Searcher:
    """Searches vector stores."""

    def __init__(
        self,
        stores: VectorStores,
        embedder: Embedder | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stores = stores
        self._embedder = embedder
        self._now = now

    @property
    def has_vectors(self) -> bool:
        """Whether vectors are searched beside words."""
        return self._embedder is not None

    async def check(self, owner: str, store_ids: Sequence[str], param: str) -> list[VectorStore]:
        """Return these vector stores. Raise NotFound or InvalidRequest if one cannot be searched.

        What belongs to others is not found.
        """
        found = await self._stores.find(owner, store_ids)
        for store_id in store_ids:
            store = found.get(store_id)
            if store is None:
                raise NotFound(
                    f"Vector store '{store_id}' not found.",
                    code="vector_store_not_found",
                    param=param,
                )
            if store.expires_at is not None and store.expires_at <= self._now():
                raise InvalidRequest(
                    f"Vector store '{store_id}' has expired.",
                    code="vector_store_expired",
                    param=param,
                )
        return [found[store_id] for store_id in store_ids]

    async def search(self, owner: str, query: FileQuery) -> list[Ranked]:
        """Return chunks, best first: more than any caller shows. The vector stores count as used.

        Raise EmbeddingFailed, or LimitReached if the owner cannot pay for the vector of a query.
        """
        searches = await asyncio.gather(
            *(self._search(owner, query, text) for text in query.queries)
        )
        await self._stores.touch(owner, query.store_ids, int(self._now()))
        return rank(searches, query.ranking, has_vectors=self.has_vectors)

    async def _search(self, owner: str, query: FileQuery, text: str) -> list[FoundChunk]:
        embedder, ranking = self._embedder, query.ranking
        vector = None
        if embedder is not None and ranking.vector_weight > 0:
            vector = await embedder.embed_query(owner, text)
        # Words that do not count are not searched, unless there is nothing else.
        words = [text] if vector is None or ranking.words_weight > 0 else []
        search = Search(
            store_ids=query.store_ids,
            words=words,
            vector=vector,
            embedding=embedder.kind if embedder is not None and vector is not None else "",
            filter=query.filter,
            limit=_DEPTH,
        )
        return await self._stores.search(owner, search)
