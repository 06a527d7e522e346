"""/v1/conversations: lists of items that outlive the turns which add to them.

A missing conversation and one of another owner get the same answer, to the byte. While a turn
writes to a conversation nothing else may: the store raises a 409. A reference to an item is
replaced by the item; one that is there already stays where it is.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import InvalidRequest, NotFound, no_conversation
from antiphon.protocol.includes import Hidden
from antiphon.protocol.items import Item, check_item, item_type, with_id
from antiphon.protocol.request import read_request
from antiphon.server.api.body import read_data, read_json
from antiphon.server.api.pages import (
    as_listed,
    no_such_item,
    read_include,
    read_page_query,
    write_json,
    write_list,
)
from antiphon.server.api.request_keys import REPLAYED, check_same, read_claim
from antiphon.server.app import Call, Route
from antiphon.store.base import Claim, ClaimRequest, Conversation, Conversations
from antiphon.store.encoding import read_names

__all__ = ["ROUTES", "show_conversation"]

_MAX_ITEMS: Final = 20
"""Items that may be added at a time."""


async def create(call: Call) -> web.StreamResponse:
    """Begin a conversation, with a few items if the caller has some."""
    once = await _read_claim(call)
    earlier = await _find_earlier(call, once)
    made = await _kept(call).get(call.owner, earlier.response_id) if earlier else None
    if made is not None:
        return _replayed(show_conversation(call, made))
    body = await _read_object(call) if await read_data(call) else {}
    given = body.get("items")
    items = await _read_items(call, [] if given is None else given)
    engine = call.app.engine
    conversation = Conversation(engine.mint("conv"), engine.now(), _read_metadata(body))
    earlier = await _kept(call).create(call.owner, conversation, items, once)
    if earlier is None:
        return show_conversation(call, conversation)
    check_same(once, earlier)  # the same request was a moment earlier
    return _replayed(
        show_conversation(call, await _kept(call).get(call.owner, earlier.response_id))
    )


async def retrieve(call: Call) -> web.StreamResponse:
    """Return a conversation without its items."""
    return show_conversation(call, await _kept(call).get(call.owner, call.path_id))


async def update(call: Call) -> web.StreamResponse:
    """Replace the metadata of a conversation."""
    body = await _read_object(call)
    if "metadata" not in body:
        raise _missing("metadata")
    metadata = _read_metadata(body)
    return show_conversation(call, await _kept(call).update(call.owner, call.path_id, metadata))


async def delete(call: Call) -> web.StreamResponse:
    """Remove a conversation and its items for good."""
    if not await _kept(call).delete(call.owner, call.path_id):
        raise no_conversation(call.path_id)
    body = {"id": call.path_id, "object": "conversation.deleted", "deleted": True}
    return call.json(msgspec.json.encode(body))


async def add_items(call: Call) -> web.StreamResponse:
    """Add items at the end; return those that were added."""
    once = await _read_claim(call)
    earlier = await _find_earlier(call, once)
    if earlier is not None:
        return await _added_before(call, earlier)
    body = await _read_object(call)
    if body.get("items") is None:
        raise _missing("items")
    items = await _read_items(call, body["items"])
    try:
        added = await _kept(call).add(call.owner, call.path_id, items, once)
    except ValueError:
        raise InvalidRequest(
            "an item with the id of one of these items is in the conversation already; "
            "leave the id out to add a copy",
            code="duplicate_item",
            param="items",
        ) from None
    if isinstance(added, Claim):
        check_same(once, added)  # the same request was a moment earlier
        return await _added_before(call, added)
    if not added:
        raise no_conversation(call.path_id)
    return call.json(await write_list(items, read_include(call), has_more=False))


async def list_items(call: Call) -> web.StreamResponse:
    """Return a page of the items."""
    query = read_page_query(call)
    try:
        page = await _kept(call).page(
            call.owner,
            call.path_id,
            after=query.after,
            limit=query.limit,
            is_descending=query.is_descending,
            admit=call.reserve_read(),
        )
    except KeyError:
        raise no_such_item(query.after or "") from None
    if page is None:
        raise no_conversation(call.path_id)
    return call.json(await write_list(page.items, read_include(call), has_more=page.has_more))


async def retrieve_item(call: Call) -> web.StreamResponse:
    """Return one item."""
    item = await _kept(call).find(call.owner, call.path_id, call.item_id)
    if item is None:
        raise await _no_item(call)
    shown = Hidden(read_include(call)).item(item)
    return call.json(await write_json(as_listed(shown)))


async def delete_item(call: Call) -> web.StreamResponse:
    """Remove one item for good; return the conversation it was in."""
    if not await _kept(call).remove(call.owner, call.path_id, call.item_id):
        raise await _no_item(call)
    return await retrieve(call)


def _kept(call: Call) -> Conversations:
    return call.app.engine.store.conversations


async def _read_claim(call: Call) -> ClaimRequest | None:
    """Return what to claim for this request, if its caller has named it."""
    path = call.request.rel_url.raw_path
    return await read_claim(
        call.request.headers, path, await read_data(call), call.app.engine.now()
    )


async def _find_earlier(call: Call, once: ClaimRequest | None) -> Claim | None:
    """Return the claim of the same request, if it was made before. Raise Mismatch."""
    if once is None:
        return None
    found = await call.app.engine.store.claims.find(call.owner, once.token)
    if found is None or found.created_at < once.since:
        return None
    check_same(once, found)
    return found


async def _added_before(call: Call, claim: Claim) -> web.Response:
    """Answer with those items that were added under this key and are still there."""
    if await _kept(call).get(call.owner, call.path_id) is None:
        raise no_conversation(call.path_id)
    names = read_names(claim.response_id)
    found = [await _kept(call).find(call.owner, call.path_id, name) for name in names]
    items = [item for item in found if item is not None]
    return _replayed(call.json(await write_list(items, read_include(call), has_more=False)))


def _replayed(answer: web.Response) -> web.Response:
    answer.headers[REPLAYED] = "1"
    return answer


def show_conversation(call: Call, conversation: Conversation | None) -> web.Response:
    """Return a conversation as it is answered. Raise NotFound if there is none."""
    if conversation is None:
        raise no_conversation(call.path_id)
    body = {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": conversation.metadata,
    }
    return call.json(msgspec.json.encode(body))


async def _read_object(call: Call) -> dict[str, Any]:
    body = await read_json(call)
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_type")
    return body


def _read_metadata(body: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata, which has the limits of a response's."""
    return read_request({"metadata": body.get("metadata")}).metadata or {}


async def _read_items(call: Call, given: object) -> list[Item]:
    """Return the items to add, checked, each with an id; references are looked up."""
    if not isinstance(given, list):
        raise InvalidRequest("items must be a list", code="invalid_type", param="items")
    if len(given) > _MAX_ITEMS:
        raise InvalidRequest(
            f"items must be at most {_MAX_ITEMS} at a time; there are {len(given)}",
            code="invalid_value",
            param="items",
        )
    for index, item in enumerate(given):
        check_item(item, f"items[{index}]")
    items: dict[str, Item] = {}
    for index, item in enumerate(given):
        if item_type(item) == "item_reference":
            if item["id"] not in items:
                items |= await _look_up(call, item["id"], f"items[{index}].id")
            continue
        kept = with_id(item, call.app.engine.mint)
        if kept["id"] in items:
            raise InvalidRequest(
                f"items[{index}] has the id of an item before it",
                code="duplicate_item",
                param=f"items[{index}].id",
            )
        items[kept["id"]] = kept
    return list(items.values())


async def _look_up(call: Call, item_id: str, param: str) -> dict[str, Item]:
    """Return the item that is referred to by its id: none if the conversation has it."""
    if call.path_id and await _kept(call).find(call.owner, call.path_id, item_id):
        return {}
    item = await call.app.engine.store.find_item(call.owner, item_id)
    if item is None:
        raise NotFound(f"Item with id '{item_id}' not found.", code="item_not_found", param=param)
    return {item_id: item}


def _missing(field: str) -> InvalidRequest:
    return InvalidRequest(f"{field} is missing", code="missing_required_parameter", param=field)


async def _no_item(call: Call) -> NotFound:
    """Return the error for an item that is not there, or whose conversation is not."""
    if await _kept(call).get(call.owner, call.path_id) is None:
        return no_conversation(call.path_id)
    return NotFound(
        f"Item with id '{call.item_id}' not found in conversation '{call.path_id}'.",
        code="item_not_found",
    )


_ONE: Final = "/v1/conversations/{id}"
_ITEMS: Final = f"{_ONE}/items"
ROUTES: Final = [
    Route("POST", "/v1/conversations", create),
    Route("GET", _ONE, retrieve),
    Route("POST", _ONE, update),
    Route("DELETE", _ONE, delete),
    Route("POST", _ITEMS, add_items),
    Route("GET", _ITEMS, list_items),
    Route("GET", f"{_ITEMS}/{{item}}", retrieve_item),
    Route("DELETE", f"{_ITEMS}/{{item}}", delete_item),
]
