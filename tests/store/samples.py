"""Small responses and items for the tests of the stores."""

from __future__ import annotations

from typing import Any

from antiphon.protocol.items import Item
from antiphon.protocol.response import Failure, Response
from antiphon.store.base import KeyRecord, Store

__all__ = ["FAILURE", "OWNER", "ids", "key", "message", "opened", "run_turn"]

OWNER = "alice"
FAILURE = Failure("server_restarted", "the server was restarted")


def message(item_id: str, text: str = "hello", **more: Any) -> Item:
    """Return a message item."""
    part = {"type": "input_text", "text": text}
    return {"type": "message", "id": item_id, "role": "user", "content": [part], **more}


def opened(response_id: str, parent: str | None = None, **more: Any) -> Response:
    """Return a response that has just begun."""
    fields: dict[str, Any] = {"created_at": 1_000, "previous_response_id": parent, **more}
    return Response(id=response_id, **fields)


async def run_turn(
    store: Store,
    response_id: str,
    parent: str | None = None,
    *,
    owner: str = OWNER,
    status: str = "completed",
    **more: Any,
) -> Response:
    """Store a whole turn: the item `in-ID` goes in, `out-ID` comes out. Return its response."""
    await store.begin(owner, opened(response_id, parent, **more), [message(f"in-{response_id}")])
    output = [message(f"out-{response_id}")]
    ended = opened(response_id, parent, status=status, output=output, **more)
    await store.finish(owner, ended)
    return ended


def ids(items: list[Item] | None) -> list[str]:
    """Return the ids of items that must be there."""
    assert items is not None
    return [item["id"] for item in items]


def key(key_id: str, **more: Any) -> KeyRecord:
    """Return a key record."""
    fields: dict[str, Any] = {"owner": OWNER, "digest": b"\x00\xff", "created_at": 1, **more}
    return KeyRecord(id=key_id, **fields)
