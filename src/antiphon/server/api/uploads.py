"""/v1/uploads: a large file in parts.

An upload is pending until it is completed, cancelled, or an hour old. Parts are put together in
the order that the caller states when it is complete; those that are not named are dropped. Only
one request can end an upload, so a key (Idempotency-Key) is only noted: the same request gets the
part or the file that is there already.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from antiphon.protocol.errors import InvalidRequest, invalid
from antiphon.protocol.files import (
    CompleteUpload,
    CreateUpload,
    PartObject,
    UploadObject,
    no_upload,
    read_purpose,
)
from antiphon.server.api.files import as_object as file_object
from antiphon.server.api.files import expiry_of
from antiphon.server.api.forms import read_filename, receive_file
from antiphon.server.api.objects import (
    answer_object,
    read_object,
    read_once,
    replayed,
    same_request,
)
from antiphon.server.api.request_keys import KEY_SECONDS, read_key
from antiphon.server.app import Call, Route
from antiphon.server.ids import file_id
from antiphon.store.base import Blob, Claim, ClaimRequest, Files, StoredFile, Upload, UploadPart

__all__ = ["MAX_PART", "ROUTES"]

MAX_PART: Final = 64 * 1024 * 1024
_SECONDS: Final = 3600
_PIECE: Final = 1024 * 1024
_RESOURCE: Final = "uploads"


async def create(call: Call) -> web.StreamResponse:
    """Begin an upload."""
    once = await read_once(call, _RESOURCE)
    body = await read_object(call, CreateUpload)
    limits, engine = call.app.quota.limits, call.app.engine
    read_purpose(body.purpose)
    if body.bytes > limits.max_bytes:
        raise invalid("bytes", f"must be at most {limits.max_bytes}")
    now = engine.now()
    upload = Upload(
        id=engine.mint("upload"),
        filename=read_filename(body.filename, "filename"),
        purpose=body.purpose,
        mime_type=body.mime_type,
        size=body.bytes,
        created_at=now,
        expires_at=now + _SECONDS,
        file_expires_after=None if body.expires_after is None else body.expires_after.seconds,
    )
    earlier = await _files(call).begin_upload(call.owner, upload, once)
    if earlier is None:
        return answer_object(call, _as_object(upload))
    made = await _find(call, same_request(once, earlier))
    return replayed(answer_object(call, await _shown(call, made)))


async def add_part(call: Call) -> web.StreamResponse:
    """Store a part. Parts may arrive in any order, and at the same time."""
    key = read_key(call.request.headers)
    _check_pending(await _find(call, call.path_id))
    engine, files = call.app.engine, _files(call)
    size = call.request.content_length
    count = partial(files.used_bytes, call.owner)
    async with call.app.quota.room(call.owner, size, count) as room:
        form = await receive_file(
            call, "data", lambda: engine.store.blobs.create(call.owner), min(room, MAX_PART)
        )
        now = engine.now()
        part = UploadPart(id=engine.mint("part"), created_at=now, blob=form.blob)
        if not await files.add_part(call.owner, call.path_id, part, now):
            raise _not_pending(await _find(call, call.path_id))
    if key is not None:
        digest = hashlib.sha256(f"{call.path_id}\n".encode() + form.blob.sha256).digest()
        earlier = await _note(call, key, digest, part.id)
        if earlier is not None:
            return await _same_part(call, digest, earlier, part)
    return answer_object(call, _as_part(call, part))


async def complete(call: Call) -> web.StreamResponse:
    """Put the parts together and make the file."""
    once = await read_once(call, _RESOURCE)
    body = await read_object(call, CompleteUpload)
    upload = await _find(call, call.path_id)
    if once is not None:
        earlier = await _note(call, once.token.partition(":")[2], once.digest, upload.id)
        if earlier is not None:
            same_request(once, earlier)
            if upload.status == "completed":
                return replayed(answer_object(call, await _shown(call, upload)))
    _check_pending(upload)
    try:
        blob = await _join(call, upload, body)
    except InvalidRequest:
        # The parts are gone if another request has completed the upload meanwhile.
        done = await _find(call, upload.id)
        if once is None or done.status != "completed":
            raise
        return replayed(answer_object(call, await _shown(call, done)))
    now = call.app.engine.now()
    file = StoredFile(
        id=file_id(call.app.engine.mint),
        filename=upload.filename,
        purpose=upload.purpose,
        created_at=now,
        expires_at=expiry_of(upload.purpose, now, upload.file_expires_after),
        blob=blob,
    )
    made = await _files(call).complete_upload(call.owner, upload.id, file, now)
    if made is not None:
        return answer_object(call, await _shown(call, made))
    done = await _find(call, upload.id)
    if once is None or done.status != "completed":
        raise _not_pending(done)
    return replayed(answer_object(call, await _shown(call, done)))


async def cancel(call: Call) -> web.StreamResponse:
    """Give an upload up and remove its parts."""
    _check_pending(await _find(call, call.path_id))
    now = call.app.engine.now()
    cancelled = await _files(call).cancel_upload(call.owner, call.path_id, now)
    if cancelled is None:
        raise _not_pending(await _find(call, call.path_id))
    return answer_object(call, _as_object(cancelled))


async def _join(call: Call, upload: Upload, body: CompleteUpload) -> Blob:
    """Write the parts to one blob. Raise InvalidRequest if they are not what was announced."""
    parts = await _named_parts(call, upload, body.part_ids)
    size = sum(part.blob.size for part in parts)
    if size != upload.size:
        raise invalid("part_ids", f"have {size} bytes; the upload was announced with {upload.size}")
    md5 = hashlib.md5(usedforsecurity=False)
    call.reserve(2 * _PIECE)
    writer = await call.app.engine.store.blobs.create(call.owner)
    try:
        for part in parts:
            async for piece in _pieces(call, part.blob):
                await writer.write(piece)
                if body.md5 is not None:
                    await asyncio.to_thread(md5.update, piece)
        if body.md5 is not None and md5.hexdigest() != body.md5.lower():
            raise invalid("md5", "is not that of the content")
        return await writer.finish()
    except BaseException:
        await asyncio.shield(writer.abort())
        raise


async def _pieces(call: Call, blob: Blob) -> AsyncGenerator[bytes, None]:
    place = 0
    while place < blob.size:
        piece = await call.app.engine.store.blobs.read(call.owner, blob.id, place, _PIECE)
        if not piece:  # another request has ended the upload
            raise InvalidRequest("the parts of this upload are gone", code="invalid_state")
        place += len(piece)
        yield piece


async def _named_parts(call: Call, upload: Upload, ids: Sequence[str]) -> list[UploadPart]:
    parts = {part.id: part for part in await _files(call).parts(call.owner, upload.id)}
    for index, name in enumerate(ids):
        if name not in parts:
            raise invalid(f"part_ids[{index}]", "is not a part of this upload")
    if len(set(ids)) < len(ids):
        raise invalid("part_ids", "must not name a part twice")
    return [parts[name] for name in ids]


async def _same_part(
    call: Call, digest: bytes, earlier: Claim, part: UploadPart
) -> web.StreamResponse:
    """Answer with the part that the same request has stored, if it is still there."""
    same_request(ClaimRequest("", digest, 0, 0), earlier)
    parts = await _files(call).parts(call.owner, call.path_id)
    found = next((one for one in parts if one.id == earlier.response_id), None)
    if found is None:
        return answer_object(call, _as_part(call, part))
    return replayed(answer_object(call, _as_part(call, found)))


async def _note(call: Call, key: str, digest: bytes, made: str) -> Claim | None:
    """Note under its key what a request makes; return the claim of an earlier one."""
    claims, now = call.app.engine.store.claims, call.app.engine.now()
    token = f"{_RESOURCE}:{key}"
    earlier = await claims.take(call.owner, token, digest, made, now)
    if earlier is not None and earlier.created_at < now - KEY_SECONDS:
        await claims.note(call.owner, token, digest, made, now)
        return None
    return earlier


async def _find(call: Call, name: str) -> Upload:
    found = await _files(call).find_upload(call.owner, name, call.app.engine.now())
    if found is None:
        raise no_upload(name)
    return found


def _check_pending(upload: Upload) -> None:
    if upload.status != "pending":
        raise _not_pending(upload)


def _not_pending(upload: Upload) -> InvalidRequest:
    return InvalidRequest(f"the upload is {upload.status}", code="invalid_state")


def _files(call: Call) -> Files:
    return call.app.engine.store.files


async def _shown(call: Call, upload: Upload) -> UploadObject:
    """Return the upload with its file, if that exists."""
    if upload.file_id is None:
        return _as_object(upload)
    found = await _files(call).find(call.owner, [upload.file_id], call.app.engine.now())
    return _as_object(upload, found.get(upload.file_id))


def _as_object(upload: Upload, file: StoredFile | None = None) -> UploadObject:
    return UploadObject(
        id=upload.id,
        bytes=upload.size,
        created_at=upload.created_at,
        expires_at=upload.expires_at,
        filename=upload.filename,
        purpose=upload.purpose,
        status=upload.status,
        file=None if file is None else file_object(file),
    )


def _as_part(call: Call, part: UploadPart) -> PartObject:
    return PartObject(id=part.id, created_at=part.created_at, upload_id=call.path_id)


_ONE: Final = "/v1/uploads/{id}"
ROUTES: Final = [
    Route("POST", "/v1/uploads", create),
    Route("POST", f"{_ONE}/parts", add_part, takes_form=True),
    Route("POST", f"{_ONE}/complete", complete),
    Route("POST", f"{_ONE}/cancel", cancel),
]
