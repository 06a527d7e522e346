"""/v1/containers: the places where programs of models run, and the files in them.

A container that is missing and one of another owner get the same answer, to the byte. Removing one
ends what runs in it here and removes its files for good. A file that is stored under the path of
another one takes its place and keeps its id, so that sending it again changes nothing.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.containers import (
    AddContainerFile,
    ContainerExpiry,
    ContainerFileObject,
    ContainerObject,
    CreateContainer,
)
from antiphon.protocol.files import DeletedObject
from antiphon.server.api.files import send_blob
from antiphon.server.api.forms import receive_file
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
from antiphon.server.app import Call, Route
from antiphon.store.base import Blob, Claim, Container, ContainerFile
from antiphon.tools.containers.request import read_wish
from antiphon.tools.containers.service import no_container, no_file

__all__ = ["ROUTES"]

_FORM_BYTES: Final = 4096
_PAGE: Final = 100


async def create(call: Call) -> web.StreamResponse:
    """Make a container, with copies of uploaded files."""
    once = await read_once(call, "containers")
    store, service = call.app.engine.store, call.app.containers
    if once is not None and (earlier := await store.containers.claimed(call.owner, once)):
        return await _made_before(call, same_request(once, earlier))
    body = await read_object(call, CreateContainer)
    given = msgspec.to_builtins(body)
    wish = await read_wish(service, call.owner, given, "body")
    minutes = body.expires_after.minutes * 60 if body.expires_after else None
    wish = msgspec.structs.replace(wish, name=body.name, idle_seconds=minutes)
    async with _room(call, sum(file.size for file in wish.files)):
        made = await service.create(call.owner, wish, once)
    if isinstance(made, Claim):
        return await _made_before(call, same_request(once, made))
    return answer_object(call, _as_object(call, made))


async def _made_before(call: Call, container_id: str) -> web.StreamResponse:
    return replayed(answer_object(call, _as_object(call, await _find(call, container_id))))


async def list_containers(call: Call) -> web.StreamResponse:
    """Return a page of containers, of one name if the caller asks for it."""
    query, name = read_page_query(call), call.request.query.get("name")
    found: list[Container] = []
    after = query.after
    while len(found) <= query.limit:
        try:
            page = await call.app.engine.store.containers.page(
                call.owner, after=after, limit=_PAGE, is_descending=query.is_descending
            )
        except KeyError:
            raise wrong_cursor("after", after) from None
        found += [one for one in page if name is None or one.name == name]
        if len(page) < _PAGE:
            break
        after = page[-1].id
    shown = [_as_object(call, one) for one in found[: query.limit + 1]]
    return answer_page(call, shown, query.limit)


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a container, also one that has expired."""
    return answer_object(call, _as_object(call, await _find(call, call.path_id)))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a container and its files for good, and end what runs in it."""
    if not await call.app.containers.remove(call.owner, call.path_id):
        raise no_container(call.path_id)
    return answer_object(call, DeletedObject(id=call.path_id, object="container.deleted"))


async def add_file(call: Call) -> web.StreamResponse:
    """Store a file: one that is sent, or a copy of an uploaded one."""
    service, store = call.app.containers, call.app.engine.store
    await service.require(call.owner, call.path_id)
    if call.request.content_type == "multipart/form-data":
        length = call.request.content_length
        size = None if length is None else max(0, length - _FORM_BYTES)
        async with _room(call, size) as room:
            most = min(room, service.settings.file_bytes)
            form = await receive_file(call, "file", lambda: store.blobs.create(call.owner), most)
            return await _stored(call, form.filename, form.blob)
    body = await read_object(call, AddContainerFile)
    (file,) = await service.find_files(call.owner, [body.file_id], "file_id")
    async with _room(call, file.size):
        blob = await service.copy_blob(call.owner, file.blob)
        return await _stored(call, file.filename, blob)


def _room(call: Call, size: int | None) -> AbstractAsyncContextManager[int]:
    """Hold room for a file of the caller's."""
    used = call.app.engine.store.files.used_bytes
    return call.app.quota.room(call.owner, size, lambda: used(call.owner))


async def _stored(call: Call, name: str, blob: Blob) -> web.StreamResponse:
    file = await call.app.containers.add_file(call.owner, call.path_id, name, blob)
    if file is None:
        raise no_container(call.path_id)
    return answer_object(call, _as_file(call.path_id, file))


async def list_files(call: Call) -> web.StreamResponse:
    """Return a page of the files of a container."""
    query = read_page_query(call)
    await call.app.containers.require(call.owner, call.path_id)
    try:
        found = await call.app.engine.store.containers.files(
            call.owner,
            call.path_id,
            after=query.after,
            limit=query.limit + 1,
            is_descending=query.is_descending,
        )
    except KeyError:
        raise wrong_cursor("after", query.after) from None
    return answer_page(call, [_as_file(call.path_id, file) for file in found], query.limit)


async def retrieve_file(call: Call) -> web.StreamResponse:
    """Return what is known of a file."""
    return answer_object(call, _as_file(call.path_id, await _find_file(call)))


async def delete_file(call: Call) -> web.StreamResponse:
    """Remove a file for good. A program that runs loses it at its next call."""
    file = await _find_file(call)
    store = call.app.engine.store
    if not await store.containers.remove_file(call.owner, call.path_id, file.id):
        raise no_file(call.item_id)
    return answer_object(call, DeletedObject(id=file.id, object="container.file.deleted"))


async def content(call: Call) -> web.StreamResponse:
    """Send the content of a file, or a range of it."""
    file = await _find_file(call)
    return await send_blob(call, file.blob.id, file.blob.size, file.path.rpartition("/")[2])


async def _find(call: Call, container_id: str) -> Container:
    found = await call.app.engine.store.containers.find(call.owner, container_id)
    if found is None:
        raise no_container(container_id)
    return found


async def _find_file(call: Call) -> ContainerFile:
    """Return the file of the path. Raise NotFound if it, or its container, is not there."""
    await call.app.containers.require(call.owner, call.path_id)
    store = call.app.engine.store
    file = await store.containers.find_file(call.owner, call.path_id, call.item_id)
    if file is None:
        raise no_file(call.item_id)
    return file


def _as_object(call: Call, container: Container) -> ContainerObject:
    is_over = container.is_expired(call.app.engine.now())
    return ContainerObject(
        id=container.id,
        created_at=container.created_at,
        status="expired" if is_over else "running",
        name=container.name,
        last_active_at=container.last_active_at,
        expires_after=ContainerExpiry(minutes=max(1, container.idle_seconds // 60)),
        memory_limit=container.settings.get("memory_limit"),
    )


def _as_file(container_id: str, file: ContainerFile) -> ContainerFileObject:
    return ContainerFileObject(
        id=file.id,
        created_at=file.created_at,
        container_id=container_id,
        bytes=file.blob.size,
        path=file.path,
        source=file.source,
    )


_ONE: Final = "/v1/containers/{id}"
_FILES: Final = f"{_ONE}/files"
ROUTES: Final = [
    Route("POST", "/v1/containers", create),
    Route("GET", "/v1/containers", list_containers),
    Route("GET", _ONE, retrieve),
    Route("DELETE", _ONE, delete),
    Route("POST", _FILES, add_file, takes_form=True),
    Route("GET", _FILES, list_files),
    Route("GET", f"{_FILES}/{{item}}", retrieve_file),
    Route("DELETE", f"{_FILES}/{{item}}", delete_file),
    Route("GET", f"{_FILES}/{{item}}/content", content),
]
