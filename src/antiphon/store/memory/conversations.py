"""Facet `conversations` in memory: lists of items, each with one writer at a time.

Bounded: beyond `max_conversations`, the oldest that is not locked is removed. The store that
took a lock lives as long as this memory, so no lock is ever stale here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from antiphon.protocol.errors import ConversationLocked, StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.store.base import Admit, Claim, ClaimRequest, Conversation, ItemPage
from antiphon.store.encoding import (
    StoredItem,
    admit_bodies,
    decode_aside,
    decode_item,
    encode_items,
    encode_new_items,
    names_of,
)
from antiphon.store.memory.claims import MemoryClaims

__all__ = ["MemoryConversations"]

_Key = tuple[str, str]


@dataclass(slots=True)
class _Kept:
    """A conversation as bytes, with its items by id, and the response that has locked it."""

    number: int
    body: bytes
    items: dict[str, bytes] = field(default_factory=dict)
    lock: str | None = None


class MemoryConversations:
    """See `Conversations` for what the methods do."""

    def __init__(
        self, check_open: Callable[[], None], max_conversations: int, claims: MemoryClaims
    ) -> None:
        self._check_open = check_open
        self._claims = claims
        self._max_conversations = max_conversations
        self._numbers = count()
        self._conversations: dict[_Key, _Kept] = {}
        # Where an item is, and which conversation a response has locked.
        self._places: dict[_Key, list[_Kept]] = {}
        self._locks: dict[_Key, _Kept] = {}

    async def create(
        self,
        owner: str,
        conversation: Conversation,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        stored = await encode_new_items(items)
        self._check_open()
        earlier = self._claims.earlier(owner, once)
        if earlier is not None and (owner, earlier.response_id) in self._conversations:
            return earlier
        if (owner, conversation.id) in self._conversations:
            raise ValueError(f"there already is a conversation {conversation.id!r}")
        kept = _Kept(next(self._numbers), msgspec.json.encode(conversation))
        self._make_room()
        self._conversations[owner, conversation.id] = kept
        self._add(owner, kept, stored)
        self._claims.note_once(owner, once, conversation.id)
        return None

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        kept = self._find(owner, conversation_id)
        return None if kept is None else msgspec.json.decode(kept.body, type=Conversation)

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, Any]
    ) -> Conversation | None:
        found = await self.get(owner, conversation_id)
        if found is None:
            return None
        body = msgspec.json.encode(msgspec.structs.replace(found, metadata=metadata))
        self._conversations[owner, conversation_id].body = body
        return msgspec.json.decode(body, type=Conversation)

    async def delete(self, owner: str, conversation_id: str) -> bool:
        if self._unlocked(owner, conversation_id) is None:
            return False
        self._remove((owner, conversation_id))
        return True

    async def items(
        self, owner: str, conversation_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        kept = self._find(owner, conversation_id)
        if kept is None:
            return None
        bodies = list(kept.items.values())
        admit_bodies(admit, bodies)
        return await decode_aside(bodies)

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
        kept = self._find(owner, conversation_id)
        if kept is None:
            return None
        if after is not None and after not in kept.items:
            raise KeyError(after)
        names = list(reversed(kept.items) if is_descending else kept.items)
        start = 0 if after is None else names.index(after) + 1
        bodies = [kept.items[name] for name in names[start : start + limit]]
        admit_bodies(admit, bodies)
        return ItemPage(await decode_aside(bodies), has_more=start + limit < len(names))

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> bool | Claim:
        stored = await encode_new_items(items)
        earlier = self._claims.earlier(owner, once)
        if earlier is not None and (owner, conversation_id) in self._conversations:
            return earlier
        kept = self._unlocked(owner, conversation_id)
        if kept is None:
            return False
        for item in stored:
            if item.id in kept.items:
                raise ValueError(f"the conversation already has an item {item.id!r}")
        self._add(owner, kept, stored)
        self._claims.note_once(owner, once, names_of(stored))
        return True

    async def find(self, owner: str, conversation_id: str, item_id: str) -> Item | None:
        kept = self._find(owner, conversation_id)
        body = None if kept is None else kept.items.get(item_id)
        return None if body is None else decode_item(body)

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> bool:
        kept = self._unlocked(owner, conversation_id)
        if kept is None or item_id not in kept.items:
            return False
        del kept.items[item_id]
        self._forget_place(owner, kept, item_id)
        return True

    async def lock(
        self, owner: str, conversation_id: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        kept = self._find(owner, conversation_id)
        if kept is None:
            return None
        if kept.lock not in {None, response_id}:
            raise ConversationLocked(conversation_id)
        bodies = list(kept.items.values())
        admit_bodies(admit, bodies)
        kept.lock = response_id
        self._locks[owner, response_id] = kept
        return await decode_aside(bodies)

    async def unlock(
        self,
        owner: str,
        conversation_id: str,
        response_id: str,
        said: Sequence[Item] = (),
    ) -> bool:
        kept = self._find(owner, conversation_id)
        if kept is None or kept.lock != response_id:
            return False
        self.release(owner, response_id, encode_items(said))
        return True

    def is_locked_by(self, owner: str, response_id: str) -> bool:
        """Return whether this response is the writer of a conversation."""
        return (owner, response_id) in self._locks

    def release(self, owner: str, response_id: str, said: Sequence[StoredItem] = ()) -> None:
        """Add these items to the conversation that this response has locked, and unlock it."""
        kept = self._locks.pop((owner, response_id), None)
        if kept is not None:
            kept.lock = None
            self._add(owner, kept, said)

    def find_anywhere(self, owner: str, item_id: str) -> Item | None:
        """Return the item with this id of the conversation that was made last."""
        holders = self._places.get((owner, item_id))
        if not holders:
            return None
        return decode_item(max(holders, key=lambda kept: kept.number).items[item_id])

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        mine = [kept for (name, _), kept in self._conversations.items() if name == owner]
        items = sum(len(kept.items) for kept in mine)
        return {"conversations": len(mine), "conversation_items": items}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        for key in [key for key in self._conversations if key[0] == owner]:
            self._remove(key)
        for key in [key for key in self._locks if key[0] == owner]:
            del self._locks[key]

    def clear(self) -> None:
        """Remove everything."""
        for table in (self._conversations, self._places, self._locks):
            table.clear()

    def _find(self, owner: str, conversation_id: str) -> _Kept | None:
        self._check_open()
        return self._conversations.get((owner, conversation_id))

    def _unlocked(self, owner: str, conversation_id: str) -> _Kept | None:
        kept = self._find(owner, conversation_id)
        if kept is not None and kept.lock is not None:
            raise ConversationLocked(conversation_id)
        return kept

    def _make_room(self) -> None:
        if len(self._conversations) < self._max_conversations:
            return
        oldest = next((key for key, kept in self._conversations.items() if kept.lock is None), None)
        if oldest is None:
            raise StoreUnavailable("there is no room for another conversation; try again")
        self._remove(oldest)

    def _add(self, owner: str, kept: _Kept, items: Sequence[StoredItem]) -> None:
        """Add those items whose ids are not there yet."""
        for item in items:
            if item.id is not None and item.id not in kept.items:
                kept.items[item.id] = item.body
                self._places.setdefault((owner, item.id), []).append(kept)

    def _remove(self, key: _Key) -> None:
        kept = self._conversations.pop(key)
        for item_id in kept.items:
            self._forget_place(key[0], kept, item_id)

    def _forget_place(self, owner: str, kept: _Kept, item_id: str) -> None:
        rest = [other for other in self._places[owner, item_id] if other is not kept]
        if rest:
            self._places[owner, item_id] = rest
        else:
            del self._places[owner, item_id]
