"""Facet `conversations` in memory: lists of items, each with one writer at a time.

Bounded: beyond `max_conversations`, the oldest that is not locked is removed. The store that
took a lock lives as long as this memory, so no lock is ever stale here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import msgspec

from antiphon.protocol.errors import ConversationLocked, StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.store.base import Admit, Claim, ClaimRequest, Conversation, ItemPage, Size
from antiphon.store.encoding import (
    StoredItem,
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
class _Talk:
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
        self._talks: dict[_Key, _Talk] = {}
        # Where an item is, and which conversation a response has locked.
        self._places: dict[_Key, list[_Talk]] = {}
        self._locks: dict[_Key, _Talk] = {}

    async def create(
        self,
        owner: str,
        conversation: Conversation,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        """Store a new conversation; the oldest one makes room."""
        stored = await encode_new_items(items)
        self._check_open()
        earlier = self._claims.earlier(owner, once)
        if earlier is not None and (owner, earlier.response_id) in self._talks:
            return earlier
        if (owner, conversation.id) in self._talks:
            raise ValueError(f"there already is a conversation {conversation.id!r}")
        talk = _Talk(next(self._numbers), msgspec.json.encode(conversation))
        self._make_room()
        self._talks[owner, conversation.id] = talk
        self._add(owner, talk, stored)
        self._claims.note_once(owner, once, conversation.id)
        return None

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """Return the conversation without its items."""
        self._check_open()
        talk = self._talks.get((owner, conversation_id))
        return None if talk is None else msgspec.json.decode(talk.body, type=Conversation)

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, Any]
    ) -> Conversation | None:
        """Replace the metadata."""
        found = await self.get(owner, conversation_id)
        if found is None:
            return None
        body = msgspec.json.encode(msgspec.structs.replace(found, metadata=metadata))
        self._talks[owner, conversation_id].body = body
        return msgspec.json.decode(body, type=Conversation)

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation and its items."""
        if self._unlocked(owner, conversation_id) is None:
            return False
        self._remove((owner, conversation_id))
        return True

    async def items(
        self, owner: str, conversation_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return every item in order."""
        self._check_open()
        talk = self._talks.get((owner, conversation_id))
        if talk is None:
            return None
        _ask(admit, talk)
        return await decode_aside(list(talk.items.values()))

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
        """Return at most `limit` items after the item `after` in the given order."""
        self._check_open()
        talk = self._talks.get((owner, conversation_id))
        if talk is None:
            return None
        if after is not None and after not in talk.items:
            raise KeyError(after)
        names = list(reversed(talk.items) if is_descending else talk.items)
        start = 0 if after is None else names.index(after) + 1
        bodies = [talk.items[name] for name in names[start : start + limit]]
        if admit is not None:
            admit(Size(len(bodies), sum(map(len, bodies))))
        return ItemPage(await decode_aside(bodies), has_more=start + limit < len(names))

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> bool | Claim:
        """Add items at the end."""
        stored = await encode_new_items(items)
        earlier = self._claims.earlier(owner, once)
        if earlier is not None and (owner, conversation_id) in self._talks:
            return earlier
        talk = self._unlocked(owner, conversation_id)
        if talk is None:
            return False
        for item in stored:
            if item.id in talk.items:
                raise ValueError(f"the conversation already has an item {item.id!r}")
        self._add(owner, talk, stored)
        self._claims.note_once(owner, once, names_of(stored))
        return True

    async def find(self, owner: str, conversation_id: str, item_id: str) -> Item | None:
        """Return one item."""
        self._check_open()
        talk = self._talks.get((owner, conversation_id))
        body = None if talk is None else talk.items.get(item_id)
        return None if body is None else decode_item(body)

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item."""
        talk = self._unlocked(owner, conversation_id)
        if talk is None or item_id not in talk.items:
            return False
        del talk.items[item_id]
        self._forget_place(owner, talk, item_id)
        return True

    async def lock(
        self, owner: str, conversation_id: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Become the writer."""
        self._check_open()
        talk = self._talks.get((owner, conversation_id))
        if talk is None:
            return None
        if talk.lock not in {None, response_id}:
            raise ConversationLocked(conversation_id)
        _ask(admit, talk)
        talk.lock = response_id
        self._locks[owner, response_id] = talk
        return await decode_aside(list(talk.items.values()))

    async def unlock(
        self,
        owner: str,
        conversation_id: str,
        response_id: str,
        said: Sequence[Item] = (),
    ) -> bool:
        """Add these items and unlock, if this response holds the lock; return whether it did."""
        self._check_open()
        talk = self._talks.get((owner, conversation_id))
        if talk is None or talk.lock != response_id:
            return False
        self.release(owner, response_id, encode_items(said))
        return True

    def is_locked_by(self, owner: str, response_id: str) -> bool:
        """Return whether this response is the writer of a conversation."""
        return (owner, response_id) in self._locks

    def release(self, owner: str, response_id: str, said: Sequence[StoredItem] = ()) -> None:
        """Add these items to the conversation that this response has locked, and unlock it."""
        talk = self._locks.pop((owner, response_id), None)
        if talk is not None:
            talk.lock = None
            self._add(owner, talk, said)

    def find_anywhere(self, owner: str, item_id: str) -> Item | None:
        """Return the item with this id of the conversation that was made last."""
        talks = self._places.get((owner, item_id))
        if not talks:
            return None
        return decode_item(max(talks, key=lambda talk: talk.number).items[item_id])

    def clear(self) -> None:
        """Remove everything."""
        for kept in (self._talks, self._places, self._locks):
            kept.clear()

    def _unlocked(self, owner: str, conversation_id: str) -> _Talk | None:
        self._check_open()
        talk = self._talks.get((owner, conversation_id))
        if talk is not None and talk.lock is not None:
            raise ConversationLocked(conversation_id)
        return talk

    def _make_room(self) -> None:
        if len(self._talks) < self._max_conversations:
            return
        free = (key for key, talk in self._talks.items() if talk.lock is None)
        oldest = list(islice(free, 1))
        if not oldest:
            raise StoreUnavailable("there is no room for another conversation; try again")
        self._remove(oldest[0])

    def _add(self, owner: str, talk: _Talk, items: Sequence[StoredItem]) -> None:
        """Add those items whose ids are not there yet."""
        for item in items:
            if item.id is not None and item.id not in talk.items:
                talk.items[item.id] = item.body
                self._places.setdefault((owner, item.id), []).append(talk)

    def _remove(self, key: _Key) -> None:
        talk = self._talks.pop(key)
        for item_id in talk.items:
            self._forget_place(key[0], talk, item_id)

    def _forget_place(self, owner: str, talk: _Talk, item_id: str) -> None:
        rest = [other for other in self._places[owner, item_id] if other is not talk]
        if rest:
            self._places[owner, item_id] = rest
        else:
            del self._places[owner, item_id]


def _ask(admit: Admit | None, talk: _Talk) -> None:
    if admit is not None:
        admit(Size(len(talk.items), sum(map(len, talk.items.values()))))
