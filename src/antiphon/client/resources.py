"""What a server keeps besides responses, read from its answers.

Fields we do not know are kept in `fields`: a list of models says different things at every
server.
"""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.client.errors import InvalidAnswer
from antiphon.protocol.items import Item

__all__ = ["Deleted", "ItemPage", "Model", "read_deleted", "read_models", "read_page"]


class Deleted(msgspec.Struct, frozen=True):
    """What became of something that was to be deleted."""

    id: str
    deleted: bool


class ItemPage(msgspec.Struct, frozen=True):
    """A page of items. `last_id` is where the next one begins, if `has_more`."""

    items: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Model(msgspec.Struct, frozen=True):
    """A model that the server offers; `fields` is all that it says about it."""

    id: str
    owned_by: str
    created: int
    fields: dict[str, Any]


def read_deleted(body: bytes, response_id: str) -> Deleted:
    """Return what the server says of a deletion; an empty answer says that it is done."""
    fields = _object(body) if body.strip() else {}
    return Deleted(str(fields.get("id") or response_id), fields.get("deleted") is not False)


def read_page(body: bytes) -> ItemPage:
    """Return a page of items. Raise InvalidAnswer if it is none."""
    fields = _object(body)
    items = [item for item in _list(fields, "data") if isinstance(item, dict)]
    first, last = fields.get("first_id"), fields.get("last_id")
    return ItemPage(
        items=items,
        first_id=first if isinstance(first, str) else None,
        last_id=last if isinstance(last, str) else None,
        has_more=fields.get("has_more") is True,
    )


def read_models(body: bytes) -> list[Model]:
    """Return the models of a list. Raise InvalidAnswer if it is none."""
    value = _json(body)
    entries = value if isinstance(value, list) else _list(_object(body), "data")
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


def _json(body: bytes) -> Any:  # Any: a JSON value
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _object(body: bytes) -> dict[str, Any]:
    value = _json(body)
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
