"""/v1/files: what callers upload, to be read by models, tools and searches.

The content goes to the store as it arrives and is sent from there, in pieces. The name of a file
is data: no path is ever made of it, and its content is never shown by a browser. A missing file
and one of another owner get the same answer, to the byte.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import quote

from aiohttp import web

from antiphon.protocol.errors import CallerError
from antiphon.protocol.files import (
    DeletedObject,
    FileObject,
    no_file,
    read_expiry,
    read_purpose,
)
from antiphon.server.api.forms import FileForm, receive_file
from antiphon.server.api.objects import (
    answer_object,
    answer_page,
    replayed,
    same_request,
    wrong_cursor,
)
from antiphon.server.api.pages import read_page_query
from antiphon.server.api.request_keys import KEY_SECONDS, read_key
from antiphon.server.app import Call, Route
from antiphon.server.ids import file_id
from antiphon.store.base import ClaimRequest, StoredFile

__all__ = ["ROUTES", "as_object", "expiry_of", "send_blob"]

_MAX_LIMIT: Final = 10_000
_PIECE: Final = 256 * 1024
_BATCH_SECONDS: Final = 2_592_000
_ANCHOR: Final = "expires_after[anchor]"
_SECONDS: Final = "expires_after[seconds]"
_FIELDS: Final = frozenset({"purpose", _ANCHOR, _SECONDS})
_FORM_BYTES: Final = 4096
"""About what a form takes beside its file."""


class RangeNotSatisfiable(CallerError):
    """The file has no such bytes."""

    status = 416
    code = "range_not_satisfiable"


async def create(call: Call) -> web.StreamResponse:
    """Store a file. With an Idempotency-Key, the same form is stored once."""
    key = read_key(call.request.headers)
    store, engine = call.app.engine.store, call.app.engine
    length = call.request.content_length
    size = None if length is None else max(0, length - _FORM_BYTES)
    async with call.app.quota.room(call.owner, size, partial(_used, call, key)) as largest:
        form = await receive_file(
            call, "file", lambda: store.blobs.create(call.owner), largest, _FIELDS, _read_fields
        )
        now = engine.now()
        file = _make_file(form, file_id(engine.mint), now)
        once = None if key is None else _claim(key, form, now)
        earlier = await store.files.add(call.owner, file, once)
    if earlier is None:
        return answer_object(call, as_object(file))
    made = await _find(call, same_request(once, earlier))
    return replayed(answer_object(call, as_object(made)))


async def list_files(call: Call) -> web.StreamResponse:
    """Return a page of files."""
    query = read_page_query(call, max_limit=_MAX_LIMIT, default_limit=_MAX_LIMIT)
    try:
        found = await call.app.engine.store.files.page(
            call.owner,
            after=query.after,
            limit=query.limit + 1,
            is_descending=query.is_descending,
            purpose=call.request.query.get("purpose"),
            now=call.app.engine.now(),
        )
    except KeyError:
        raise wrong_cursor("after", query.after) from None
    return answer_page(call, [as_object(file) for file in found], query.limit)


async def retrieve(call: Call) -> web.StreamResponse:
    """Return what is known of a file."""
    return answer_object(call, as_object(await _find(call, call.path_id)))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a file for good, also from vector stores."""
    await _find(call, call.path_id)
    if not await call.app.engine.store.files.remove(call.owner, call.path_id):
        raise no_file(call.path_id)
    return answer_object(call, DeletedObject(id=call.path_id, object="file"))


async def content(call: Call) -> web.StreamResponse:
    """Send the content of a file, or a range of it."""
    file = await _find(call, call.path_id)
    return await send_blob(call, file.blob.id, file.size, file.filename)


async def send_blob(call: Call, blob: str, size: int, filename: str) -> web.StreamResponse:
    """Send a blob as a download, in pieces."""
    start, end = _read_range(call, size)
    answer = web.StreamResponse(status=206 if end - start < size else 200)
    answer.content_type = "application/octet-stream"
    answer.content_length = end - start
    answer.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(filename)}"
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Accept-Ranges"] = "bytes"
    if answer.status == 206:
        answer.headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    call.reserve(2 * _PIECE)
    call.sign(answer)
    await answer.prepare(call.request)
    with call.app.reading(call):
        while start < end:
            piece = await call.app.engine.store.blobs.read(
                call.owner, blob, start, min(_PIECE, end - start)
            )
            if not piece:  # it was deleted: what is announced cannot be sent
                raise ConnectionError
            await _write(call, answer, piece)
            start += len(piece)
        await answer.write_eof()
    return answer


async def _write(call: Call, answer: web.StreamResponse, piece: bytes) -> None:
    """Send a piece to a reader that reads."""
    try:
        async with asyncio.timeout(call.app.limits.write_stall_seconds):
            await answer.write(piece)
    except TimeoutError:
        raise ConnectionError from None


def _read_range(call: Call, size: int) -> tuple[int, int]:
    """Return which bytes are asked for: from, and up to before."""
    if "Range" not in call.request.headers:
        return 0, size
    try:
        wish = call.request.http_range
    except ValueError:
        return 0, size  # RFC 9110: what cannot be read is ignored
    start, end, _ = wish.indices(size)
    if start >= end:
        raise RangeNotSatisfiable(f"the file has {size} bytes", param="Range")
    return start, end


def as_object(file: StoredFile) -> FileObject:
    """Return a file as answers show it."""
    return FileObject(
        id=file.id,
        bytes=file.size,
        created_at=file.created_at,
        expires_at=file.expires_at,
        filename=file.filename,
        purpose=file.purpose,
    )


def expiry_of(purpose: str, now: int, seconds: int | None) -> int | None:
    """Return when a file that is made now expires."""
    if seconds is None and purpose == "batch":
        seconds = _BATCH_SECONDS
    return None if seconds is None else now + seconds


def _read_fields(fields: Mapping[str, str]) -> tuple[str, int | None]:
    """Return what the file is for, and after how many seconds it expires."""
    expiry = read_expiry(fields.get(_ANCHOR), fields.get(_SECONDS))
    return read_purpose(fields.get("purpose")), None if expiry is None else expiry.seconds


def _make_file(form: FileForm, new_id: str, now: int) -> StoredFile:
    purpose, seconds = _read_fields(form.fields)
    return StoredFile(
        id=new_id,
        filename=form.filename,
        purpose=purpose,
        created_at=now,
        expires_at=expiry_of(purpose, now, seconds),
        blob=form.blob,
    )


def _claim(key: str, form: FileForm, now: int) -> ClaimRequest:
    """Return what to claim. The digest is that of the content, however the form was written."""
    digest = hashlib.sha256(b"POST /v1/files\n" + form.blob.sha256)
    for text in (form.filename, *(f"{name}={form.fields.get(name)}" for name in sorted(_FIELDS))):
        digest.update(f"\n{len(text)}:{text}".encode())
    return ClaimRequest(f"files:{key}", digest.digest(), now, now - KEY_SECONDS)


async def _used(call: Call, key: str | None) -> int:
    """Return what the owner has stored; nothing for a request that was made before."""
    store, now = call.app.engine.store, call.app.engine.now()
    if key is not None:
        wish = ClaimRequest(f"files:{key}", b"", now, now - KEY_SECONDS)
        if await store.files.claimed(call.owner, wish) is not None:
            return 0
    return await store.files.used_bytes(call.owner)


async def _find(call: Call, name: str) -> StoredFile:
    found = await call.app.engine.store.files.find(call.owner, [name], call.app.engine.now())
    if name not in found:
        raise no_file(name)
    return found[name]


_ONE: Final = "/v1/files/{id}"
ROUTES: Final = [
    Route("POST", "/v1/files", create, takes_form=True),
    Route("GET", "/v1/files", list_files),
    Route("GET", _ONE, retrieve),
    Route("DELETE", _ONE, delete),
    Route("GET", f"{_ONE}/content", content),
]
