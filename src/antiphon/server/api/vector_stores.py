"""/v1/vector_stores: files made searchable, and the search.

A missing vector store and one of another owner get the same answer, to the byte. An expired one is
shown as such, and can be deleted; nothing can be searched in it or attached to it. The search is
that of the tool `file_search`. Files in vector stores are in `vector_store_files`.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import InvalidRequest, invalid
from antiphon.protocol.files import DeletedObject
from antiphon.protocol.vector_stores import (
    AttachFile,
    ChangeVectorStore,
    CountsObject,
    CreateVectorStore,
    ExpiryObject,
    FoundText,
    SearchResult,
    SearchVectorStore,
    TextObject,
    VectorStoreObject,
    no_vector_store,
)
from antiphon.server.api.attaching import read_files
from antiphon.server.api.objects import (
    answer_object,
    answer_page,
    read_object,
    read_once,
    replayed,
    same_request,
    wrong_cursor,
)
from antiphon.server.api.pages import read_page_query
from antiphon.server.app import Call, Route, note_degraded
from antiphon.store.base.filters import FilterError, read_filter
from antiphon.store.base.vector_stores import FileCounts, Filter, VectorStore, VectorStores
from antiphon.tools.index.rank import group_files, read_ranking
from antiphon.tools.index.search import FileQuery

__all__ = ["ROUTES", "as_counts", "check_alive", "find_store"]

_RESULTS: Final = 10
_RESOURCE: Final = "vector_stores"


async def create(call: Call) -> web.StreamResponse:
    """Make a vector store, with files if the caller names some."""
    once = await read_once(call, _RESOURCE)
    body = await read_object(call, CreateVectorStore, is_optional=True)
    if once is not None:
        earlier = await _stores(call).claimed(call.owner, once)
        if earlier is not None:
            return await _made_before(call, same_request(once, earlier))
    asked = [
        AttachFile(file_id=name, chunking_strategy=body.chunking_strategy)
        for name in dict.fromkeys(body.file_ids or ())
    ]
    files = await read_files(call, asked, "file_ids[{}]", "chunking_strategy")
    engine = call.app.engine
    now = engine.now()
    store = VectorStore(
        id=engine.mint("vs"),
        name=body.name,
        description=body.description,
        metadata=body.metadata or {},
        created_at=now,
        last_active_at=now,
        expires_after_days=None if body.expires_after is None else body.expires_after.days,
    )
    earlier = await _stores(call).add(call.owner, store, files, once)
    if earlier is not None:  # the same request was a moment earlier
        return await _made_before(call, same_request(once, earlier))
    call.app.index.wake()
    return answer_object(call, _as_object(call, await find_store(call, store.id)))


async def list_stores(call: Call) -> web.StreamResponse:
    """Return a page of vector stores."""
    query, before = read_page_query(call), call.request.query.get("before")
    if query.after is not None and before is not None:
        raise invalid("before", "cannot be combined with after")
    # The page before an object is the one after it in the other order, turned around.
    is_descending = query.is_descending is (before is None)
    try:
        found = await _stores(call).page(
            call.owner,
            after=query.after or before,
            limit=query.limit + 1,
            is_descending=is_descending,
        )
    except KeyError:
        name = "after" if before is None else "before"
        raise wrong_cursor(name, query.after or before) from None
    shown = [_as_object(call, store) for store in found]
    if before is None:
        return answer_page(call, shown, query.limit)
    return answer_page(
        call, shown[: query.limit][::-1], query.limit, has_more=len(found) > query.limit
    )


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a vector store."""
    return answer_object(call, _as_object(call, await find_store(call, call.path_id)))


async def update(call: Call) -> web.StreamResponse:
    """Change the name, the metadata or the expiry of a vector store."""
    body = await read_object(call, ChangeVectorStore)
    store = await find_store(call, call.path_id)
    changed = await _stores(call).change(call.owner, _with_changes(store, body))
    if changed is None:
        raise no_vector_store(call.path_id)
    return answer_object(call, _as_object(call, changed))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a vector store for good; its files stay."""
    if not await _stores(call).remove(call.owner, call.path_id):
        raise no_vector_store(call.path_id)
    return answer_object(call, DeletedObject(id=call.path_id, object="vector_store.deleted"))


async def search(call: Call) -> web.StreamResponse:
    """Return the files that answer a query best, with the texts that do."""
    body = await read_object(call, SearchVectorStore)
    query = FileQuery(
        store_ids=[call.path_id],
        queries=[body.query] if isinstance(body.query, str) else body.query,
        filter=_read_filter(body),
        ranking=read_ranking(body.ranking_options, "ranking_options"),
    )
    check_alive(call, await find_store(call, call.path_id))
    ranked = await call.app.index.searcher.search(call.owner, query)
    found = [
        FoundText(
            file_id=file.file_id,
            filename=file.filename,
            score=file.score,
            attributes=file.attributes,
            content=[TextObject(text) for text in file.texts],
        )
        for file in group_files(ranked, body.max_num_results or _RESULTS)
    ]
    answer = answer_object(call, SearchResult(search_query=list(query.queries), data=found))
    if body.rewrite_query:
        note_degraded(answer, ["rewrite_query: the query was searched as it is"])
    return answer


async def find_store(call: Call, name: str) -> VectorStore:
    """Return a vector store of this owner. Raise NotFound."""
    found = await _stores(call).find(call.owner, [name])
    if name not in found:
        raise no_vector_store(name)
    return found[name]


def check_alive(call: Call, store: VectorStore) -> None:
    """Raise InvalidRequest if the vector store has expired."""
    if _is_expired(call, store):
        raise InvalidRequest(f"Vector store '{store.id}' has expired.", code="vector_store_expired")


def as_counts(counts: FileCounts) -> CountsObject:
    """Return the counts as answers show them."""
    return CountsObject(
        in_progress=counts.in_progress,
        completed=counts.completed,
        failed=counts.failed,
        cancelled=counts.cancelled,
        total=counts.total,
    )


async def _made_before(call: Call, name: str) -> web.Response:
    return replayed(answer_object(call, _as_object(call, await find_store(call, name))))


def _with_changes(store: VectorStore, body: ChangeVectorStore) -> VectorStore:
    if body.name is not msgspec.UNSET:
        store = msgspec.structs.replace(store, name=body.name)
    if body.metadata is not msgspec.UNSET:
        store = msgspec.structs.replace(store, metadata=body.metadata or {})
    if body.expires_after is not msgspec.UNSET:
        days = None if body.expires_after is None else body.expires_after.days
        store = msgspec.structs.replace(store, expires_after_days=days)
    return store


def _read_filter(body: SearchVectorStore) -> Filter | None:
    try:
        return None if body.filters is None else read_filter(body.filters)
    except FilterError as error:
        where = f"filters.{error.where}" if error.where else "filters"
        raise invalid(where, error.reason) from None


def _is_expired(call: Call, store: VectorStore) -> bool:
    return store.expires_at is not None and store.expires_at <= call.app.engine.now()


def _status(call: Call, store: VectorStore) -> str:
    if _is_expired(call, store):
        return "expired"
    return "in_progress" if store.counts.in_progress else "completed"


def _as_object(call: Call, store: VectorStore) -> VectorStoreObject:
    days = store.expires_after_days
    return VectorStoreObject(
        id=store.id,
        created_at=store.created_at,
        name=store.name or "",
        description=store.description,
        usage_bytes=store.usage_bytes,
        file_counts=as_counts(store.counts),
        status=_status(call, store),
        expires_after=None if days is None else ExpiryObject("last_active_at", days),
        expires_at=store.expires_at,
        last_active_at=store.last_active_at,
        metadata=store.metadata,
    )


def _stores(call: Call) -> VectorStores:
    return call.app.engine.store.vector_stores


_ONE: Final = "/v1/vector_stores/{id}"
ROUTES: Final = [
    Route("POST", "/v1/vector_stores", create),
    Route("GET", "/v1/vector_stores", list_stores),
    Route("GET", _ONE, retrieve),
    Route("POST", _ONE, update),
    Route("DELETE", _ONE, delete),
    Route("POST", f"{_ONE}/search", search),
]
