"""Both stores do what a dict of lists would do, whatever the order of calls."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import DONE_STATUSES, Failure, Response
from antiphon.store import History, MemoryStore, SqliteStore, Store

OWNERS = st.sampled_from(["alice", "bob"])
NAMES = st.sampled_from(["r0", "r1", "r2", "r3", "r\x00", "🎵"])
ITEM_IDS = st.sampled_from(["i0", "i1", "i2", "i3"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
ITEMS = st.lists(
    st.builds(lambda item_id, more: {"type": "message", "id": item_id, "x": more}, ITEM_IDS, JSON),
    max_size=3,
)


@dataclass
class Turn:
    number: int
    response: Response
    inputs: list[Item]
    outputs: list[Item] = field(default_factory=list)


class StoreMachine(RuleBasedStateMachine):
    """The model is a dict of turns; each question goes to it and to both stores."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[tuple[str, str], Turn] = {}
        self.count = 0
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "a.db"
        self.memory = MemoryStore()
        self.sqlite = SqliteStore(self.path)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.sqlite.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.directory.cleanup()

    def both(self, method: str, *args: Any) -> Any:
        """Ask both stores; return their one answer. Any: each method has its own."""

        async def ask(store: Store) -> Any:
            try:
                return await getattr(store, method)(*args)
            except StoreUnavailable as error:
                return type(error)

        answers = [self.loop.run_until_complete(ask(s)) for s in (self.memory, self.sqlite)]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        owner=OWNERS,
        name=NAMES,
        parent=st.none() | NAMES,
        items=ITEMS,
        time=st.integers(0, 5),
        more=st.dictionaries(st.text(max_size=4), JSON, max_size=2),
    )
    def begin(
        self, owner: str, name: str, parent: str | None, items: list[Item], time: int, more: Any
    ) -> None:
        response = Response(
            id=name, previous_response_id=parent, created_at=time, metadata=more, extra={"x": more}
        )
        if self._is_loop(owner, name, parent):
            return
        self.both("begin", owner, response, items)
        self.turns.setdefault((owner, name), Turn(self.count, response, items))
        self.count += 1

    @rule(owner=OWNERS, name=NAMES, output=ITEMS, status=st.sampled_from(sorted(DONE_STATUSES)))
    def finish(self, owner: str, name: str, output: list[Item], status: str) -> None:
        turn = self.turns.get((owner, name))
        parent = turn.response.previous_response_id if turn else None
        ended = Response(
            id=name,
            status=status,
            output=output,
            previous_response_id=parent,
            created_at=turn.response.created_at if turn else 0,
        )
        answer = self.both("finish", owner, ended)
        if turn is None or turn.response.status in DONE_STATUSES:
            assert answer is StoreUnavailable
        else:
            assert answer is None
            turn.response, turn.outputs = ended, output

    @rule(owner=OWNERS, name=NAMES)
    def delete(self, owner: str, name: str) -> None:
        assert self.both("delete", owner, name) == ((owner, name) in self.turns)
        self.turns.pop((owner, name), None)

    @rule(before=st.integers(0, 4))
    def sweep(self, before: int) -> None:
        old = [key for key, turn in self.turns.items() if turn.response.created_at < before]
        assert self.both("sweep", before) == len(old)
        for key in old:
            del self.turns[key]

    @precondition(lambda self: self.turns)
    @rule()
    def reopen(self) -> None:
        """The file is all there is."""
        self.loop.run_until_complete(self.sqlite.close())
        self.sqlite = SqliteStore(self.path)

    @precondition(lambda self: self.turns)
    @rule()
    def recover(self) -> None:
        """A turn of a store that was closed is failed; finish what is open first."""
        for (owner, name), turn in list(self.turns.items()):
            if turn.response.status not in DONE_STATUSES:
                self.finish(owner, name, [], "cancelled")
        assert self.both("recover", Failure("x", "y"), 1) == 0

    @rule(owner=OWNERS, name=NAMES)
    def look(self, owner: str, name: str) -> None:
        turn = self.turns.get((owner, name))
        self.loop.run_until_complete(self.sqlite.ping())
        assert self.both("get", owner, name) == (turn and turn.response)
        assert self.both("input_items", owner, name) == (turn.inputs if turn else None)
        assert self.both("history", owner, name) == self._history(owner, name)

    @rule(owner=OWNERS, item_id=ITEM_IDS)
    def find(self, owner: str, item_id: str) -> None:
        self.loop.run_until_complete(self.sqlite.ping())
        mine = [turn for (whose, _), turn in self.turns.items() if whose == owner]
        mine.sort(key=lambda turn: turn.number)
        found = [i for turn in mine for i in turn.inputs + turn.outputs if i["id"] == item_id]
        assert self.both("find_item", owner, item_id) == (found[-1] if found else None)

    @invariant()
    def stays_bounded(self) -> None:
        assert len(self.turns) <= 12

    def _history(self, owner: str, name: str) -> History | None:
        turn = head = self.turns.get((owner, name))
        items: list[Item] = []
        missing = None
        while turn is not None:
            items = turn.inputs + turn.outputs + items
            missing = turn.response.previous_response_id
            turn = self.turns.get((owner, missing)) if missing else None
        return None if head is None else History(items, head.response.status, missing)

    def _is_loop(self, owner: str, name: str, parent: str | None) -> bool:
        """Real ids are never used twice, so no chain can bite its tail."""
        seen = {name}
        while parent is not None and parent not in seen:
            seen.add(parent)
            turn = self.turns.get((owner, parent))
            parent = turn.response.previous_response_id if turn else None
        return parent is not None


TestStores = StoreMachine.TestCase
TestStores.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
