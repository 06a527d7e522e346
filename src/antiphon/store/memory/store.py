"""A store in memory, for as long as the process lives.

Everything is stored as bytes, so no caller shares an object with the store, and every facet is
bounded. There is one writer, this store, which outlives all its turns: a turn is lost only when
it is deleted, or removed to make room. This module joins the facets.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import (
    Admit,
    Batch,
    Entry,
    History,
    KeyRecord,
    Log,
    Notice,
    Orphan,
    Size,
)
from antiphon.store.base.entries import check_entries
from antiphon.store.encoding import (
    check_final,
    compress_log,
    decode_aside,
    encode_aside,
    encode_items,
    encode_turn,
    end_log,
    expand_log,
    lost_conversation,
)
from antiphon.store.memory.claims import MemoryClaims
from antiphon.store.memory.conversations import MemoryConversations
from antiphon.store.memory.entries import MemoryEntries
from antiphon.store.memory.keys import MemoryKeys
from antiphon.store.memory.notices import MemoryNotices
from antiphon.store.memory.turns import MemoryTurns, StoredTurn
from antiphon.store.waiting import Waiters

__all__ = ["MemoryStore"]


class MemoryStore:
    """A store that ends with the process. See `Store` for what the methods do."""

    def __init__(self, max_responses: int = 10_000) -> None:
        self._turns = MemoryTurns(max_responses, self._on_removal)
        self._keys = MemoryKeys()
        self._secrets: dict[str, bytes] = {}
        self._waiters = Waiters()
        self._is_closed = False
        self.claims = MemoryClaims(self._check_open, max_responses)
        self.conversations = MemoryConversations(self._check_open, max_responses, self.claims)
        self.notices = MemoryNotices(self._check_open, max_responses)
        self._entries = MemoryEntries(lambda notices: self.notices.add(notices))

    async def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> None:
        """Store the turn; the oldest one makes room. A second begin of one id changes nothing."""
        self._check_open()
        inputs = await encode_aside(items)
        if self._turns.get(owner, response.id) is not None:
            return
        turn = StoredTurn(
            parent=response.previous_response_id,
            status=response.status,
            created_at=response.created_at,
            body=encode_turn(response),
            inputs=inputs,
            log=[] if batch is None else [batch],
        )
        self._turns.add(owner, response.id, turn)
        self._waiters.wake(response.id)

    async def forget(self, owner: str, response_id: str) -> None:
        """Undo a beginning."""
        self._check_open()
        turn = self._turns.get(owner, response_id)
        if turn is not None and turn.is_open:
            self._turns.remove(owner, response_id)

    async def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> bool:
        """Add to the log; return whether a cancellation was requested."""
        self._check_open()
        turn = self._turns.open(owner, response_id)
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
        entries: Sequence[Entry] = (),
    ) -> None:
        """Store the final state and everything that belongs to it."""
        check_final(response)
        kept = (*notices, *entries)
        check_entries(kept, self._entries.kinds)
        added = await encode_aside(said)
        self._check_open()
        turn = self._turns.open(owner, response.id)
        if said and not self.conversations.is_locked_by(owner, response.id):
            raise lost_conversation(response.id)
        turn.body, turn.outputs = encode_turn(response), encode_items(response.output)
        turn.status, turn.is_open = response.status, False
        self._turns.index(owner, turn, turn.outputs)
        log = end_log(turn.log, batch)
        turn.log, turn.finished_log = [], compress_log(log) if log else None
        self.conversations.release(owner, response.id, added)
        self._entries.write(kept)
        self._waiters.wake(response.id)

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        """Return a response with its output, finished or not."""
        self._check_open()
        turn = self._turns.get(owner, response_id)
        if turn is None:
            return None
        if admit is not None:
            admit(Size(len(turn.outputs), sum(len(item.body) for item in turn.outputs)))
        return turn.response()

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        """Return every batch that has an event after the sequence number `after`."""
        self._check_open()
        turn = self._turns.get(owner, response_id)
        if turn is None:
            return None
        if turn.finished_log is not None:
            return Log(turn.response(), expand_log(turn.finished_log, after), is_kept=True)
        batches = [batch for batch in turn.log if batch.last > after]
        return Log(turn.response(), batches, is_kept=bool(turn.log))

    async def wait(self, response_id: str, seconds: float) -> None:
        """Return when the response changed, or the time is over."""
        self._check_open()
        await self._waiters.wait(response_id, seconds)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response, its items and its log; return whether there was one."""
        self._check_open()
        if self._turns.get(owner, response_id) is None:
            return False
        self._turns.remove(owner, response_id)
        return True

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        """Return the items of the whole chain that ends in this response."""
        self._check_open()
        head = self._turns.get(owner, response_id)
        if head is None:
            return None
        chain, missing = self._turns.chain(owner, head)
        stored = [item for turn in reversed(chain) for item in turn.items]
        weight = sum(len(item.body) for item in stored)
        if admit is not None:
            admit(Size(len(stored), weight))
        status, removals = head.status, self._turns.removals
        items = await decode_aside([item.body for item in stored])
        return History(items, status, missing, weight, len(chain), removals)

    async def removals(self) -> int:
        """Return how many responses were removed, also to make room."""
        self._check_open()
        return self._turns.removals

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        """Return the turn's own input items in order."""
        self._check_open()
        turn = self._turns.get(owner, response_id)
        if turn is None:
            return None
        bodies = [item.body for item in turn.inputs]
        if admit is not None:
            admit(Size(len(bodies), sum(map(len, bodies))))
        return await decode_aside(bodies)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id; a response's comes before a conversation's."""
        self._check_open()
        found = self._turns.find_item(owner, item_id)
        return found or self.conversations.find_anywhere(owner, item_id)

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        """Ask the writer of an unfinished response to cancel it; return whether there is one."""
        self._check_open()
        turn = self._turns.get(owner, response_id)
        if turn is None or not turn.is_open:
            return False
        turn.is_cancelled = True
        self._waiters.wake(response_id)
        return True

    async def asked_cancels(self) -> list[tuple[str, str]]:
        """Return owner and id of the unfinished responses whose cancellation was requested."""
        self._check_open()
        return self._turns.cancelled()

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Return nothing: a process that died took its memory with it."""
        self._check_open()
        return []

    async def sweep(self, before: int, claims_before: int) -> int:
        """Remove responses created before one time, and claims before the other."""
        self._check_open()
        self.notices.sweep(before)
        self.claims.sweep(claims_before)
        return self._turns.sweep(before)

    async def secret(self, name: str, value: bytes) -> bytes:
        """Return the secret of this name; if it is new, store and return this value."""
        self._check_open()
        return self._secrets.setdefault(name, value)

    async def add_key(self, key: KeyRecord) -> None:
        """Store a new key. Raise ValueError if its id is taken."""
        self._check_open()
        self._keys.add(key)

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        self._check_open()
        return self._keys.find(key_id)

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        self._check_open()
        return self._keys.all()

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; False if it does not exist, was revoked or has expired."""
        self._check_open()
        return self._keys.revoke(key_id, now)

    async def ping(self) -> None:
        """Return: memory is there until the store is closed."""
        self._check_open()

    async def close(self) -> None:
        """Remove everything."""
        self._is_closed = True
        self._secrets.clear()
        for facet in (self._turns, self._keys, self.conversations, self.claims, self.notices):
            facet.clear()
        self._waiters.wake_all()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    def _on_removal(self, owner: str, response_id: str) -> None:
        self.conversations.release(owner, response_id)
        self.claims.forget_response(owner, response_id)
        self._waiters.wake(response_id)
