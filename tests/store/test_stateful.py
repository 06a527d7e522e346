"""Stores do what dicts of lists would do, in any order of calls.

Each question goes to the memory store, to one that is kept and to a model; the three agree.
Between two calls the kept one may be closed and opened again: it is all there is.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.protocol.codec import encode_item
from antiphon.protocol.errors import ConversationLocked, TurnLost
from antiphon.protocol.items import Item
from antiphon.protocol.response import DONE_STATUSES, Response
from antiphon.protocol.thread import Thread
from antiphon.store import History, MemoryStore, SqliteStore
from antiphon.store.base import Batch, Conversation, ItemPage, Log, Orphan, Store
from antiphon.store.postgres import PostgresStore
from tests.postgres import fresh_database

Key = tuple[str, str]

# A context of so many bytes is worth sharing with other turns.
_LONG = 1024 * 1024

OWNERS = st.sampled_from(["alice", "bob"])
NAMES = st.sampled_from(["r0", "r1", "r2", "r\x01", "🎵"])
TALKS = st.sampled_from(["c0", "c1"])
ITEM_IDS = st.sampled_from(["i0", "i1", "i2", "i3", "i4"])
BODIES = st.binary(max_size=12)
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
    log: list[Batch] = field(default_factory=list)
    request: bytes | None = None
    is_cancelled: bool = False

    @property
    def is_open(self) -> bool:
        return self.response.status not in DONE_STATUSES

    @property
    def next_number(self) -> int:
        return self.log[-1].last + 1 if self.log else 0


@dataclass
class Talk:
    number: int
    conversation: Conversation
    items: list[Item]
    lock: str | None = None

    def place(self, item_id: str) -> int | None:
        return next((n for n, item in enumerate(self.items) if item["id"] == item_id), None)

    def add(self, items: list[Item]) -> None:
        for item in items:
            if self.place(item["id"]) is None:
                self.items.append(item)


class StoreMachine(RuleBasedStateMachine):
    """The model is two dicts; each question goes to it and to both stores."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[Key, Turn] = {}
        self.talks: dict[Key, Talk] = {}
        self.contexts: dict[str, list[Thread]] = {}
        self.count = 0
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "a.db"
        self.memory = MemoryStore()
        self.kept = self._open()

    def _open(self) -> Store:
        return SqliteStore(self.path)

    def teardown(self) -> None:
        for owner, name in self.turns:
            assert self.both("delete", owner, name)
        self.loop.run_until_complete(self.kept.close())
        self._end()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.directory.cleanup()

    def _end(self) -> None:
        """Check that nothing is left of turns that were deleted."""
        with closing(sqlite3.connect(self.path)) as connection:
            for table in ("responses", "items", "inputs"):
                question = f"SELECT count(*) FROM {table}"
                assert connection.execute(question).fetchone() == (0,), table

    def both(self, method: str, *args: Any, **more: Any) -> Any:
        """Ask both stores; return their one answer, or the kind of error.

        Any: each method has its own answer.
        """

        async def ask(store: Store) -> Any:
            try:
                return await attrgetter(method)(store)(*args, **more)
            except (TurnLost, ConversationLocked, ValueError, KeyError) as error:
                return type(error)

        answers = [self.loop.run_until_complete(ask(s)) for s in (self.memory, self.kept)]
        assert answers[0] == answers[1]
        return answers[0]

    def talk_of(self, owner: str, name: str) -> Talk | None:
        """Return the conversation that a response has locked."""
        mine = (talk for (whose, _), talk in self.talks.items() if whose == owner)
        return next((talk for talk in mine if talk.lock == name), None)

    # Turns

    @rule(
        key=st.tuples(OWNERS, NAMES),
        parent=st.none() | NAMES,
        items=ITEMS,
        time=st.integers(0, 5),
        more=st.dictionaries(st.text(max_size=4), JSON, max_size=2),
        body=st.none() | BODIES,
        request=st.none() | BODIES,
        context=st.none() | st.tuples(st.integers(0, 3), ITEMS),
    )
    def begin(  # all that a turn begins with
        self,
        key: Key,
        parent: str | None,
        items: list[Item],
        time: int,
        more: Any,
        body: bytes | None,
        request: bytes | None,
        context: tuple[int, list[Item]] | None,
    ) -> None:
        owner, name = key
        given = items if context is None else self._resend(owner, *context, items)
        response = Response(
            id=name,
            previous_response_id=parent,
            created_at=time,
            metadata=more,
            status="queued" if request else "in_progress",
            extra={"x": more},
        )
        if self._is_loop(owner, name, parent):
            return
        batch = None if body is None else Batch(0, len(body), body)
        self.both("begin", owner, response, given, batch=batch, request=request)
        log = [batch] if batch else []
        turn = Turn(self.count, response, list(given), log=log, request=request)
        self.turns.setdefault(key, turn)
        self.count += 1

    def _resend(self, owner: str, number: int, new: list[Item], tail: list[Item]) -> Thread:
        """Return a context that was sent before, with items that are new, as it is kept."""
        known = self.contexts.setdefault(owner, [Thread(weight=_LONG)])
        known.append(known[number % len(known)].grow(new))
        return known[-1].with_tail(tail)

    @rule(key=st.tuples(OWNERS, NAMES), body=BODIES, status=st.none() | st.just("in_progress"))
    def append(self, key: Key, body: bytes, status: str | None) -> None:
        turn = self.turns.get(key)
        first = turn.next_number if turn else 0
        batch = Batch(first, first + len(body), body)
        answer = self.both("append", *key, batch, status=status)
        if turn is None or not turn.is_open:
            assert answer is TurnLost
            return
        assert answer is turn.is_cancelled
        turn.log.append(batch)
        if status:
            turn.response = msgspec.structs.replace(turn.response, status=status)

    @rule(
        key=st.tuples(OWNERS, NAMES),
        output=ITEMS,
        status=st.sampled_from(sorted(DONE_STATUSES)),
        body=st.none() | BODIES,
        said=ITEMS,
    )
    def finish(
        self, key: Key, output: list[Item], status: str, body: bytes | None, said: list[Item]
    ) -> None:
        turn, talk = self.turns.get(key), self.talk_of(*key)
        ended = Response(
            id=key[1],
            status=status,
            output=output,
            previous_response_id=turn.response.previous_response_id if turn else None,
            created_at=turn.response.created_at if turn else 0,
        )
        first = turn.next_number if turn else 0
        batch = None if body is None else Batch(first, first + len(body), body)
        answer = self.both("finish", key[0], ended, batch=batch, said=said)
        if turn is None or not turn.is_open or (said and talk is None):
            assert answer is TurnLost
        else:
            assert answer is None
            turn.response, turn.outputs = ended, output
            turn.log += [batch] if batch else []
            if talk is not None:
                talk.add(said)
                talk.lock = None

    @rule(key=st.tuples(OWNERS, NAMES))
    def ask_cancel(self, key: Key) -> None:
        turn = self.turns.get(key)
        is_open = turn is not None and turn.is_open
        assert self.both("ask_cancel", *key) is is_open
        if turn is not None and is_open:
            turn.is_cancelled = True

    @rule(key=st.tuples(OWNERS, NAMES))
    def delete(self, key: Key) -> None:
        assert self.both("delete", *key) == (key in self.turns)
        self._remove([key])

    @rule(before=st.integers(0, 4))
    def sweep(self, before: int) -> None:
        old = [key for key, turn in self.turns.items() if turn.response.created_at < before]
        assert self.both("sweep", before, 0) == len(old)
        self._remove(old)

    @precondition(lambda self: self.turns)
    @rule()
    def reopen(self) -> None:
        """Another process takes over what the first one left: turns, and locks of no turn."""
        self.loop.run_until_complete(self.kept.close())
        self.kept = self._open()
        left = [(key, turn) for key, turn in self.turns.items() if turn.is_open]
        left.sort(key=lambda pair: (pair[1].response.created_at, pair[1].number))
        claimed = self.loop.run_until_complete(self.kept.claim_orphans(100))
        assert claimed == [
            Orphan(owner, turn.response, turn.log, turn.request, turn.is_cancelled)
            for (owner, _), turn in left
        ]
        for (owner, name), talk in self.talks.items():
            if talk.lock is None or (owner, talk.lock) in dict(left):
                continue
            self._unlock(self.memory, owner, name, talk.lock)
            lock = self.kept.conversations.lock(owner, name, "heir")
            assert self.loop.run_until_complete(lock) == talk.items
            self._unlock(self.kept, owner, name, "heir")
            talk.lock = None

    @rule(key=st.tuples(OWNERS, NAMES), after=st.integers(-2, 30))
    def look(self, key: Key, after: int) -> None:
        turn = self.turns.get(key)
        self.loop.run_until_complete(self.kept.ping())
        assert self.both("get", *key) == (turn and turn.response)
        assert self.both("input_items", *key) == (turn.inputs if turn else None)
        for store in (self.memory, self.kept):
            history = self.loop.run_until_complete(store.history(*key))
            assert history == self._history(*key, history.removals if history else 0)
        log = self.both("read_log", *key, after)
        if turn is None:
            assert log is None
        else:
            batches = [batch for batch in turn.log if batch.last > after]
            assert log == Log(turn.response, batches, is_kept=bool(turn.log))

    @rule(owner=OWNERS, item_id=ITEM_IDS)
    def find(self, owner: str, item_id: str) -> None:
        self.loop.run_until_complete(self.kept.ping())
        turns = sorted(
            (turn for (whose, _), turn in self.turns.items() if whose == owner),
            key=lambda turn: turn.number,
        )
        talks = sorted(
            (talk for (whose, _), talk in self.talks.items() if whose == owner),
            key=lambda talk: talk.number,
        )
        items = [item for talk in talks for item in talk.items]
        items += [item for turn in turns for item in turn.inputs + turn.outputs]
        found = [item for item in items if item["id"] == item_id]
        assert self.both("find_item", owner, item_id) == (found[-1] if found else None)

    # Conversations

    @rule(key=st.tuples(OWNERS, TALKS), items=ITEMS)
    def create(self, key: Key, items: list[Item]) -> None:
        conversation = Conversation(key[1], self.count, {"n": str(self.count)})
        answer = self.both("conversations.create", key[0], conversation, items)
        if key in self.talks or _has_twins(items):
            assert answer is ValueError
            return
        assert answer is None
        self.talks[key] = Talk(self.count, conversation, items)
        self.count += 1

    @rule(key=st.tuples(OWNERS, TALKS), metadata=st.dictionaries(st.text(max_size=3), JSON))
    def update(self, key: Key, metadata: dict[str, Any]) -> None:
        answer = self.both("conversations.update", *key, metadata)
        talk = self.talks.get(key)
        if talk is None:
            assert answer is None
            return
        talk.conversation = msgspec.structs.replace(talk.conversation, metadata=metadata)
        assert answer == talk.conversation

    @rule(key=st.tuples(OWNERS, TALKS), items=ITEMS)
    def add(self, key: Key, items: list[Item]) -> None:
        answer = self.both("conversations.add", *key, items)
        talk = self.talks.get(key)
        if talk is None:
            assert answer in {False, ValueError}
        elif talk.lock is not None and not _has_twins(items):
            assert answer is ConversationLocked
        elif _has_twins(items) or any(talk.place(item["id"]) is not None for item in items):
            assert answer in {ValueError, ConversationLocked}
        else:
            assert answer is True
            talk.add(items)

    @rule(key=st.tuples(OWNERS, TALKS), item_id=ITEM_IDS)
    def remove(self, key: Key, item_id: str) -> None:
        answer = self.both("conversations.remove", *key, item_id)
        talk = self.talks.get(key)
        place = None if talk is None else talk.place(item_id)
        if talk is not None and talk.lock is not None:
            assert answer is ConversationLocked
            return
        assert answer is (place is not None)
        if talk is not None and place is not None:
            del talk.items[place]

    @rule(key=st.tuples(OWNERS, TALKS), name=NAMES)
    def lock(self, key: Key, name: str) -> None:
        held, talk = self.talk_of(key[0], name), self.talks.get(key)
        if held is not None and held is not talk:
            return  # a turn writes to one conversation
        answer = self.both("conversations.lock", *key, name)
        if talk is None:
            assert answer is None
        elif talk.lock not in {None, name}:
            assert answer is ConversationLocked
        else:
            assert answer == talk.items
            talk.lock = name

    @rule(key=st.tuples(OWNERS, TALKS), name=NAMES, said=ITEMS)
    def unlock(self, key: Key, name: str, said: list[Item]) -> None:
        answer = self.both("conversations.unlock", *key, name, said)
        talk = self.talks.get(key)
        assert answer is (talk is not None and talk.lock == name)
        if talk is not None and talk.lock == name:
            talk.add(said)
            talk.lock = None

    @rule(key=st.tuples(OWNERS, TALKS))
    def forget(self, key: Key) -> None:
        answer, talk = self.both("conversations.delete", *key), self.talks.get(key)
        if talk is not None and talk.lock is not None:
            assert answer is ConversationLocked
            return
        assert answer is (talk is not None)
        self.talks.pop(key, None)

    @rule(
        key=st.tuples(OWNERS, TALKS),
        after=st.none() | ITEM_IDS,
        limit=st.integers(1, 4),
        is_descending=st.booleans(),
    )
    def page(self, key: Key, after: str | None, limit: int, is_descending: bool) -> None:
        answer = self.both(
            "conversations.page", *key, after=after, limit=limit, is_descending=is_descending
        )
        talk = self.talks.get(key)
        if talk is None:
            assert answer is None
            return
        items = talk.items[::-1] if is_descending else talk.items
        names = [item["id"] for item in items]
        if after is not None and after not in names:
            assert answer is KeyError
            return
        start = 0 if after is None else names.index(after) + 1
        expected = ItemPage(items[start : start + limit], has_more=start + limit < len(items))
        assert answer == expected

    @rule(key=st.tuples(OWNERS, TALKS), item_id=ITEM_IDS)
    def listen(self, key: Key, item_id: str) -> None:
        talk = self.talks.get(key)
        assert self.both("conversations.get", *key) == (talk and talk.conversation)
        assert self.both("conversations.items", *key) == (talk.items if talk else None)
        place = None if talk is None else talk.place(item_id)
        expected = None if talk is None or place is None else talk.items[place]
        assert self.both("conversations.find", *key, item_id) == expected

    @invariant()
    def wishes_agree(self) -> None:
        asked = {key for key, turn in self.turns.items() if turn.is_open and turn.is_cancelled}
        for store in (self.memory, self.kept):
            found = self.loop.run_until_complete(store.asked_cancels())
            assert set(found) == asked
            assert len(found) == len(asked)

    def _remove(self, keys: list[Key]) -> None:
        for owner, name in keys:
            talk = self.talk_of(owner, name)
            if (owner, name) in self.turns and talk is not None:
                talk.lock = None
            self.turns.pop((owner, name), None)

    def _unlock(self, store: Store, owner: str, talk: str, response: str) -> None:
        assert self.loop.run_until_complete(store.conversations.unlock(owner, talk, response))

    def _history(self, owner: str, name: str, removals: int) -> History | None:
        turn = head = self.turns.get((owner, name))
        items: list[Item] = []
        missing, turns = None, 0
        while turn is not None:
            items = turn.inputs + turn.outputs + items
            turns += 1
            missing = turn.response.previous_response_id
            turn = self.turns.get((owner, missing)) if missing else None
        if head is None:
            return None
        weight = sum(len(encode_item(item)) for item in items)
        return History(items, head.response.status, missing, weight, turns, removals)

    def _is_loop(self, owner: str, name: str, parent: str | None) -> bool:
        """Real ids are never used twice, so no chain can bite its tail."""
        seen = {name}
        while parent is not None and parent not in seen:
            seen.add(parent)
            turn = self.turns.get((owner, parent))
            parent = turn.response.previous_response_id if turn else None
        return parent is not None


class PostgresMachine(StoreMachine):
    """The same with a database on a server."""

    def __init__(self) -> None:
        self.database = fresh_database()
        self.url = ""
        super().__init__()

    def _open(self) -> Store:
        self.url = self.url or self.loop.run_until_complete(self.database.__aenter__())
        return PostgresStore(self.url)

    def _end(self) -> None:
        self.loop.run_until_complete(self.database.__aexit__(None, None, None))


def _has_twins(items: list[Item]) -> bool:
    return len({item["id"] for item in items}) < len(items)


TestStores = StoreMachine.TestCase
TestPostgres = PostgresMachine.TestCase
TestStores.settings = TestPostgres.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
