"""Responses and keys in memory, for as long as the process lives.

Room is bounded: when `max_responses` are there, the oldest goes, whatever its state, and a
chain that needed it reports it as missing. Everything is kept as bytes, so no caller shares
an object with the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Failure, Response
from antiphon.store.base import MAX_DEPTH, History, KeyRecord
from antiphon.store.encoding import (
    StoredItem,
    check_final,
    decode_item,
    decode_turn,
    encode_items,
    encode_turn,
)

__all__ = ["MemoryStore"]

_Key = tuple[str, str]


@dataclass(slots=True)
class _Turn:
    number: int
    parent: str | None
    status: str
    created_at: float
    body: bytes
    inputs: list[StoredItem]
    outputs: list[StoredItem] = field(default_factory=list)
    is_open: bool = True

    @property
    def items(self) -> list[StoredItem]:
        return self.inputs + self.outputs


class MemoryStore:
    """A store that forgets everything with the process. See `Store` for what the methods do."""

    def __init__(self, max_responses: int = 10_000) -> None:
        self._max_responses = max_responses
        self._numbers = count()
        self._turns: dict[_Key, _Turn] = {}
        self._places: dict[_Key, list[_Turn]] = {}
        self._keys: dict[str, KeyRecord] = {}
        self._is_closed = False

    async def begin(self, owner: str, response: Response, items: Sequence[Item]) -> None:
        """Keep the turn; the oldest one makes room. A second begin of one id changes nothing."""
        self._check_open()
        if (owner, response.id) in self._turns:
            return
        turn = _Turn(
            number=next(self._numbers),
            parent=response.previous_response_id,
            status=response.status,
            created_at=response.created_at,
            body=encode_turn(response),
            inputs=encode_items(items),
        )
        while len(self._turns) >= self._max_responses:
            self._remove(next(iter(self._turns)))
        self._turns[owner, response.id] = turn
        self._index(owner, turn, turn.inputs)

    async def finish(self, owner: str, response: Response) -> None:
        """Keep the final state. Raise StoreUnavailable if the response is not open here."""
        self._check_open()
        check_final(response)
        turn = self._turns.get((owner, response.id))
        if turn is None or not turn.is_open:
            obstacle = (
                "is not in the store" if turn is None else f"has already ended as {turn.status}"
            )
            raise StoreUnavailable(f"response {response.id!r} {obstacle}; nothing was stored")
        turn.body, turn.outputs = encode_turn(response), encode_items(response.output)
        turn.status, turn.is_open = response.status, False
        self._index(owner, turn, turn.outputs)

    async def get(self, owner: str, response_id: str) -> Response | None:
        """Return a response with its output, finished or not."""
        self._check_open()
        turn = self._turns.get((owner, response_id))
        return None if turn is None else decode_turn(turn.body, _decode(turn.outputs))

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response and its items; say whether there was one."""
        self._check_open()
        if (owner, response_id) not in self._turns:
            return False
        self._remove((owner, response_id))
        return True

    async def history(self, owner: str, response_id: str) -> History | None:
        """Return the items of the whole chain that ends in this response."""
        self._check_open()
        head = self._turns.get((owner, response_id))
        if head is None:
            return None
        chain, missing = self._walk(owner, head)
        items = [decode_item(item.body) for turn in reversed(chain) for item in turn.items]
        return History(items, head.status, missing)

    async def input_items(self, owner: str, response_id: str) -> list[Item] | None:
        """Return the turn's own input items in order."""
        self._check_open()
        turn = self._turns.get((owner, response_id))
        return None if turn is None else _decode(turn.inputs)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id."""
        self._check_open()
        turns = self._places.get((owner, item_id))
        if not turns:
            return None
        newest = max(turns, key=lambda turn: turn.number)
        return next(decode_item(i.body) for i in reversed(newest.items) if i.id == item_id)

    async def recover(self, failure: Failure, now: int) -> int:
        """Return 0: a process that died took its memory with it."""
        self._check_open()
        return 0

    async def sweep(self, before: int) -> int:
        """Remove responses created before this time; return how many."""
        self._check_open()
        old = [key for key, turn in self._turns.items() if turn.created_at < before]
        for key in old:
            self._remove(key)
        return len(old)

    async def add_key(self, key: KeyRecord) -> None:
        """Keep a new key. Raise ValueError if its id is taken."""
        self._check_open()
        if key.id in self._keys:
            raise ValueError(f"there already is a key {key.id!r}")
        self._keys[key.id] = key

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        self._check_open()
        return self._keys.get(key_id)

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        self._check_open()
        return sorted(self._keys.values(), key=lambda key: key.created_at)

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; False if there is none, or it was revoked or had expired."""
        self._check_open()
        key = self._keys.get(key_id)
        if key is None or key.revoked_at is not None:
            return False
        if key.expires_at is not None and key.expires_at <= now:
            return False
        self._keys[key_id] = msgspec.structs.replace(key, revoked_at=now)
        return True

    async def ping(self) -> None:
        """Return: memory is there until the store is closed."""
        self._check_open()

    async def close(self) -> None:
        """Forget everything."""
        self._is_closed = True
        self._turns.clear()
        self._places.clear()
        self._keys.clear()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    def _walk(self, owner: str, head: _Turn) -> tuple[list[_Turn], str | None]:
        """Return the chain from its head to its root, and the id at which it breaks off."""
        chain = [head]
        while (parent := chain[-1].parent) is not None:
            turn = self._turns.get((owner, parent))
            if turn is None or len(chain) == MAX_DEPTH:
                return chain, parent
            chain.append(turn)
        return chain, None

    def _index(self, owner: str, turn: _Turn, items: list[StoredItem]) -> None:
        for item in items:
            if item.id is not None:
                self._places.setdefault((owner, item.id), []).append(turn)

    def _remove(self, key: _Key) -> None:
        owner, turn = key[0], self._turns.pop(key)
        for item_id in {item.id for item in turn.items if item.id is not None}:
            rest = [other for other in self._places[owner, item_id] if other is not turn]
            if rest:
                self._places[owner, item_id] = rest
            else:
                del self._places[owner, item_id]


def _decode(items: list[StoredItem]) -> list[Item]:
    return [decode_item(item.body) for item in items]
