"""Responses, their logs and keys in memory, for as long as the process lives.

Room is bounded: when `max_responses` are there, the oldest goes, whatever its state, and a
chain that needed it reports it as missing. Everything is kept as bytes, so no caller shares
an object with the store. There is one writer, this store, which outlives all its turns: a
turn is lost only by being deleted or pushed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import (
    MAX_DEPTH,
    Admit,
    Batch,
    History,
    KeyRecord,
    Log,
    Notice,
    Orphan,
    Size,
)
from antiphon.store.encoding import (
    StoredItem,
    check_final,
    compress_log,
    decode_aside,
    decode_item,
    decode_turn,
    encode_aside,
    encode_items,
    encode_turn,
    end_log,
    expand_log,
    lost_conversation,
)
from antiphon.store.memory.claims import MemoryClaims, MemoryNotices
from antiphon.store.memory.conversations import MemoryConversations
from antiphon.store.waiting import Waiters

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
    log: list[Batch]
    outputs: list[StoredItem] = field(default_factory=list)
    finished_log: bytes | None = None
    is_open: bool = True
    is_cancelled: bool = False

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
        self._secrets: dict[str, bytes] = {}
        self._waiters = Waiters()
        self._is_closed = False
        self._removals = 0
        self.claims = MemoryClaims(self._check_open, max_responses)
        self.conversations = MemoryConversations(self._check_open, max_responses, self.claims)
        self.notices = MemoryNotices(self._check_open, max_responses)

    async def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> None:
        """Keep the turn; the oldest one makes room. A second begin of one id changes nothing."""
        self._check_open()
        inputs = await encode_aside(items)
        if (owner, response.id) in self._turns:
            return
        turn = _Turn(
            number=next(self._numbers),
            parent=response.previous_response_id,
            status=response.status,
            created_at=response.created_at,
            body=encode_turn(response),
            inputs=inputs,
            log=[] if batch is None else [batch],
        )
        while len(self._turns) >= self._max_responses:
            self._remove(next(iter(self._turns)))
        self._turns[owner, response.id] = turn
        self._index(owner, turn, turn.inputs)
        self._waiters.wake(response.id)

    async def forget(self, owner: str, response_id: str) -> None:
        """Undo a beginning."""
        self._check_open()
        turn = self._turns.get((owner, response_id))
        if turn is not None and turn.is_open:
            self._remove((owner, response_id))

    async def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> bool:
        """Add to the log; say whether somebody asked to cancel the response."""
        turn = self._open_turn(owner, response_id)
        turn.log.append(batch)
        turn.status = status or turn.status
        self._waiters.wake(response_id)
        return turn.is_cancelled

    async def finish(
        self,
        owner: str,
        response: Response,
        *,
        batch: Batch | None = None,
        said: Sequence[Item] = (),
        notices: Sequence[Notice] = (),
    ) -> None:
        """Keep the final state and all that goes with it."""
        check_final(response)
        added = await encode_aside(said)
        turn = self._open_turn(owner, response.id)
        if said and not self.conversations.is_locked_by(owner, response.id):
            raise lost_conversation(response.id)
        turn.body, turn.outputs = encode_turn(response), encode_items(response.output)
        turn.status, turn.is_open = response.status, False
        self._index(owner, turn, turn.outputs)
        log = end_log(turn.log, batch)
        turn.log, turn.finished_log = [], compress_log(log) if log else None
        self.conversations.release(owner, response.id, added)
        for notice in notices:
            self.notices.add(notice)
        self._waiters.wake(response.id)

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        """Return a response with its output, finished or not."""
        self._check_open()
        turn = self._turns.get((owner, response_id))
        if turn is None:
            return None
        if admit is not None:
            admit(Size(len(turn.outputs), sum(len(item.body) for item in turn.outputs)))
        return _response(turn)

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        """Return every batch that has an event behind the sequence number `after`."""
        self._check_open()
        turn = self._turns.get((owner, response_id))
        if turn is None:
            return None
        if turn.finished_log is not None:
            return Log(_response(turn), expand_log(turn.finished_log, after), is_kept=True)
        batches = [batch for batch in turn.log if batch.last > after]
        return Log(_response(turn), batches, is_kept=bool(turn.log))

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when something happened to the response, or the time is over."""
        self._check_open()
        await self._waiters.wait(response_id, seconds)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response, its items and its log; say whether there was one."""
        self._check_open()
        if (owner, response_id) not in self._turns:
            return False
        self._remove((owner, response_id))
        return True

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Return the items of the whole chain that ends in this response."""
        self._check_open()
        head = self._turns.get((owner, response_id))
        if head is None:
            return None
        chain, missing = self._walk(owner, head)
        stored = [item for turn in reversed(chain) for item in turn.items]
        weight = sum(len(item.body) for item in stored)
        if admit is not None:
            admit(Size(len(stored), weight))
        status, removals = head.status, self._removals
        items = await decode_aside([item.body for item in stored])
        return History(items, status, missing, weight, len(chain), removals)

    async def removals(self) -> int:
        """Return how many responses were removed or pushed out."""
        self._check_open()
        return self._removals

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return the turn's own input items in order."""
        self._check_open()
        turn = self._turns.get((owner, response_id))
        if turn is None:
            return None
        bodies = [item.body for item in turn.inputs]
        if admit is not None:
            admit(Size(len(bodies), sum(map(len, bodies))))
        return await decode_aside(bodies)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id; a response's comes before a conversation's."""
        self._check_open()
        turns = self._places.get((owner, item_id))
        if not turns:
            return self.conversations.find_anywhere(owner, item_id)
        newest = max(turns, key=lambda turn: turn.number)
        return next(decode_item(i.body) for i in reversed(newest.items) if i.id == item_id)

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        """Ask the writer of an unfinished response to cancel it; say whether there is such one."""
        self._check_open()
        turn = self._turns.get((owner, response_id))
        if turn is None or not turn.is_open:
            return False
        turn.is_cancelled = True
        self._waiters.wake(response_id)
        return True

    async def asked_cancels(self) -> list[tuple[str, str]]:
        """Return owner and id of those unfinished responses that somebody asked to cancel."""
        self._check_open()
        return [key for key, turn in self._turns.items() if turn.is_open and turn.is_cancelled]

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Return nothing: a process that died took its memory with it."""
        self._check_open()
        return []

    async def sweep(self, before: int, claims_before: int) -> int:
        """Remove responses created before the one time, claims before the other."""
        self._check_open()
        old = [key for key, turn in self._turns.items() if turn.created_at < before]
        for key in old:
            self._remove(key)
        self.notices.sweep(before)
        self.claims.sweep(claims_before)
        return len(old)

    async def secret(self, name: str, value: bytes) -> bytes:
        """Return the secret of this name; if there is none, keep and return this value."""
        self._check_open()
        return self._secrets.setdefault(name, value)

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
        for kept in (self._turns, self._places, self._keys, self._secrets):
            kept.clear()
        for facet in (self.conversations, self.claims, self.notices):
            facet.clear()
        self._waiters.wake_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    def _open_turn(self, owner: str, response_id: str) -> _Turn:
        self._check_open()
        turn = self._turns.get((owner, response_id))
        if turn is None:
            raise TurnLost(f"response {response_id!r} is not in the store; nothing was stored")
        if not turn.is_open:
            raise TurnLost(
                f"response {response_id!r} has already ended as {turn.status}; nothing was stored"
            )
        return turn

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
        (owner, response_id), turn = key, self._turns.pop(key)
        self._removals += 1
        self.conversations.release(owner, response_id)
        self.claims.forget_response(owner, response_id)
        self._waiters.wake(response_id)
        for item_id in {item.id for item in turn.items if item.id is not None}:
            rest = [other for other in self._places[owner, item_id] if other is not turn]
            if rest:
                self._places[owner, item_id] = rest
            else:
                del self._places[owner, item_id]


def _response(turn: _Turn) -> Response:
    return decode_turn(turn.body, _decode(turn.outputs), turn.status)


def _decode(items: list[StoredItem]) -> list[Item]:
    return [decode_item(item.body) for item in items]
