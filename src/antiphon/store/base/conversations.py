"""Facet `conversations`: lists of items that grow by turns and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from antiphon.protocol.items import Item
from antiphon.store.base.claims import Claim, ClaimRequest
from antiphon.store.base.history import Admit

__all__ = ["Conversation", "Conversations", "ItemPage"]


class Conversation(msgspec.Struct, frozen=True):
    """A conversation without its items."""

    id: str
    created_at: int
    metadata: dict[str, Any] = {}


class ItemPage(msgspec.Struct, frozen=True):
    """Some items of a list, in the requested order."""

    items: list[Item]
    has_more: bool


class Conversations(Protocol):
    """The conversations, each with one writer at a time.

    A conversation is locked by the response that writes to it, which names it in its field
    `conversation`. The lock ends with `finish` of that response, with `unlock`, and with the store
    that took it, if the response never began.
    """

    async def create(
        self,
        owner: str,
        conversation: Conversation,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        """Store a new conversation with its first items (all have ids). Durable on return.

        Raise ValueError if its id is taken. With `once`, its token is claimed in the same step.
        If it is claimed already, and the conversation that was made then still exists, store
        nothing and return that claim.
        """
        ...

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """Return the conversation without its items."""
        ...

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, Any]
    ) -> Conversation | None:
        """Replace the metadata; return the conversation as it is now, or None if none exists."""
        ...

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation and its items for good; return whether there was one.

        Raise ConversationLocked if a turn is writing to it.
        """
        ...

    async def items(
        self, owner: str, conversation_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return every item in order, or None if there is no such conversation.

        Raise what `admit` raises.
        """
        ...

    async def page(
        self,
        owner: str,
        conversation_id: str,
        *,
        after: str | None,
        limit: int,
        is_descending: bool,
        admit: Admit | None = None,
    ) -> ItemPage | None:
        """Return at most `limit` items after the item `after` in the given order.

        None if there is no such conversation. Raise KeyError if it has no item `after`, and what
        `admit` raises.
        """
        ...

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> bool | Claim:
        """Add items at the end, durable on return; return whether the conversation exists.

        With `once`, its token is claimed in the same step; if it is claimed already, add nothing
        and return that claim. Raise ConversationLocked if a turn is writing to it, and ValueError
        if an item of this id is there already: then nothing is added.
        """
        ...

    async def find(self, owner: str, conversation_id: str, item_id: str) -> Item | None:
        """Return one item."""
        ...

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item for good; return whether there was one. Raise ConversationLocked."""
        ...

    async def lock(
        self, owner: str, conversation_id: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Become the writer; return every item as it is now, None if there is no conversation.

        Durable on return. Raise ConversationLocked if another response holds it, and what
        `admit` raises: in both cases the lock stays as it was. A response that holds it
        already may ask again.
        """
        ...

    async def unlock(
        self,
        owner: str,
        conversation_id: str,
        response_id: str,
        said: Sequence[Item] = (),
    ) -> bool:
        """Add these items and unlock, in one durable step, if this response holds the lock.

        Return whether it did.
        """
        ...
