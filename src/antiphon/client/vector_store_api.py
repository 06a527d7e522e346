"""/v1/vector_stores: files made searchable, and the search.

Attached files are indexed by the server on its own time: `wait` returns when that is done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final

from antiphon.client.request import plain_json
from antiphon.client.resources import Deleted, read_deleted
from antiphon.client.rest import Page, Rest, iterate_objects, read_as
from antiphon.client.sender import Sender, path_to, with_query
from antiphon.protocol.vector_stores import (
    AttachedFileObject,
    BatchObject,
    FoundText,
    SearchResult,
    VectorStoreObject,
)

__all__ = ["AsyncVectorStores"]

_ALL: Final = "/vector_stores"
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 1.0


class AsyncVectorStores:
    """The vector stores that a server keeps: `client.vector_stores`."""

    def __init__(self, sender: Sender) -> None:
        self._rest = Rest(sender)
        self._sleep = sender.sleep

    async def create(
        self,
        *,
        name: str | None = None,
        file_ids: Sequence[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        expires_after_days: int | None = None,
    ) -> VectorStoreObject:
        """Make a vector store. It may expire some days after it was last used."""
        body: dict[str, Any] = {"name": name, "file_ids": file_ids, "metadata": metadata}
        if expires_after_days is not None:
            body["expires_after"] = {"anchor": "last_active_at", "days": expires_after_days}
        given = {key: plain_json(one, key) for key, one in body.items() if one is not None}
        return read_as(await self._rest.post(_ALL, given), VectorStoreObject)

    async def retrieve(self, vector_store_id: str) -> VectorStoreObject:
        """Return a vector store."""
        return read_as(await self._rest.fetch("GET", _path(vector_store_id)), VectorStoreObject)

    async def delete(self, vector_store_id: str) -> Deleted:
        """Delete a vector store; its files stay."""
        answer = await self._rest.fetch("DELETE", _path(vector_store_id))
        return read_deleted(answer, vector_store_id)

    async def page(
        self, *, after: str | None = None, limit: int | None = None, order: str | None = None
    ) -> Page[VectorStoreObject]:
        """Return a page of vector stores, newest first unless `order` is "asc"."""
        path = with_query(_ALL, after=after, limit=limit, order=order)
        return await self._rest.page(path, VectorStoreObject)

    def iterate(self, *, order: str | None = None) -> AsyncGenerator[VectorStoreObject, None]:
        """Yield all vector stores, page after page."""
        return iterate_objects(lambda after: self.page(after=after, limit=100, order=order))

    async def search(
        self,
        vector_store_id: str,
        query: str | Sequence[str],
        *,
        filters: Mapping[str, Any] | None = None,
        max_num_results: int | None = None,
        ranking_options: Mapping[str, Any] | None = None,
    ) -> list[FoundText]:
        """Return the files that answer the query best, with the texts that do."""
        body = {
            "query": query,
            "filters": filters,
            "max_num_results": max_num_results,
            "ranking_options": ranking_options,
        }
        given = {key: plain_json(one, key) for key, one in body.items() if one is not None}
        answer = await self._rest.post(f"{_path(vector_store_id)}/search", given)
        return read_as(answer, SearchResult).data

    # Files in a vector store.

    async def attach(
        self, vector_store_id: str, files: Sequence[str | Mapping[str, Any]]
    ) -> BatchObject:
        """Attach files, up to 2000 at a time: their ids, or dicts with `file_id`, `attributes`
        and `chunking_strategy`.
        """
        entries = [
            {"file_id": file} if isinstance(file, str) else plain_json(file, "files")
            for file in files
        ]
        path = f"{_path(vector_store_id)}/file_batches"
        return read_as(await self._rest.post(path, {"files": entries}), BatchObject)

    async def batch(self, vector_store_id: str, batch_id: str) -> BatchObject:
        """Return how far the files are that were attached together."""
        path = path_to(f"{_path(vector_store_id)}/file_batches", batch_id, "batch_id")
        return read_as(await self._rest.fetch("GET", path), BatchObject)

    async def wait(
        self,
        vector_store_id: str,
        batch_id: str,
        *,
        progress: Callable[[BatchObject], None] | None = None,
    ) -> BatchObject:
        """Return the batch when all its files are indexed, or have failed.

        `progress` is called with each state that the server reports.
        """
        seconds = _FIRST_WAIT
        while True:
            batch = await self.batch(vector_store_id, batch_id)
            if progress is not None:
                progress(batch)
            if batch.status != "in_progress":
                return batch
            await self._sleep(seconds)
            seconds = min(2 * seconds, _LONGEST_WAIT)

    async def files_page(
        self,
        vector_store_id: str,
        *,
        status: str | None = None,
        batch_id: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> Page[AttachedFileObject]:
        """Return a page of the files, those of a batch or with a status if that is given."""
        path = f"{_path(vector_store_id)}/files"
        if batch_id is not None:
            batches = f"{_path(vector_store_id)}/file_batches"
            path = f"{path_to(batches, batch_id, 'batch_id')}/files"
        path = with_query(path, filter=status, after=after, limit=limit, order=order)
        return await self._rest.page(path, AttachedFileObject)

    def iterate_files(
        self,
        vector_store_id: str,
        *,
        status: str | None = None,
        batch_id: str | None = None,
        order: str | None = None,
    ) -> AsyncGenerator[AttachedFileObject, None]:
        """Yield all files, page after page."""
        return iterate_objects(
            lambda after: self.files_page(
                vector_store_id,
                status=status,
                batch_id=batch_id,
                after=after,
                limit=100,
                order=order,
            )
        )

    async def detach(self, vector_store_id: str, file_id: str) -> Deleted:
        """Remove a file from a vector store; the file itself stays."""
        path = path_to(f"{_path(vector_store_id)}/files", file_id, "file_id")
        return read_deleted(await self._rest.fetch("DELETE", path), file_id)


def _path(vector_store_id: str) -> str:
    return path_to(_ALL, vector_store_id, "vector_store_id")
