"""How items are listed: what a list adds to an item, and how it is cut into pages.

A page goes on behind the item that `after` names, in the order that was asked for; newest
first unless the caller asks otherwise.
"""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.families import is_call, is_output
from antiphon.protocol.includes import Hidden
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import without_state
from antiphon.protocol.pieces import PIECE, encode_long, text_size
from antiphon.server.app import Call
from antiphon.transport.aside import aside_if

__all__ = [
    "PageQuery",
    "as_listed",
    "cut_page",
    "no_such_item",
    "read_page_query",
    "write_json",
    "write_list",
]

_MAX_LIMIT: Final = 100
_DEFAULT_LIMIT: Final = 20
_MAX_DIGITS: Final = 9
_LEFT_OUT: Final[dict[str, Item]] = {
    "output_text": {"annotations": []},
    "input_image": {"detail": "auto"},
}


class PageQuery(msgspec.Struct, frozen=True):
    """Which part of a list is wanted."""

    after: str | None
    limit: int
    is_descending: bool
    include: frozenset[str] = frozenset()
    """What is shown of hosted items beside what always is."""


def read_page_query(
    call: Call, *, max_limit: int = _MAX_LIMIT, default_limit: int = _DEFAULT_LIMIT
) -> PageQuery:
    """Return what the query asks for. Raise InvalidRequest if that cannot be."""
    query = call.request.query
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc", code="invalid_value", param="order")
    limit = _limit(query.get("limit", str(default_limit)), max_limit)
    return PageQuery(query.get("after"), limit, order == "desc", read_include(call))


def read_include(call: Call) -> frozenset[str]:
    """Return the values of `include` in the query, however they are listed there."""
    query = call.request.query
    given = [*query.getall("include", []), *query.getall("include[]", [])]
    return frozenset(name for value in given for name in value.split(","))


async def cut_page(items: list[Item], query: PageQuery) -> bytes:
    """Return the page of all these items as JSON. Raise InvalidRequest if `after` is not there."""
    if query.is_descending:
        items = items[::-1]
    start = 0
    if query.after is not None:
        ids = [item["id"] for item in items]
        if query.after not in ids:
            raise no_such_item(query.after)
        start = ids.index(query.after) + 1
    end = start + query.limit
    return await write_list(items[start:end], query.include, has_more=end < len(items))


def no_such_item(after: str) -> InvalidRequest:
    """Return the error for a page behind an item that is not in the list."""
    return InvalidRequest(
        f"after names the item '{after}', which is not in this list",
        code="invalid_value",
        param="after",
    )


async def write_list(
    items: list[Item], include: frozenset[str] = frozenset(), *, has_more: bool
) -> bytes:
    """Return the list of these items, as listed, as JSON."""
    hidden = Hidden(include)
    page = {
        "object": "list",
        "data": [as_listed(hidden.item(item)) for item in items],
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }
    return await write_json(page)


async def write_json(value: object) -> bytes:
    """Return a value of JSON as bytes; a long one is encoded beside the event loop."""
    return await aside_if(text_size(value) > PIECE, encode_long, value)


def as_listed(item: Item) -> Item:
    """Return an item as lists show it: with the fields that a caller may leave out.

    What is stored for the provider alone is not shown.
    """
    kind, item = item["type"], without_state(item)
    if is_call(item) or is_output(item):
        return {"status": "completed"} | item
    if kind != "message":
        return item
    content = item["content"]
    if isinstance(content, str):
        is_answer = item["role"] == "assistant"
        content = [{"type": "output_text" if is_answer else "input_text", "text": content}]
    parts = [_LEFT_OUT.get(part["type"], {}) | part for part in content]
    return {"status": "completed"} | item | {"content": parts}


def _limit(text: str, most: int) -> int:
    if not text.isdecimal() or len(text) > _MAX_DIGITS or not 1 <= int(text) <= most:
        raise InvalidRequest(f"limit must be 1 to {most}", code="invalid_value", param="limit")
    return int(text)
