"""Export of a conversation, or of a chain of responses, as lines of JSON; and import of one.

    {"type": "antiphon.conversation", "version": 1, "id": "conv_…", "metadata": {}, "items": 2}
    {"type": "message", "id": "msg_…", …}
    {"type": "message", "id": "msg_…", …}
    {"type": "antiphon.end", "items": 2, "sha256": "…"}

The last line has the hash of the lines of the items, so an export that was cut or changed is
noticed. An import makes a new conversation with the same items under the same ids, or is refused
whole. What only a provider can read is not exported.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import InvalidRequest, no_conversation, no_response
from antiphon.protocol.items import Item, check_item, item_type
from antiphon.protocol.native_state import NATIVE, without_state
from antiphon.protocol.request import read_request
from antiphon.protocol.rounds import ImportConversation
from antiphon.server.api.body import read_data
from antiphon.server.api.conversations import show_conversation
from antiphon.server.api.objects import read_object, read_once, replayed, same_request
from antiphon.server.app import Call, Route
from antiphon.store.base import Conversation
from antiphon.transport.aside import aside

__all__ = ["ROUTES", "read_export", "write_export"]

_HEAD: Final = "antiphon.conversation"
_END: Final = "antiphon.end"
_VERSION: Final = 1
_LINES: Final = "application/x-ndjson"
_encode = msgspec.json.Encoder().encode


async def export_conversation(call: Call) -> web.StreamResponse:
    """Return all items of a conversation."""
    kept = call.app.engine.store.conversations
    found = await kept.get(call.owner, call.path_id)
    items = await kept.items(call.owner, call.path_id, admit=call.reserve_read())
    if found is None or items is None:
        raise no_conversation(call.path_id)
    return await _answer(call, found.id, found.metadata, items)


async def export_chain(call: Call) -> web.StreamResponse:
    """Return all items of the chain of responses that ends in this one."""
    store = call.app.engine.store
    found = await store.history(call.owner, call.path_id, admit=call.reserve_read())
    if found is None:
        raise no_response(call.path_id)
    if found.missing is not None:
        raise InvalidRequest(
            f"the chain is not whole: response '{found.missing}' was removed", code="chain_broken"
        )
    return await _answer(call, call.path_id, {}, found.items)


async def import_conversation(call: Call) -> web.StreamResponse:
    """Make a new conversation of an export. Refuse it whole if anything is wrong with it."""
    data = await read_data(call)
    if call.request.content_type != _LINES:
        data = (await read_object(call, ImportConversation)).jsonl.encode()
    metadata, items = await aside(read_export, data, call.app.limits.context_items)
    engine, once = call.app.engine, await read_once(call, "imports")
    conversation = Conversation(engine.mint("conv"), engine.now(), metadata)
    kept = engine.store.conversations
    earlier = await kept.create(call.owner, conversation, items, once)
    if earlier is None:
        return show_conversation(call, conversation)
    made = await kept.get(call.owner, same_request(once, earlier))
    return replayed(show_conversation(call, made))


async def _answer(
    call: Call, name: str, metadata: dict[str, Any], items: list[Item]
) -> web.Response:
    data = await aside(write_export, name, metadata, items)
    answer = web.Response(body=data, content_type=_LINES)
    answer.headers["Content-Disposition"] = 'attachment; filename="conversation.jsonl"'
    return answer


def write_export(name: str, metadata: dict[str, Any], items: list[Item]) -> bytes:
    """Return the lines of an export. Two items of one id are one item: the last."""
    known = {item["id"]: without_state(item) for item in items}
    lines = [_encode(item) + b"\n" for item in known.values()]
    head = {"type": _HEAD, "version": _VERSION, "id": name, "metadata": metadata}
    digest = hashlib.sha256(b"".join(lines)).hexdigest()
    end = {"type": _END, "items": len(lines), "sha256": digest}
    return b"".join([_encode(head | {"items": len(lines)}), b"\n", *lines, _encode(end), b"\n"])


def read_export(data: bytes, most: int) -> tuple[dict[str, Any], list[Item]]:
    """Return the metadata and the items of an export. Raise InvalidRequest if it is damaged."""
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    if len(lines) < 2:
        raise _damaged(1, "it has no items and no end; was it cut?")
    if len(lines) - 2 > most:
        raise _damaged(1, f"it has more than {most} items")
    head, end = _object(lines[0], 1), _object(lines[-1], len(lines))
    if head.get("type") != _HEAD or head.get("version") != _VERSION:
        raise _damaged(1, f"it must begin with a line of the type {_HEAD}, version {_VERSION}")
    if end.get("type") != _END:
        raise _damaged(len(lines), "the end is missing; was it cut?")
    body = lines[1:-1]
    digest = hashlib.sha256(b"".join(line + b"\n" for line in body)).hexdigest()
    if end.get("items") != len(body) or head.get("items") != len(body):
        raise _damaged(len(lines), f"it has {len(body)} items, and states another number")
    if end.get("sha256") != digest:
        raise _damaged(len(lines), "its items are not those that were exported")
    metadata = read_request({"metadata": head.get("metadata")}).metadata or {}
    return metadata, _read_items(body)


def _read_items(lines: list[bytes]) -> list[Item]:
    items: dict[str, Item] = {}
    for number, line in enumerate(lines, 2):
        item = _object(line, number)
        check_item(item, f"line {number}")
        name = item.get("id")
        if not isinstance(name, str) or not name:
            raise _damaged(number, "an item has no id")
        if item_type(item) == "item_reference" or NATIVE in item:
            raise _damaged(number, "an item of this kind is never exported")
        if name in items:
            raise _damaged(number, f"the id '{name}' is there twice")
        items[name] = item
    return list(items.values())


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _damaged(number, "is no JSON") from None
    if not isinstance(found, dict):
        raise _damaged(number, "is no object")
    return found


def _damaged(number: int, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"this is no whole export; nothing was imported. Line {number}: {why}",
        code="invalid_import",
        param="jsonl",
    )


ROUTES: Final = [
    Route("GET", "/v1/conversations/{id}/antiphon/export", export_conversation),
    Route("GET", "/v1/responses/{id}/antiphon/export", export_chain),
    Route("POST", "/v1/conversations/antiphon/import", import_conversation, takes_form=True),
]
