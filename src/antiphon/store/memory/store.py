"""A store in memory, for as long as the process lives.

Everything is stored as bytes, so no caller shares an object with the store, and every facet is
bounded. There is one writer, this store, which outlives all its turns: a turn is lost only when
it is deleted, or removed to make room. This module joins the facets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Admit, Batch, Entry, History, Log, Notice, Orphan
from antiphon.store.base.entries import group_entries
from antiphon.store.base.ledger import Settlement
from antiphon.store.base.rounds import KeptRound
from antiphon.store.encoding import (
    admit_bodies,
    compress_log,
    decode_aside,
    encode_aside,
    encode_turn,
    end_log,
    expand_log,
)
from antiphon.store.memory.audit import MemoryAudit
from antiphon.store.memory.blobs import MemoryBlobs
from antiphon.store.memory.claims import MemoryClaims
from antiphon.store.memory.containers import MemoryContainers
from antiphon.store.memory.conversations import MemoryConversations
from antiphon.store.memory.files import MemoryFiles
from antiphon.store.memory.keys import MemoryKeys
from antiphon.store.memory.ledger import MemoryLedger
from antiphon.store.memory.native_states import MemoryNativeStates
from antiphon.store.memory.notices import MemoryNotices
from antiphon.store.memory.projects import MemoryProjects
from antiphon.store.memory.rounds import MemoryRounds
from antiphon.store.memory.skills import MemorySkills
from antiphon.store.memory.tool_calls import MemoryToolCalls
from antiphon.store.memory.trees import MemoryTrees
from antiphon.store.memory.turns import MemoryTurns, StoredTurn
from antiphon.store.memory.vector_stores import MemoryVectorStores
from antiphon.store.pulse import Pulse
from antiphon.store.turns import encode_ending, lost_conversation
from antiphon.store.waiting import Waiters

__all__ = ["MemoryStore"]

_MAX_BLOB_BYTES: Final = 1024 * 1024 * 1024
# Charges are small, and a response may have several.
_CHARGES_EACH: Final = 10


class MemoryStore(MemoryKeys):
    """A store that ends with the process. See `Store` for what the methods do.

    `max_blob_bytes` caps the contents of all files.
    """

    def __init__(
        self, max_responses: int = 10_000, *, max_blob_bytes: int = _MAX_BLOB_BYTES
    ) -> None:
        self._is_closed = False
        self.pulse = Pulse()
        self.audit = MemoryAudit(self._check_open)
        super().__init__(self._check_open, self.audit, lambda owner: self.projects.row_of(owner))
        self._turns = MemoryTurns(max_responses, self._on_removal)
        self._waiters = Waiters()
        self.claims = MemoryClaims(self._check_open, max_responses)
        self.conversations = MemoryConversations(self._check_open, max_responses, self.claims)
        self.notices = MemoryNotices(self._check_open, max_responses)
        self.native_states = MemoryNativeStates(self._check_open)
        self.tool_calls = MemoryToolCalls(
            self._check_open, self._turns.response_of, self._turns.has
        )
        self.ledger = MemoryLedger(self._check_open, max_responses * _CHARGES_EACH, self.audit)
        self.rounds = MemoryRounds(self._check_open)
        self.trees = MemoryTrees(self._check_open, self._turns)
        self._file_claims = claims = MemoryClaims(
            self._check_open, max_responses, table="file_claims"
        )
        self.blobs = blobs = MemoryBlobs(self._check_open, max_blob_bytes)
        self.files = MemoryFiles(self._check_open, blobs, claims)
        self.containers = MemoryContainers(self._check_open, blobs, claims)
        self.skills = MemorySkills(self._check_open, blobs, claims)
        self.vector_stores = MemoryVectorStores(self._check_open, claims)
        self.files.on_removal.append(self.vector_stores.forget_file)
        self.files.sweeps += [self.containers.sweep, self.vector_stores.sweep]
        self.projects = MemoryProjects(
            self._check_open,
            self.audit,
            self.keys_of,
            [
                self._turns,
                self.rounds,
                self.conversations,
                self.claims,
                self.notices,
                self.native_states,
                self.tool_calls,
                claims,
                self.files,
                self.containers,
                self.skills,
                self.vector_stores,
                blobs,
                self,
            ],
        )
        # Keeps the entries of each kind (see `base.entries`). Any: of its own kind.
        # Nothing can be rolled back here, so a function must not fail.
        self._kinds: dict[type[Entry], Callable[[Sequence[Any]], None]] = {
            Notice: lambda notices: self.notices.add(notices),
            Settlement: lambda settled: self.ledger.settle_now(settled),
            KeptRound: lambda rounds: self.rounds.add(rounds),
        }

    async def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> None:
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
        turn = self._find(owner, response_id)
        if turn is not None and turn.is_open:
            self._turns.remove(owner, response_id)

    async def append(
        self, owner: str, response_id: str, batch: Batch, *, status: str | None = None
    ) -> bool:
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
        entries: Sequence[Entry] = (),
    ) -> None:
        ending = await encode_ending("", owner, response, batch, said, entries, self._kinds)
        self._check_open()
        turn = self._turns.open(owner, response.id)
        if said and not self.conversations.is_locked_by(owner, response.id):
            raise lost_conversation(response.id)
        turn.body, turn.outputs = ending.body, ending.output
        turn.status, turn.is_open = ending.status, False
        self._turns.index(owner, turn, turn.outputs)
        log = end_log(turn.log, batch)
        turn.log, turn.finished_log = [], compress_log(log) if log else None
        self.conversations.release(owner, response.id, ending.said)
        for kind, some in group_entries(entries).items():
            self._kinds[kind](some)
        self._waiters.wake(response.id)

    async def get(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> Response | None:
        turn = self._find(owner, response_id)
        if turn is None:
            return None
        admit_bodies(admit, [item.body for item in turn.outputs])
        return turn.response()

    async def read_log(self, owner: str, response_id: str, after: int = -1) -> Log | None:
        turn = self._find(owner, response_id)
        if turn is None:
            return None
        if turn.finished_log is not None:
            return Log(turn.response(), expand_log(turn.finished_log, after), is_kept=True)
        batches = [batch for batch in turn.log if batch.last > after]
        return Log(turn.response(), batches, is_kept=bool(turn.log))

    async def wait(self, response_id: str, seconds: float) -> None:
        self._check_open()
        await self._waiters.wait(response_id, seconds)

    async def delete(self, owner: str, response_id: str) -> bool:
        if self._find(owner, response_id) is None:
            return False
        self._turns.remove(owner, response_id)
        return True

    async def history(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> History | None:
        head = self._find(owner, response_id)
        if head is None:
            return None
        chain, missing = self._turns.chain(owner, head)
        bodies = [item.body for turn in reversed(chain) for item in turn.items]
        admit_bodies(admit, bodies)
        status, removals, weight = head.status, self._turns.removals, sum(map(len, bodies))
        items = await decode_aside(bodies)
        return History(items, status, missing, weight, len(chain), removals)

    async def removals(self) -> int:
        """Return how many responses were removed, also to make room."""
        self._check_open()
        return self._turns.removals

    async def input_items(
        self, owner: str, response_id: str, *, admit: Admit | None = None
    ) -> list[Item] | None:
        turn = self._find(owner, response_id)
        if turn is None:
            return None
        bodies = [item.body for item in turn.inputs]
        admit_bodies(admit, bodies)
        return await decode_aside(bodies)

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        self._check_open()
        found = self._turns.find_item(owner, item_id)
        return found or self.conversations.find_anywhere(owner, item_id)

    async def ask_cancel(self, owner: str, response_id: str) -> bool:
        turn = self._find(owner, response_id)
        if turn is None or not turn.is_open:
            return False
        turn.is_cancelled = True
        self._waiters.wake(response_id)
        return True

    async def count_alive(self) -> int:
        return 1

    async def asked_cancels(self) -> list[tuple[str, str]]:
        self._check_open()
        return self._turns.cancelled()

    async def claim_orphans(self, limit: int) -> list[Orphan]:
        """Return nothing: a process that died took its memory with it."""
        self._check_open()
        return []

    async def sweep_logs(self, before: int, limit: int) -> int:
        self._check_open()
        return self._turns.sweep_logs(before, limit)

    async def sweep(self, before: int, claims_before: int) -> int:
        self._check_open()
        self.notices.sweep(before)
        self.claims.sweep(claims_before)
        self._file_claims.sweep(claims_before)
        removed = self._turns.sweep(before)
        self.tool_calls.sweep(before)
        return removed

    async def ping(self) -> None:
        """Return: memory is there until the store is closed."""
        self._check_open()

    async def close(self) -> None:
        self._is_closed = True
        self.clear_keys()
        for kept in (self._turns, self.audit, self.projects):
            kept.clear()
        for facet in (self.conversations, self.claims, self.notices, self.native_states):
            facet.clear()
        for more in (self.tool_calls, self._file_claims, self.blobs, self.files, self.rounds):
            more.clear()
        for last in (self.containers, self.skills, self.vector_stores, self.ledger):
            last.clear()
        self._waiters.wake_all()

    def _find(self, owner: str, response_id: str) -> StoredTurn | None:
        self._check_open()
        return self._turns.get(owner, response_id)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed")

    def _on_removal(self, owner: str, response_id: str) -> None:
        self.conversations.release(owner, response_id)
        self.claims.forget_response(owner, response_id)
        self.native_states.forget_response(owner, response_id)
        self.tool_calls.forget_response(owner, response_id)
        self.rounds.forget_response(owner, response_id)
        self._waiters.wake(response_id)
