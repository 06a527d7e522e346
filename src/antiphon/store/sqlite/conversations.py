"""Facet `conversations` in SQLite. The SQL is in `conversation_statements`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import antiphon.store.sqlite.conversation_statements as statements
from antiphon.protocol.items import Item
from antiphon.store.base import Admit, Claim, ClaimRequest, Conversation, ItemPage
from antiphon.store.encoding import decode_aside, encode_aside, encode_new_items, is_storable
from antiphon.store.sqlite.presence import Presence
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteConversations"]


class SqliteConversations:
    """See `Conversations` for what the methods do. Every change is durable on return."""

    def __init__(self, writer: Writer, reader: Reader, presence: Presence) -> None:
        self._writer = writer
        self._reader = reader
        self._presence = presence

    async def create(
        self,
        owner: str,
        conversation: Conversation,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        """Store a new conversation. Raise ValueError if its id is taken."""
        rows = await encode_new_items(items)
        run = partial(
            statements.create,
            owner=owner,
            conversation=conversation,
            items=rows,
            once=once,
            writer=self._presence.name,
            is_alive=self._presence.is_alive,
        )
        return await self._writer.call(run, sum(len(row.body) for row in rows))

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """Return the conversation without its items."""
        if not is_storable(conversation_id):
            return None
        run = partial(statements.get, owner=owner, conversation_id=conversation_id)
        return await self._reader.call(run)

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, Any]
    ) -> Conversation | None:
        """Replace the metadata."""
        if not is_storable(conversation_id):
            return None
        return await self._writer.call(
            partial(
                statements.update, owner=owner, conversation_id=conversation_id, metadata=metadata
            )
        )

    async def delete(self, owner: str, conversation_id: str) -> bool:
        """Remove a conversation and its items from the file."""
        if not is_storable(conversation_id):
            return False
        run = partial(
            statements.delete,
            owner=owner,
            conversation_id=conversation_id,
            is_alive=self._presence.is_alive,
        )
        return await self._writer.remove(run)

    async def items(
        self, owner: str, conversation_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return every item in order."""
        if not is_storable(conversation_id):
            return None
        run = partial(statements.items, owner=owner, conversation_id=conversation_id, admit=admit)
        bodies = await self._reader.call(run)
        return None if bodies is None else await decode_aside(bodies)

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
        if not is_storable(conversation_id):
            return None
        if after is not None and not is_storable(after):
            raise KeyError(after)
        run = partial(
            statements.page,
            owner=owner,
            conversation_id=conversation_id,
            after=after,
            limit=limit + 1,
            is_descending=is_descending,
            admit=admit,
        )
        bodies = await self._reader.call(run)
        if bodies is None:
            return None
        return ItemPage(await decode_aside(bodies[:limit]), has_more=len(bodies) > limit)

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> bool | Claim:
        """Add items at the end."""
        if not is_storable(conversation_id):
            return False
        rows = await encode_new_items(items)
        run = partial(
            statements.add,
            owner=owner,
            conversation_id=conversation_id,
            items=rows,
            once=once,
            writer=self._presence.name,
            is_alive=self._presence.is_alive,
        )
        return await self._writer.call(run, sum(len(row.body) for row in rows))

    async def find(self, owner: str, conversation_id: str, item_id: str) -> Item | None:
        """Return one item."""
        if not (is_storable(conversation_id) and is_storable(item_id)):
            return None
        run = partial(
            statements.find, owner=owner, conversation_id=conversation_id, item_id=item_id
        )
        return await self._reader.call(run)

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Remove one item from the file."""
        if not (is_storable(conversation_id) and is_storable(item_id)):
            return False
        run = partial(
            statements.remove,
            owner=owner,
            conversation_id=conversation_id,
            item_id=item_id,
            is_alive=self._presence.is_alive,
        )
        return await self._writer.remove(run)

    async def lock(
        self, owner: str, conversation_id: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Become the writer."""
        if not is_storable(conversation_id):
            return None
        run = partial(
            statements.lock,
            owner=owner,
            conversation_id=conversation_id,
            response_id=response_id,
            writer=self._presence.name,
            is_alive=self._presence.is_alive,
            admit=admit,
        )
        bodies = await self._writer.call(run)
        return None if bodies is None else await decode_aside(bodies)

    async def unlock(
        self,
        owner: str,
        conversation_id: str,
        response_id: str,
        said: Sequence[Item] = (),
    ) -> bool:
        """Add these items and unlock, if this response holds the lock; return whether it did."""
        if not is_storable(conversation_id):
            return False
        rows = await encode_aside(said)
        run = partial(
            statements.unlock,
            owner=owner,
            conversation_id=conversation_id,
            response_id=response_id,
            said=rows,
        )
        return await self._writer.call(run, sum(len(row.body) for row in rows))
