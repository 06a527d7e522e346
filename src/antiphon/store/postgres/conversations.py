"""Facet `conversations` in PostgreSQL: lists of items, each with one writer at a time.

Every change of a conversation locks its row first. A lock of a response is stale if the store
that took it has died and no other will finish the response: it never began, or it has ended. (An
unfinished turn will be claimed, and its new writer ends the lock.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from antiphon.protocol.errors import ConversationLocked
from antiphon.protocol.items import Item
from antiphon.store.base import Admit, Claim, ClaimRequest, Conversation, ItemPage, Size
from antiphon.store.encoding import (
    StoredItem,
    decode_aside,
    decode_item,
    encode_aside,
    encode_new_items,
    is_storable,
    names_of,
)
from antiphon.store.postgres.claims import earlier_claim, note_once
from antiphon.store.postgres.database import Connection, Database, UncertainCommit
from antiphon.store.postgres.rows import columns, is_text, name_of

__all__ = ["PostgresConversations", "insert_said"]

_T = TypeVar("_T")

_HOLD: Final = (
    "SELECT key, locked_by, writer FROM conversations WHERE owner = $1 AND id = $2 FOR UPDATE"
)
_IS_LOCKED: Final = """
    SELECT EXISTS (SELECT FROM nodes WHERE name = $1 AND lease_until > clock_timestamp())
        OR EXISTS (SELECT FROM responses WHERE owner = $2 AND id = $3 AND writer IS NOT NULL)
"""
_ITEMS: Final = (
    "SELECT body FROM conversation_items WHERE conversation = $1 AND owner = $2 ORDER BY position"
)
_SIZE: Final = (
    "SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM conversation_items"
    " WHERE conversation = $1 AND owner = $2"
)
_KEY: Final = "SELECT key FROM conversations WHERE owner = $1 AND id = $2"
# An item whose id exists already stays as it is.
_INSERT: Final = """
    INSERT INTO conversation_items (conversation, position, owner, id, body)
    SELECT wanted.conversation, wanted.place + coalesce((
        SELECT max(position) FROM conversation_items
        WHERE conversation_items.conversation = wanted.conversation
    ), 0), wanted.owner, wanted.id, wanted.body
    FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[])
        WITH ORDINALITY AS wanted (conversation, owner, id, body, place)
    ORDER BY wanted.place
    ON CONFLICT (conversation, sha256(id)) DO NOTHING
"""
_WHERE_ITEM: Final = "conversation = $1 AND owner = $2 AND sha256(id) = sha256($3) AND id = $3"
_FIND: Final = """
    SELECT conversation_items.body FROM conversations
    JOIN conversation_items ON conversation = conversations.key
        AND conversation_items.owner = conversations.owner
    WHERE conversations.owner = $1 AND conversations.id = $2
        AND sha256(conversation_items.id) = sha256($3) AND conversation_items.id = $3
"""
_PAGES: Final = {
    is_descending: (
        "SELECT body FROM conversation_items"  # noqa: S608 # constants
        f" WHERE conversation = $1 AND owner = $2 AND position {'<' if is_descending else '>'} $3"
        f" ORDER BY position {'DESC' if is_descending else 'ASC'} LIMIT $4"
    )
    for is_descending in (False, True)
}
_PAGE_SIZES: Final = {
    is_descending: f"SELECT count(*), coalesce(sum(octet_length(body)), 0) FROM ({page}) AS page"  # noqa: S608 # constants
    for is_descending, page in _PAGES.items()
}
# Before the first position in one order, and after the last one in the other.
_START: Final = {False: -1, True: 2**62}


class PostgresConversations:
    """See `Conversations` for what the methods do. `sign` returns the name of the live node."""

    def __init__(self, database: Database, sign: Callable[[], Awaitable[str]]) -> None:
        self._database = database
        self._sign = sign

    async def create(
        self,
        owner: str,
        conversation: Conversation,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        stored = await encode_new_items(items)
        body = msgspec.json.encode(conversation)
        writer = await self._sign() if once else ""

        async def run(connection: Connection) -> Claim | None:
            earlier = await earlier_claim(connection, owner, once)
            if earlier and await connection.fetchval(_KEY, owner, earlier.response_id):
                return earlier
            key = await connection.fetchval(
                "INSERT INTO conversations (owner, id, body) VALUES ($1, $2, $3)"
                " ON CONFLICT (owner, id) DO NOTHING RETURNING key",
                owner,
                conversation.id,
                body,
            )
            if key is None:
                raise ValueError(f"there already is a conversation {conversation.id!r}")
            await insert_said(connection, [(key, owner, stored)])
            await note_once(connection, owner, once, conversation.id, writer)
            return None

        try:
            return await self._database.change(run)
        except UncertainCommit:
            # Its id is random, so if it exists, this call has made it, with all its items.
            if await self.get(owner, conversation.id) is None:
                raise
            return None

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        if not is_text(conversation_id):
            return None
        question = "SELECT body FROM conversations WHERE owner = $1 AND id = $2"
        body = await self._database.ask_value(question, owner, conversation_id)
        return None if body is None else msgspec.json.decode(body, type=Conversation)

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, Any]
    ) -> Conversation | None:
        if not is_text(conversation_id):
            return None

        async def run(connection: Connection) -> Conversation | None:
            row = await connection.fetchrow(
                "SELECT key, body FROM conversations WHERE owner = $1 AND id = $2 FOR UPDATE",
                owner,
                conversation_id,
            )
            if row is None:
                return None
            found = msgspec.json.decode(row["body"], type=Conversation)
            changed = msgspec.structs.replace(found, metadata=metadata)
            await connection.execute(
                "UPDATE conversations SET body = $1 WHERE key = $2 AND owner = $3",
                msgspec.json.encode(changed),
                row["key"],
                owner,
            )
            return changed

        return await self._database.change(run)

    async def delete(self, owner: str, conversation_id: str) -> bool:
        async def run(connection: Connection, key: int) -> bool:
            await connection.execute(
                "DELETE FROM conversation_items WHERE conversation = $1 AND owner = $2", key, owner
            )
            await connection.execute(
                "DELETE FROM conversations WHERE key = $1 AND owner = $2", key, owner
            )
            return True

        return await self._change(owner, conversation_id, run) or False

    async def items(
        self, owner: str, conversation_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        if not is_text(conversation_id):
            return None

        async def run(connection: Connection) -> list[bytes] | None:
            key = await connection.fetchval(_KEY, owner, conversation_id)
            return None if key is None else await _read(connection, owner, key, admit)

        bodies = await self._database.view(run)
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
        if not is_text(conversation_id):
            return None

        async def run(connection: Connection) -> ItemPage | None:
            key = await connection.fetchval(_KEY, owner, conversation_id)
            if key is None:
                return None
            start = _START[is_descending]
            if after is not None:
                start = await _position(connection, owner, key, after)
            place = (key, owner, start, limit + 1)
            if admit is not None:
                count, size = await connection.fetchrow(_PAGE_SIZES[is_descending], *place)
                admit(Size(count, int(size)))
            rows = await connection.fetch(_PAGES[is_descending], *place)
            found = await decode_aside([body for (body,) in rows])
            return ItemPage(found[:limit], has_more=len(found) > limit)

        return await self._database.view(run)

    async def add(
        self,
        owner: str,
        conversation_id: str,
        items: Sequence[Item],
        once: ClaimRequest | None = None,
    ) -> bool | Claim:
        stored = await encode_new_items(items)
        writer = await self._sign() if once else ""

        async def run(connection: Connection, key: int) -> bool | Claim:
            taken = await connection.fetchval(
                "SELECT id FROM conversation_items WHERE conversation = $1 AND owner = $2"
                " AND sha256(id) IN (SELECT sha256(wanted) FROM unnest($3::bytea[]) AS wanted)"
                " LIMIT 1",
                key,
                owner,
                [name_of(item) for item in stored],
            )
            if taken is not None:
                raise ValueError(f"the conversation already has an item {taken.decode()!r}")
            await insert_said(connection, [(key, owner, stored)])
            await note_once(connection, owner, once, names_of(stored), writer)
            return True

        async def look(connection: Connection) -> bool | Claim | None:
            return await earlier_claim(connection, owner, once)

        return await self._change(owner, conversation_id, run, done_before=look) or False

    async def find(self, owner: str, conversation_id: str, item_id: str) -> Item | None:
        if not is_text(conversation_id) or not is_storable(item_id):
            return None
        body = await self._database.ask_value(_FIND, owner, conversation_id, item_id.encode())
        return None if body is None else decode_item(body)

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> bool:
        if not is_storable(item_id):
            return False

        async def run(connection: Connection, key: int) -> bool:
            found = await connection.fetchval(
                f"DELETE FROM conversation_items WHERE {_WHERE_ITEM} RETURNING TRUE",  # noqa: S608
                key,
                owner,
                item_id.encode(),
            )
            return found is not None

        return await self._change(owner, conversation_id, run) or False

    async def lock(
        self, owner: str, conversation_id: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        writer = await self._sign()

        async def run(connection: Connection, key: int) -> list[bytes]:
            # Locking twice is fine: the lock belongs to this response already.
            await connection.execute(
                "UPDATE conversations SET locked_by = $1, writer = $2"
                " WHERE key = $3 AND owner = $4",
                response_id,
                writer,
                key,
                owner,
            )
            return await _read(connection, owner, key, admit)

        bodies = await self._change(owner, conversation_id, run, holder=response_id)
        return None if bodies is None else await decode_aside(bodies)

    async def unlock(
        self,
        owner: str,
        conversation_id: str,
        response_id: str,
        said: Sequence[Item] = (),
    ) -> bool:
        if not is_text(conversation_id):
            return False
        stored = await encode_aside(said)

        async def run(connection: Connection) -> bool:
            row = await connection.fetchrow(_HOLD, owner, conversation_id)
            if row is None or row["locked_by"] != response_id:
                return False
            await insert_said(connection, [(row["key"], owner, stored)])
            await connection.execute(
                "UPDATE conversations SET locked_by = NULL, writer = NULL"
                " WHERE key = $1 AND owner = $2",
                row["key"],
                owner,
            )
            return True

        return await self._database.change(run)

    async def _change(
        self,
        owner: str,
        conversation_id: str,
        run: Callable[[Connection, int], Awaitable[_T]],
        *,
        holder: str | None = None,
        done_before: Callable[[Connection], Awaitable[_T | None]] | None = None,
    ) -> _T | None:
        """Change a conversation that at most `holder` has locked; None if it does not exist.

        If `done_before` returns a value other than None, that is the result instead.
        """
        if not is_text(conversation_id):
            return None

        async def change(connection: Connection) -> _T | None:
            earlier = await done_before(connection) if done_before else None
            row = await connection.fetchrow(_HOLD, owner, conversation_id)
            if row is None or earlier is not None:
                return None if row is None else earlier
            locked_by = row["locked_by"]
            if locked_by not in {None, holder} and await connection.fetchval(
                _IS_LOCKED, row["writer"], owner, locked_by
            ):
                raise ConversationLocked(conversation_id)
            return await run(connection, row["key"])

        return await self._database.change(change)


async def insert_said(
    connection: Connection, said: Iterable[tuple[int, str, Sequence[StoredItem]]]
) -> None:
    """Add items at the ends of conversations, each given by its key and its owner."""
    rows = [
        (key, owner, name_of(item), item.body)
        for key, owner, items in said
        for item in items
        if item.id is not None
    ]
    if rows:
        await connection.execute(_INSERT, *columns(rows, 4))


async def _read(connection: Connection, owner: str, key: int, admit: Admit | None) -> list[bytes]:
    """Return the body of every item. Raise what `admit` raises, before any is read."""
    if admit is not None:
        count, size = await connection.fetchrow(_SIZE, key, owner)
        admit(Size(count, int(size)))
    return [body for (body,) in await connection.fetch(_ITEMS, key, owner)]


async def _position(connection: Connection, owner: str, key: int, item_id: str) -> int:
    position = None
    if is_storable(item_id):
        position = await connection.fetchval(
            f"SELECT position FROM conversation_items WHERE {_WHERE_ITEM}",  # noqa: S608 # constant
            key,
            owner,
            item_id.encode(),
        )
    if position is None:
        raise KeyError(item_id)
    return int(position)
