"""The SQL of facet `conversations` in SQLite.

A function gets a connection inside a transaction, which the caller begins and commits.
What must not be done is returned as an error and nothing is changed: an error that is raised
would undo the work of others in the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import AntiphonError, ConversationLocked
from antiphon.protocol.items import Item
from antiphon.store.base import Admit, Claim, ClaimRequest, Conversation
from antiphon.store.encoding import StoredItem, decode_item, names_of, refusal_of
from antiphon.store.sqlite.claims import earlier_claim, note_once
from antiphon.store.sqlite.erasure import mark

__all__ = [
    "add",
    "create",
    "delete",
    "find",
    "find_anywhere",
    "get",
    "items",
    "lock",
    "page",
    "release",
    "remove",
    "unlock",
    "update",
]

_IsAlive = Callable[[str], bool]

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


def create(
    connection: sqlite3.Connection,
    owner: str,
    conversation: Conversation,
    items: Sequence[StoredItem],
    once: ClaimRequest | None,
    writer: str,
    is_alive: _IsAlive,
) -> ValueError | Claim | None:
    """Insert a conversation with its first items, unless done before."""
    earlier = earlier_claim(connection, owner, once, is_alive)
    if earlier is not None and _key(connection, owner, earlier.response_id) is not None:
        return earlier
    cursor = connection.execute(
        "INSERT OR IGNORE INTO conversations (owner, id, body) VALUES (?, ?, ?)",
        (owner, conversation.id, msgspec.json.encode(conversation)),
    )
    if not cursor.rowcount or cursor.lastrowid is None:
        return ValueError(f"there already is a conversation {conversation.id!r}")
    _insert(connection, owner, cursor.lastrowid, items)
    note_once(connection, owner, once, conversation.id, writer)
    return None


def get(connection: sqlite3.Connection, owner: str, conversation_id: str) -> Conversation | None:
    """Return the conversation without its items."""
    row = connection.execute(
        "SELECT body FROM conversations WHERE owner = ? AND id = ?", (owner, conversation_id)
    ).fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=Conversation)


def update(
    connection: sqlite3.Connection, owner: str, conversation_id: str, metadata: dict[str, Any]
) -> Conversation | None:
    """Replace the metadata; return the conversation as it is now."""
    found = get(connection, owner, conversation_id)
    if found is None:
        return None
    changed = msgspec.structs.replace(found, metadata=metadata)
    connection.execute(
        "UPDATE conversations SET body = ? WHERE owner = ? AND id = ?",
        (msgspec.json.encode(changed), owner, conversation_id),
    )
    return changed


def delete(
    connection: sqlite3.Connection, owner: str, conversation_id: str, is_alive: _IsAlive
) -> bool | ConversationLocked:
    """Remove a conversation that is not locked, and its items."""
    key = _unlocked(connection, owner, conversation_id, is_alive)
    if not isinstance(key, int):
        return key or False
    connection.execute(
        "DELETE FROM conversation_items WHERE conversation = ? AND owner = ?", (key, owner)
    )
    connection.execute("DELETE FROM conversations WHERE key = ? AND owner = ?", (key, owner))
    mark(connection)
    return True


def items(
    connection: sqlite3.Connection,
    owner: str,
    conversation_id: str,
    admit: Admit | None = None,
) -> list[bytes] | AntiphonError | None:
    """Return every item in order, as it is stored, if they are admitted."""
    key = _key(connection, owner, conversation_id)
    if key is None:
        return None
    refusal = _refusal(connection, owner, key, admit)
    return refusal or _bodies(connection, _ITEMS, (key, owner))


def page(
    connection: sqlite3.Connection,
    owner: str,
    conversation_id: str,
    after: str | None,
    limit: int,
    *,
    is_descending: bool,
    admit: Admit | None = None,
) -> list[bytes] | KeyError | AntiphonError | None:
    """Return at most `limit` items after the item `after`, as stored, if they are admitted."""
    key = _key(connection, owner, conversation_id)
    if key is None:
        return None
    start = _START[is_descending] if after is None else _position(connection, owner, key, after)
    if start is None:
        return KeyError(after)
    place = (key, owner, start, limit)
    if admit is not None:
        size = connection.execute(_PAGE_SIZES[is_descending], place).fetchone()
        if (refusal := refusal_of(admit, *size)) is not None:
            return refusal
    return _bodies(connection, _PAGES[is_descending], place)


def add(
    connection: sqlite3.Connection,
    owner: str,
    conversation_id: str,
    items: Sequence[StoredItem],
    once: ClaimRequest | None,
    writer: str,
    is_alive: _IsAlive,
) -> bool | Claim | ConversationLocked | ValueError:
    """Add items at the end of a conversation that is not locked, unless done before."""
    earlier = earlier_claim(connection, owner, once, is_alive)
    if earlier is not None and _key(connection, owner, conversation_id) is not None:
        return earlier
    key = _unlocked(connection, owner, conversation_id, is_alive)
    if not isinstance(key, int):
        return key or False
    for item in items:
        if item.id is not None and _position(connection, owner, key, item.id) is not None:
            return ValueError(f"the conversation already has an item {item.id!r}")
    _insert(connection, owner, key, items)
    note_once(connection, owner, once, names_of(items), writer)
    return True


def find(
    connection: sqlite3.Connection, owner: str, conversation_id: str, item_id: str
) -> Item | None:
    """Return one item."""
    key = _key(connection, owner, conversation_id)
    row = connection.execute(
        "SELECT body FROM conversation_items WHERE conversation = ? AND owner = ? AND id = ?",
        (key, owner, item_id),
    ).fetchone()
    return None if row is None else decode_item(row[0])


def find_anywhere(connection: sqlite3.Connection, owner: str, item_id: str) -> Item | None:
    """Return the item with this id of the conversation that was made last."""
    row = connection.execute(
        "SELECT body FROM conversation_items WHERE owner = ? AND id = ?"
        " ORDER BY conversation DESC LIMIT 1",
        (owner, item_id),
    ).fetchone()
    return None if row is None else decode_item(row[0])


def remove(
    connection: sqlite3.Connection,
    owner: str,
    conversation_id: str,
    item_id: str,
    is_alive: _IsAlive,
) -> bool | ConversationLocked:
    """Remove one item of a conversation that is not locked."""
    key = _unlocked(connection, owner, conversation_id, is_alive)
    if not isinstance(key, int):
        return key or False
    cursor = connection.execute(
        "DELETE FROM conversation_items WHERE conversation = ? AND owner = ? AND id = ?",
        (key, owner, item_id),
    )
    if cursor.rowcount:
        mark(connection)
    return cursor.rowcount == 1


def lock(
    connection: sqlite3.Connection,
    owner: str,
    conversation_id: str,
    response_id: str,
    writer: str,
    is_alive: _IsAlive,
    admit: Admit | None = None,
) -> list[bytes] | AntiphonError | None:
    """Lock a conversation for this response, unless another has; return its items."""
    is_ours = _holder(connection, owner, conversation_id) == response_id
    key = (
        _key(connection, owner, conversation_id)
        if is_ours
        else _unlocked(connection, owner, conversation_id, is_alive)
    )
    if not isinstance(key, int):
        return key
    refusal = _refusal(connection, owner, key, admit)
    if refusal is not None:
        return refusal
    connection.execute(
        "UPDATE conversations SET locked_by = ?, writer = ? WHERE key = ? AND owner = ?",
        (response_id, writer, key, owner),
    )
    return _bodies(connection, _ITEMS, (key, owner))


def unlock(
    connection: sqlite3.Connection,
    owner: str,
    conversation_id: str,
    response_id: str,
    said: Sequence[StoredItem],
) -> bool:
    """Add these items and end the lock, if this response holds it; return whether it did."""
    key = _key(connection, owner, conversation_id)
    if key is None or _holder(connection, owner, conversation_id) != response_id:
        return False
    release(connection, owner, key, said)
    return True


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


def _unlocked(
    connection: sqlite3.Connection, owner: str, conversation_id: str, is_alive: _IsAlive
) -> int | ConversationLocked | None:
    """Return the key of a conversation, or an error if it is locked.

    A lock is stale if the store that took it has died and no other will finish the response:
    it never began, or it has ended.
    """
    row = connection.execute(
        "SELECT key, locked_by, writer FROM conversations WHERE owner = ? AND id = ?",
        (owner, conversation_id),
    ).fetchone()
    if row is None:
        return None
    key, response_id, writer = row
    if response_id is not None and (
        is_alive(writer) or _is_unfinished(connection, owner, response_id)
    ):
        return ConversationLocked(conversation_id)
    return int(key)


def _is_unfinished(connection: sqlite3.Connection, owner: str, response_id: str) -> bool:
    row = connection.execute(
        "SELECT writer FROM responses WHERE owner = ? AND id = ?", (owner, response_id)
    ).fetchone()
    return row is not None and row[0] is not None


def _holder(connection: sqlite3.Connection, owner: str, conversation_id: str) -> str | None:
    row = connection.execute(
        "SELECT locked_by FROM conversations WHERE owner = ? AND id = ?", (owner, conversation_id)
    ).fetchone()
    return None if row is None else row[0]


def _key(connection: sqlite3.Connection, owner: str, conversation_id: str) -> int | None:
    row = connection.execute(
        "SELECT key FROM conversations WHERE owner = ? AND id = ?", (owner, conversation_id)
    ).fetchone()
    return None if row is None else int(row[0])


def _refusal(
    connection: sqlite3.Connection, owner: str, key: int, admit: Admit | None
) -> AntiphonError | None:
    count, size = connection.execute(_SIZE, (key, owner)).fetchone()
    return refusal_of(admit, count, size)


def _position(connection: sqlite3.Connection, owner: str, key: int, item_id: str) -> int | None:
    row = connection.execute(
        "SELECT position FROM conversation_items WHERE conversation = ? AND owner = ? AND id = ?",
        (key, owner, item_id),
    ).fetchone()
    return None if row is None else int(row[0])


def _bodies(
    connection: sqlite3.Connection, question: str, values: tuple[int | str, ...]
) -> list[bytes]:
    return [body for (body,) in connection.execute(question, values)]


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
