"""Facet `conversations` in SQLite: lists of items, each with one writer at a time.

What must not be done is returned as an error by a function that runs in a transaction: an error
that is raised would undo the work of others in the same transaction. A lock of a response is
stale if the store that took it has died and no other will finish the response: it never began,
or it has ended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import AntiphonError, ConversationLocked
from antiphon.protocol.items import Item
from antiphon.store.base import Admit, Claim, ClaimRequest, Conversation, ItemPage
from antiphon.store.encoding import (
    StoredItem,
    decode_aside,
    decode_item,
    encode_aside,
    encode_new_items,
    is_storable,
    names_of,
    refusal_of,
    size_of,
)
from antiphon.store.sqlite.claims import earlier_claim, note_once
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.presence import Presence
from antiphon.store.sqlite.worker import Reader, Writer

__all__ = ["SqliteConversations", "release"]

_HOLDER: Final = """
    SELECT key, locked_by, writer, EXISTS (
        SELECT 1 FROM responses WHERE responses.owner = conversations.owner
            AND responses.id = locked_by AND responses.writer IS NOT NULL
    ) FROM conversations WHERE owner = ? AND id = ?
"""
_ITEMS: Final = (
    "SELECT body FROM conversation_items WHERE conversation = ? AND owner = ? ORDER BY position"
)
_SIZE: Final = (
    "SELECT count(*), coalesce(sum(length(body)), 0) FROM conversation_items"
    " WHERE conversation = ? AND owner = ?"
)
_INSERT: Final = """
    INSERT OR IGNORE INTO conversation_items (conversation, position, owner, id, body)
    VALUES (:key, (
        SELECT coalesce(max(position), 0) + 1 FROM conversation_items WHERE conversation = :key
    ), :owner, :id, :body)
"""
_PAGES: Final = {
    is_descending: (
        "SELECT body FROM conversation_items"  # noqa: S608 # constants
        f" WHERE conversation = ? AND owner = ? AND position {'<' if is_descending else '>'} ?"
        f" ORDER BY position {'DESC' if is_descending else 'ASC'} LIMIT ?"
    )
    for is_descending in (False, True)
}
_PAGE_SIZES: Final = {
    is_descending: f"SELECT count(*), coalesce(sum(length(body)), 0) FROM ({page})"  # noqa: S608 # constants
    for is_descending, page in _PAGES.items()
}
# Before the first position in one order, and after the last one in the other.
_START: Final = {False: -1, True: 2**62}


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
        stored = await encode_new_items(items)

        def run(connection: sqlite3.Connection) -> ValueError | Claim | None:
            earlier = earlier_claim(connection, owner, once, self._presence.is_alive)
            if earlier is not None and _key(connection, owner, earlier.response_id) is not None:
                return earlier
            cursor = connection.execute(
                "INSERT OR IGNORE INTO conversations (owner, id, body) VALUES (?, ?, ?)",
                (owner, conversation.id, msgspec.json.encode(conversation)),
            )
            if not cursor.rowcount or cursor.lastrowid is None:
                return ValueError(f"there already is a conversation {conversation.id!r}")
            _insert(connection, owner, cursor.lastrowid, stored)
            note_once(connection, owner, once, conversation.id, self._presence.name)
            return None

        return await self._writer.call(run, size_of(stored))

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        if not is_storable(conversation_id):
            return None
        return await self._reader.call(lambda connection: _get(connection, owner, conversation_id))

    async def update(
        self, owner: str, conversation_id: str, metadata: dict[str, Any]
    ) -> Conversation | None:
        if not is_storable(conversation_id):
            return None

        def run(connection: sqlite3.Connection) -> Conversation | None:
            found = _get(connection, owner, conversation_id)
            if found is None:
                return None
            changed = msgspec.structs.replace(found, metadata=metadata)
            connection.execute(
                "UPDATE conversations SET body = ? WHERE owner = ? AND id = ?",
                (msgspec.json.encode(changed), owner, conversation_id),
            )
            return changed

        return await self._writer.call(run)

    async def delete(self, owner: str, conversation_id: str) -> bool:
        if not is_storable(conversation_id):
            return False

        def run(connection: sqlite3.Connection) -> bool | ConversationLocked:
            key = self._unlocked(connection, owner, conversation_id)
            if not isinstance(key, int):
                return key or False
            connection.execute(
                "DELETE FROM conversation_items WHERE conversation = ? AND owner = ?", (key, owner)
            )
            connection.execute(
                "DELETE FROM conversations WHERE key = ? AND owner = ?", (key, owner)
            )
            mark(connection)
            return True

        return await self._writer.remove(run)

    async def items(
        self, owner: str, conversation_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        if not is_storable(conversation_id):
            return None

        def run(connection: sqlite3.Connection) -> list[bytes] | AntiphonError | None:
            key = _key(connection, owner, conversation_id)
            return None if key is None else _read(connection, owner, key, admit)

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
        if not is_storable(conversation_id):
            return None
        if after is not None and not is_storable(after):
            raise KeyError(after)

        def run(connection: sqlite3.Connection) -> list[bytes] | Exception | None:
            key = _key(connection, owner, conversation_id)
            if key is None:
                return None
            start: int | None = _START[is_descending]
            if after is not None:
                start = _position(connection, owner, key, after)
            if start is None:
                return KeyError(after)
            place = (key, owner, start, limit + 1)
            if admit is not None:
                size = connection.execute(_PAGE_SIZES[is_descending], place).fetchone()
                if (refusal := refusal_of(admit, *size)) is not None:
                    return refusal
            return [body for (body,) in connection.execute(_PAGES[is_descending], place)]

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
        if not is_storable(conversation_id):
            return False
        stored = await encode_new_items(items)

        def run(connection: sqlite3.Connection) -> bool | Claim | Exception:
            earlier = earlier_claim(connection, owner, once, self._presence.is_alive)
            if earlier is not None and _key(connection, owner, conversation_id) is not None:
                return earlier
            key = self._unlocked(connection, owner, conversation_id)
            if not isinstance(key, int):
                return key or False
            for item in stored:
                if item.id is not None and _position(connection, owner, key, item.id) is not None:
                    return ValueError(f"the conversation already has an item {item.id!r}")
            _insert(connection, owner, key, stored)
            note_once(connection, owner, once, names_of(stored), self._presence.name)
            return True

        return await self._writer.call(run, size_of(stored))

    async def find(self, owner: str, conversation_id: str, item_id: str) -> Item | None:
        if not (is_storable(conversation_id) and is_storable(item_id)):
            return None

        def run(connection: sqlite3.Connection) -> Item | None:
            row = connection.execute(
                "SELECT body FROM conversation_items"
                " WHERE conversation = ? AND owner = ? AND id = ?",
                (_key(connection, owner, conversation_id), owner, item_id),
            ).fetchone()
            return None if row is None else decode_item(row[0])

        return await self._reader.call(run)

    async def remove(self, owner: str, conversation_id: str, item_id: str) -> bool:
        if not (is_storable(conversation_id) and is_storable(item_id)):
            return False

        def run(connection: sqlite3.Connection) -> bool | ConversationLocked:
            key = self._unlocked(connection, owner, conversation_id)
            if not isinstance(key, int):
                return key or False
            cursor = connection.execute(
                "DELETE FROM conversation_items WHERE conversation = ? AND owner = ? AND id = ?",
                (key, owner, item_id),
            )
            if cursor.rowcount:
                mark(connection)
            return cursor.rowcount == 1

        return await self._writer.remove(run)

    async def lock(
        self, owner: str, conversation_id: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        if not is_storable(conversation_id):
            return None

        def run(connection: sqlite3.Connection) -> list[bytes] | AntiphonError | None:
            key = self._unlocked(connection, owner, conversation_id, holder=response_id)
            if not isinstance(key, int):
                return key
            bodies = _read(connection, owner, key, admit)
            if isinstance(bodies, list):
                connection.execute(
                    "UPDATE conversations SET locked_by = ?, writer = ?"
                    " WHERE key = ? AND owner = ?",
                    (response_id, self._presence.name, key, owner),
                )
            return bodies

        bodies = await self._writer.call(run)
        return None if bodies is None else await decode_aside(bodies)

    async def unlock(
        self,
        owner: str,
        conversation_id: str,
        response_id: str,
        said: Sequence[Item] = (),
    ) -> bool:
        if not is_storable(conversation_id):
            return False
        stored = await encode_aside(said)

        def run(connection: sqlite3.Connection) -> bool:
            row = connection.execute(
                "SELECT key FROM conversations WHERE owner = ? AND id = ? AND locked_by = ?",
                (owner, conversation_id, response_id),
            ).fetchone()
            if row is not None:
                release(connection, owner, row[0], stored)
            return row is not None

        return await self._writer.call(run, size_of(stored))

    def _unlocked(
        self,
        connection: sqlite3.Connection,
        owner: str,
        conversation_id: str,
        holder: str | None = None,
    ) -> int | ConversationLocked | None:
        """Return the key of a conversation, or an error if a response other than `holder` locks it.

        None if there is no such conversation.
        """
        row = connection.execute(_HOLDER, (owner, conversation_id)).fetchone()
        if row is None:
            return None
        key, locked_by, writer, is_unfinished = row
        if locked_by not in {None, holder} and (is_unfinished or self._presence.is_alive(writer)):
            return ConversationLocked(conversation_id)
        return int(key)


def release(
    connection: sqlite3.Connection, owner: str, key: int, said: Sequence[StoredItem]
) -> None:
    """Add these items to the conversation and end its lock.

    An item whose id exists already stays as it is.
    """
    _insert(connection, owner, key, said)
    connection.execute(
        "UPDATE conversations SET locked_by = NULL, writer = NULL WHERE key = ? AND owner = ?",
        (key, owner),
    )


def _get(connection: sqlite3.Connection, owner: str, conversation_id: str) -> Conversation | None:
    row = connection.execute(
        "SELECT body FROM conversations WHERE owner = ? AND id = ?", (owner, conversation_id)
    ).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=Conversation)


def _key(connection: sqlite3.Connection, owner: str, conversation_id: str) -> int | None:
    row = connection.execute(
        "SELECT key FROM conversations WHERE owner = ? AND id = ?", (owner, conversation_id)
    ).fetchone()
    return None if row is None else int(row[0])


def _read(
    connection: sqlite3.Connection, owner: str, key: int, admit: Admit | None
) -> list[bytes] | AntiphonError:
    """Return the body of every item, or the error with which `admit` refuses them."""
    size = connection.execute(_SIZE, (key, owner)).fetchone()
    if (refusal := refusal_of(admit, *size)) is not None:
        return refusal
    return [body for (body,) in connection.execute(_ITEMS, (key, owner))]


def _position(connection: sqlite3.Connection, owner: str, key: int, item_id: str) -> int | None:
    row = connection.execute(
        "SELECT position FROM conversation_items WHERE conversation = ? AND owner = ? AND id = ?",
        (key, owner, item_id),
    ).fetchone()
    return None if row is None else int(row[0])


def _insert(
    connection: sqlite3.Connection, owner: str, key: int, items: Sequence[StoredItem]
) -> None:
    connection.executemany(
        _INSERT,
        [
            {"key": key, "owner": owner, "id": item.id, "body": item.body}
            for item in items
            if item.id is not None
        ],
    )
