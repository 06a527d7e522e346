"""/v1/conversations: lists of items that the server keeps and turns add to.

A turn joins one with `create(conversation=…)`. Items are dicts as on the wire; what is given is
copied as plain JSON first, as the input of a turn is. Requests that add something carry an
Idempotency-Key, so that a retry adds nothing twice on servers that know the key.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

from antiphon.client.errors import BadCall
from antiphon.client.messages import items_from_input
from antiphon.client.request import plain_json
from antiphon.client.resources import (
    Conversation,
    Deleted,
    ItemPage,
    iterate_pages,
    read_conversation,
    read_deleted,
    read_object,
    read_page,
)
from antiphon.client.rest import Rest
from antiphon.client.sender import Sender, path_to, with_query
from antiphon.protocol.items import Item

__all__ = ["AsyncConversations"]

_ALL: Final = "/conversations"


class AsyncConversations:
    """The conversations that a server keeps: `client.conversations`."""

    def __init__(self, sender: Sender) -> None:
        self._rest = Rest(sender)

    async def create(
        self,
        *,
        items: Sequence[Mapping[str, Any]] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Conversation:
        """Begin a conversation, with a few items if there are some."""
        body: dict[str, Any] = {} if items is None else {"items": _items(items)}
        if metadata is not None:
            body["metadata"] = plain_json(metadata, "metadata")
        return read_conversation(await self._rest.post(_ALL, body))

    async def retrieve(self, conversation_id: str) -> Conversation:
        """Return a conversation, without its items."""
        return read_conversation(await self._rest.fetch("GET", _path(conversation_id)))

    async def update(self, conversation_id: str, *, metadata: Mapping[str, str]) -> Conversation:
        """Replace the metadata of a conversation."""
        body = {"metadata": plain_json(metadata, "metadata")}
        return read_conversation(await self._rest.post(_path(conversation_id), body))

    async def delete(self, conversation_id: str) -> Deleted:
        """Delete a conversation with its items."""
        answer = await self._rest.fetch("DELETE", _path(conversation_id))
        return read_deleted(answer, conversation_id)

    async def items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: str | None = None,
    ) -> ItemPage:
        """Return a page of the items, newest first unless `order` is "asc"."""
        path = with_query(_items_path(conversation_id), after=after, limit=limit, order=order)
        return read_page(await self._rest.fetch("GET", path))

    def iterate_items(
        self, conversation_id: str, *, order: str = "asc"
    ) -> AsyncGenerator[Item, None]:
        """Yield all items, page after page."""
        return iterate_pages(
            lambda after: self.items(conversation_id, after=after, limit=100, order=order)
        )

    async def add_items(self, conversation_id: str, items: Sequence[Mapping[str, Any]]) -> ItemPage:
        """Add items at the end; return them as they are kept. Servers take up to 20 at a time."""
        body = {"items": _items(items)}
        return read_page(await self._rest.post(_items_path(conversation_id), body))

    async def retrieve_item(self, conversation_id: str, item_id: str) -> Item:
        """Return one item."""
        return read_object(await self._rest.fetch("GET", _item_path(conversation_id, item_id)))

    async def delete_item(self, conversation_id: str, item_id: str) -> Conversation:
        """Delete one item; return the conversation it was in."""
        path = _item_path(conversation_id, item_id)
        return read_conversation(await self._rest.fetch("DELETE", path))


def _items(given: Sequence[Mapping[str, Any]]) -> list[Item]:
    if isinstance(given, str | Mapping):
        raise BadCall("items must be a list of items", param="items")
    return items_from_input(plain_json(given, "items"))


def _path(conversation_id: str) -> str:
    return path_to(_ALL, conversation_id, "conversation_id")


def _items_path(conversation_id: str) -> str:
    return f"{_path(conversation_id)}/items"


def _item_path(conversation_id: str, item_id: str) -> str:
    return path_to(_items_path(conversation_id), item_id, "item_id")
