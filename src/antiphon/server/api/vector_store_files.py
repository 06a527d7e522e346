"""/v1/vector_stores/{id}/files and /file_batches: what is attached, and how far indexing is.

A file is attached in one step with the job that indexes it; clients ask for its status until it
is indexed. A foreign or missing vector store, file or batch gets the same answer, to the byte.
"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import InvalidRequest, NotFound, invalid
from antiphon.protocol.files import DeletedObject
from antiphon.protocol.vector_stores import (
    AttachedFileObject,
    AttachFile,
    BatchObject,
    CreateBatch,
    ErrorOfFile,
    SetAttributes,
    TextObject,
    no_attached_file,
    no_batch,
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
from antiphon.server.api.vector_stores import as_counts, check_alive, find_store
from antiphon.server.app import Call, Route, note_degraded
from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.base.vector_stores import AttachedFile, FileBatch, VectorStores

__all__ = ["ROUTES"]

_STATUSES: Final = ("in_progress", "completed", "failed", "cancelled")
_RESOURCE: Final = "vector_stores"
_CHUNKS: Final = 64


async def attach(call: Call) -> web.StreamResponse:
    """Attach one file."""
    once = await read_once(call, _RESOURCE)
    body = await read_object(call, AttachFile)
    earlier = await _begin(call, once)
    if earlier is None:
        files = await read_files(call, [body], "file_id", "chunking_strategy")
        earlier = await _attach(call, files, None, once)
    if earlier is None:
        return answer_object(call, _as_object(call, await _find_file(call, body.file_id)))
    made = await _find_file(call, same_request(once, earlier))
    return replayed(answer_object(call, _as_object(call, made)))


async def list_files(call: Call) -> web.StreamResponse:
    """Return a page of the files of a vector store."""
    return await _list(call, None)


async def retrieve(call: Call) -> web.StreamResponse:
    """Return an attached file."""
    return answer_object(call, _as_object(call, await _find_file(call, call.item_id)))


async def update(call: Call) -> web.StreamResponse:
    """Replace the attributes of an attached file."""
    body = await read_object(call, SetAttributes)
    changed = await _stores(call).set_attributes(
        call.owner, call.path_id, call.item_id, body.attributes or {}
    )
    if changed is None:
        raise await _no_file(call, call.item_id)
    return answer_object(call, _as_object(call, changed))


async def detach(call: Call) -> web.StreamResponse:
    """Remove a file from a vector store; the file itself stays."""
    if not await _stores(call).detach(call.owner, call.path_id, call.item_id):
        raise await _no_file(call, call.item_id)
    return answer_object(call, DeletedObject(id=call.item_id, object="vector_store.file.deleted"))


async def content(call: Call) -> web.StreamResponse:
    """Send the texts of an indexed file, in pieces: they may be many."""
    file = await _find_file(call, call.item_id)
    if file.status != "completed":
        raise InvalidRequest(f"the file is {file.status}, not completed", code="invalid_state")
    answer = web.StreamResponse()
    answer.content_type = "application/json"
    call.sign(answer)
    await answer.prepare(call.request)
    await answer.write(b'{"object":"vector_store.file_content.page","data":[')
    last, is_first = -1, True
    while texts := await _stores(call).chunks(
        call.owner, call.path_id, call.item_id, after=last, limit=_CHUNKS
    ):
        last += len(texts)
        data = msgspec.json.encode([TextObject(text) for text in texts])[1:-1]
        await answer.write(data if is_first else b"," + data)
        is_first = False
    await answer.write(b'],"has_more":false,"next_page":null}')
    await answer.write_eof()
    return answer


async def create_batch(call: Call) -> web.StreamResponse:
    """Attach several files at once."""
    once = await read_once(call, _RESOURCE)
    body = await read_object(call, CreateBatch)
    earlier = await _begin(call, once)
    engine = call.app.engine
    batch = FileBatch(id=engine.mint("vsfb"), created_at=engine.now())
    if earlier is None:
        where = "file_ids[{}]" if body.files is None else "files[{}].file_id"
        how = "chunking_strategy" if body.files is None else "files[{}].chunking_strategy"
        files = await read_files(call, _read_batch(body), where, how, batch.id)
        earlier = await _attach(call, files, batch, once)
    if earlier is not None:
        made = await _find_batch(call, same_request(once, earlier))
        return replayed(answer_object(call, _as_batch(call, made)))
    answer = answer_object(call, _as_batch(call, await _find_batch(call, batch.id)))
    if body.files is not None and (body.attributes or body.chunking_strategy):
        note_degraded(answer, ["attributes, chunking_strategy: each of files has its own"])
    return answer


async def retrieve_batch(call: Call) -> web.StreamResponse:
    """Return a batch: how many of its files are indexed."""
    return answer_object(call, _as_batch(call, await _find_batch(call, call.item_id)))


async def cancel_batch(call: Call) -> web.StreamResponse:
    """Cancel what of a batch is not indexed yet."""
    cancelled = await _stores(call).cancel_batch(call.owner, call.path_id, call.item_id)
    if cancelled is None:
        raise await _no_batch(call, call.item_id)
    return answer_object(call, _as_batch(call, cancelled))


async def list_batch(call: Call) -> web.StreamResponse:
    """Return a page of the files of a batch."""
    await _find_batch(call, call.item_id)
    return await _list(call, call.item_id)


async def _list(call: Call, batch_id: str | None) -> web.StreamResponse:
    query, given = read_page_query(call), call.request.query
    status = given.get("filter")
    if status is not None and status not in _STATUSES:
        raise invalid("filter", f"must be one of {', '.join(_STATUSES)}")
    await find_store(call, call.path_id)
    before = given.get("before")
    try:
        found = await _stores(call).files(
            call.owner,
            call.path_id,
            batch_id=batch_id,
            status=status,
            after=query.after,
            before=before,
            limit=query.limit + 1,
            is_descending=query.is_descending,
        )
    except KeyError:
        raise await _wrong_cursor(call, query.after, before) from None
    shown = [_as_object(call, file) for file in found]
    if before is not None and query.after is None:
        # These are next to `before`, so the one too many is the first.
        return answer_page(
            call, shown[-query.limit :], query.limit, has_more=len(found) > query.limit
        )
    return answer_page(call, shown, query.limit)


async def _wrong_cursor(call: Call, after: str | None, before: str | None) -> InvalidRequest:
    """Return the error for a page beside a file that is not there."""
    if after is None or await _stores(call).find_file(call.owner, call.path_id, after):
        return wrong_cursor("before", before)
    return wrong_cursor("after", after)


async def _begin(call: Call, once: ClaimRequest | None) -> Claim | None:
    """Check the vector store; return the claim of the same request if it was made before."""
    store = await find_store(call, call.path_id)
    earlier = None if once is None else await _stores(call).claimed(call.owner, once)
    if earlier is None:
        check_alive(call, store)
    return earlier


async def _attach(
    call: Call, files: list[AttachedFile], batch: FileBatch | None, once: ClaimRequest | None
) -> Claim | None:
    """Attach files and have them indexed; return the claim if the same request was faster."""
    done = await _stores(call).attach(call.owner, call.path_id, files, batch, once)
    if isinstance(done, Claim):
        return done
    if not done:
        raise no_vector_store(call.path_id)
    await _stores(call).touch(call.owner, [call.path_id], call.app.engine.now())
    call.app.index.wake()
    return None


def _read_batch(body: CreateBatch) -> list[AttachFile]:
    if (body.file_ids is None) == (body.files is None):
        raise invalid("file_ids", "or files must be given, and not both")
    if body.files is None:
        files = [
            AttachFile(
                file_id=name,
                attributes=body.attributes,
                chunking_strategy=body.chunking_strategy,
            )
            for name in dict.fromkeys(body.file_ids or ())
        ]
    else:
        files = body.files
    if not files:
        raise invalid("file_ids" if body.files is None else "files", "must not be empty")
    if len({file.file_id for file in files}) < len(files):
        raise invalid("files", "must not name a file twice")
    return files


async def _find_file(call: Call, name: str) -> AttachedFile:
    found = await _stores(call).find_file(call.owner, call.path_id, name)
    if found is None:
        raise await _no_file(call, name)
    return found


async def _find_batch(call: Call, name: str) -> FileBatch:
    found = await _stores(call).find_batch(call.owner, call.path_id, name)
    if found is None:
        raise await _no_batch(call, name)
    return found


async def _no_file(call: Call, name: str) -> NotFound:
    """Return the error for a file that is not there, or whose vector store is not."""
    await find_store(call, call.path_id)
    return no_attached_file(call.path_id, name)


async def _no_batch(call: Call, name: str) -> NotFound:
    await find_store(call, call.path_id)
    return no_batch(call.path_id, name)


def _as_object(call: Call, file: AttachedFile) -> AttachedFileObject:
    error = None
    if file.error_code is not None:
        error = ErrorOfFile(file.error_code, file.error_message or "")
    return AttachedFileObject(
        id=file.file_id,
        created_at=file.created_at,
        vector_store_id=call.path_id,
        usage_bytes=file.usage_bytes,
        status=file.status,
        last_error=error,
        chunking_strategy={
            "type": "static",
            "static": {
                "max_chunk_size_tokens": file.chunk_tokens,
                "chunk_overlap_tokens": file.overlap_tokens,
            },
        },
        attributes=file.attributes,
    )


def _as_batch(call: Call, batch: FileBatch) -> BatchObject:
    return BatchObject(
        id=batch.id,
        created_at=batch.created_at,
        vector_store_id=call.path_id,
        status=batch.status,
        file_counts=as_counts(batch.counts),
    )


def _stores(call: Call) -> VectorStores:
    return call.app.engine.store.vector_stores


_FILES: Final = "/v1/vector_stores/{id}/files"
_BATCHES: Final = "/v1/vector_stores/{id}/file_batches"
ROUTES: Final = [
    Route("POST", _FILES, attach),
    Route("GET", _FILES, list_files),
    Route("GET", f"{_FILES}/{{item}}", retrieve),
    Route("POST", f"{_FILES}/{{item}}", update),
    Route("DELETE", f"{_FILES}/{{item}}", detach),
    Route("GET", f"{_FILES}/{{item}}/content", content),
    Route("POST", _BATCHES, create_batch),
    Route("GET", f"{_BATCHES}/{{item}}", retrieve_batch),
    Route("POST", f"{_BATCHES}/{{item}}/cancel", cancel_batch),
    Route("GET", f"{_BATCHES}/{{item}}/files", list_batch),
]
