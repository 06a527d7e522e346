"""The answers of a server other than turns.

Fields we do not know are kept in `fields`: a list of models differs between servers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec

from antiphon.client.errors import InvalidAnswer
from antiphon.protocol.codec import decode_json, decode_response
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response, Usage

__all__ = [
    "Compaction",
    "Conversation",
    "Deleted",
    "InputTokens",
    "ItemPage",
    "Model",
    "iterate_pages",
    "read_compaction",
    "read_conversation",
    "read_deleted",
    "read_input_tokens",
    "read_models",
    "read_object",
    "read_page",
    "read_response",
]


class Deleted(msgspec.Struct, frozen=True):
    """The result of a deletion."""

    id: str
    deleted: bool


class ItemPage(msgspec.Struct, frozen=True):
    """A page of items. `last_id` is where the next one begins, if `has_more`."""

    items: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Model(msgspec.Struct, frozen=True):
    """A model that the server offers; `fields` has everything the server sends about it."""

    id: str
    owned_by: str
    created: int
    fields: dict[str, Any]


class Conversation(msgspec.Struct, frozen=True):
    """A conversation that the server keeps, without its items."""

    id: str
    created_at: int
    metadata: dict[str, str]
    fields: dict[str, Any]


class InputTokens(msgspec.Struct, frozen=True):
    """How many tokens a request would send; `is_estimate` if the server could not count them."""

    input_tokens: int
    is_estimate: bool


class Compaction(msgspec.Struct, frozen=True):
    """A context made short: `items` take its place as the next input."""

    id: str
    items: list[Item]
    usage: Usage | None
    is_estimate: bool
    fields: dict[str, Any]


def read_deleted(body: bytes, name: str) -> Deleted:
    """Return the server's answer to a deletion; an empty answer means that it is done."""
    fields = read_object(body) if body.strip() else {}
    return Deleted(str(fields.get("id") or name), fields.get("deleted") is not False)


def read_conversation(body: bytes) -> Conversation:
    """Return a conversation. Raise InvalidAnswer for anything else."""
    fields = read_object(body)
    name, created, metadata = (fields.get(key) for key in ("id", "created_at", "metadata"))
    if not isinstance(name, str):
        raise InvalidAnswer("the server's answer is no conversation: it has no id")
    return Conversation(
        id=name,
        created_at=created if isinstance(created, int) else 0,
        metadata=metadata if isinstance(metadata, dict) else {},
        fields=fields,
    )


def read_input_tokens(body: bytes) -> InputTokens:
    """Return a count of tokens. Raise InvalidAnswer for anything else."""
    fields = read_object(body)
    count = fields.get("input_tokens")
    if not isinstance(count, int):
        raise InvalidAnswer("the server's answer has no number of input_tokens")
    return InputTokens(count, _is_estimate(fields))


def read_compaction(body: bytes) -> Compaction:
    """Return a compaction. Raise InvalidAnswer for anything else."""
    fields = read_object(body)
    try:
        usage = msgspec.convert(fields.get("usage"), Usage | None)
    except msgspec.ValidationError as error:
        raise InvalidAnswer(f"the server's usage cannot be read: {error}") from None
    return Compaction(
        id=str(fields.get("id") or ""),
        items=[item for item in _list(fields, "output") if isinstance(item, dict)],
        usage=usage,
        is_estimate=_is_estimate(fields),
        fields=fields,
    )


def read_response(body: bytes) -> Response:
    """Return a stored response. Raise InvalidAnswer for anything else."""
    try:
        return decode_response(body)
    except BrokenStream as error:
        raise InvalidAnswer(f"the server's answer is no response: {error.message}") from None


async def iterate_pages(
    page_after: Callable[[str | None], Awaitable[ItemPage]],
) -> AsyncGenerator[Item, None]:
    """Yield the items of all pages, each asked for when the one before it is used up."""
    after: str | None = None
    while True:
        page = await page_after(after)
        for item in page.items:
            yield item
        last = page.last_id or (page.items[-1].get("id") if page.items else None)
        if not page.has_more or not last or last == after:
            return
        after = last


def read_page(body: bytes) -> ItemPage:
    """Return a page of items. Raise InvalidAnswer for anything else."""
    fields = read_object(body)
    items = [item for item in _list(fields, "data") if isinstance(item, dict)]
    first, last = fields.get("first_id"), fields.get("last_id")
    return ItemPage(
        items=items,
        first_id=first if isinstance(first, str) else None,
        last_id=last if isinstance(last, str) else None,
        has_more=fields.get("has_more") is True,
    )


def read_models(body: bytes) -> list[Model]:
    """Return the models of a list. Raise InvalidAnswer for anything else."""
    value = decode_json(body)
    entries = value if isinstance(value, list) else _list(read_object(body), "data")
    return [
        _read_model(entry)
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]


def _read_model(entry: dict[str, Any]) -> Model:
    owner, created = entry.get("owned_by"), entry.get("created")
    return Model(
        id=entry["id"],
        owned_by=owner if isinstance(owner, str) else "",
        created=created if isinstance(created, int) else 0,
        fields=entry,
    )


def _is_estimate(fields: dict[str, Any]) -> bool:
    notes = fields.get("antiphon")
    return isinstance(notes, dict) and notes.get("usage") == "estimated"


def read_object(body: bytes) -> dict[str, Any]:
    """Return a JSON object, such as an item. Raise InvalidAnswer for anything else."""
    value = decode_json(body)
    if not isinstance(value, dict):
        raise InvalidAnswer("the server's answer is no JSON object; check the base URL")
    return value


def _list(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name, False)
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidAnswer(f"the server's answer has no list of {name}; check the base URL")
    return value
