"""Sixteen writers at once, two thousand random operations, and a model that knows the outcome.

Each writer owns what it makes and keeps its own expectations; one conversation is shared by
all. Every kind of store that can be shared is opened four times on one database.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from antiphon.protocol.errors import ConversationLocked, TurnLost
from antiphon.protocol.items import Item
from antiphon.store.base import Batch, Conversation, Store
from tests.store.conftest import Database
from tests.store.samples import OWNER, ids, message, opened

WRITERS: Final = 16
OPERATIONS: Final = 2_000
STORES: Final = 4
SHARED: Final = "shared"


@dataclass
class Turn:
    parent: str | None
    inputs: list[str]
    talk: str | None = None
    outputs: list[str] = field(default_factory=list)
    log: list[Batch] = field(default_factory=list)
    is_open: bool = True
    is_doomed: bool = False

    @property
    def next_number(self) -> int:
        return self.log[-1].last + 1 if self.log else 0


class Writer:
    """One of the sixteen: what it did, and what must come of it."""

    def __init__(self, number: int, store: Store, seed: int, everybody: list[Writer]) -> None:
        self.name = f"w{number:02}"
        self.store = store
        self.dice = random.Random(seed * 1_000 + number)
        self.everybody = everybody
        self.turns: dict[str, Turn] = {}
        self.deleted: set[str] = set()
        self.talks: dict[str, list[str]] = {}
        self.said: list[str] = []  # into the shared conversation, in order
        self.unsaid: set[str] = set()
        self.count = 0

    async def work(self, operations: int) -> None:
        doings = [
            (self.begin, 20),
            (self.append, 30),
            (self.finish, 20),
            (self.talk, 4),
            (self.add, 8),
            (self.share, 6),
            (self.unshare, 3),
            (self.page, 3),
            (self.remove, 3),
            (self.delete, 3),
            (self.read, 10),
        ]
        functions, weights = zip(*doings, strict=True)
        for _ in range(operations):
            (do,) = self.dice.choices(functions, weights)
            if not await do():
                await self.begin()
            await asyncio.sleep(0)

    def mint(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    def messages(self, names: list[str]) -> list[Item]:
        return [message(name, f"text of {name}") for name in names]

    def pick(self, names: Iterable[str]) -> str | None:
        known = sorted(names)
        return self.dice.choice(known) if known else None

    def open_turns(self) -> list[str]:
        return [name for name, turn in self.turns.items() if turn.is_open]

    async def begin(self) -> bool:
        """Continue or fork a turn of anybody, or begin a chain; perhaps in a conversation."""
        name, inputs = self.mint(), [self.mint() for _ in range(self.dice.randrange(3))]
        other = self.dice.choice(self.everybody)
        parent = self.pick([n for n, t in other.turns.items() if not t.is_open])
        turn = Turn(parent if self.dice.random() < 0.7 else None, inputs)
        busy = {t.talk for t in self.turns.values() if t.is_open}
        if self.dice.random() < 0.4 and (talk := self.pick(self.talks.keys() - busy)):
            found = await self.store.conversations.lock(OWNER, talk, name)
            assert ids(found) == self.talks[talk]
            turn.talk = talk
        batch = None
        if self.dice.random() < 0.7:
            batch = Batch(0, self.dice.randrange(3), name.encode())
            turn.log.append(batch)
        await self.store.begin(OWNER, opened(name, turn.parent), self.messages(inputs), batch=batch)
        self.turns[name] = turn
        return True

    async def append(self) -> bool:
        name = self.pick(n for n in self.open_turns() if self.turns[n].log)
        if name is None:
            return False
        turn = self.turns[name]
        first = turn.next_number
        body = f"{name}:{first}".encode() * self.dice.choice([1, 20])
        batch = Batch(first, first + self.dice.randrange(4), body)
        assert await self.store.append(OWNER, name, batch) is False
        turn.log.append(batch)
        return True

    async def finish(self) -> bool:
        name = self.pick(self.open_turns())
        if name is None:
            return False
        turn = self.turns[name]
        outputs = [self.mint() for _ in range(self.dice.randrange(3))]
        batch = None
        if turn.log:
            batch = Batch(turn.next_number, turn.next_number, b"end")
        said = turn.inputs + outputs if turn.talk else []
        talk: dict[str, Any] = {"conversation": {"id": turn.talk}} if turn.talk else {}
        ended = opened(name, turn.parent, status="completed", output=self.messages(outputs), **talk)
        await self.store.finish(OWNER, ended, batch=batch, said=self.messages(said))
        turn.is_open, turn.outputs = False, outputs
        turn.log += [batch] if batch else []
        if turn.talk:
            self.talks[turn.talk] += said
        return True

    async def talk(self) -> bool:
        name, items = self.mint(), [self.mint() for _ in range(self.dice.randrange(3))]
        await self.store.conversations.create(OWNER, Conversation(name, 1), self.messages(items))
        self.talks[name] = items
        return True

    async def add(self) -> bool:
        talk, items = self.pick(self.talks), [self.mint() for _ in range(2)]
        if talk is None:
            return False
        is_locked = any(t.is_open and t.talk == talk for t in self.turns.values())
        try:
            await self.store.conversations.add(OWNER, talk, self.messages(items))
        except ConversationLocked:
            assert is_locked
            return True
        assert not is_locked
        self.talks[talk] += items
        return True

    async def share(self) -> bool:
        """Add two items to the shared conversation, by hand or as a short turn."""
        items, name = [self.mint() for _ in range(2)], self.mint()
        talks = self.store.conversations
        try:
            if self.dice.random() < 0.5:
                assert await talks.add(OWNER, SHARED, self.messages(items)) is True
            else:
                assert await talks.lock(OWNER, SHARED, name) is not None
                await asyncio.sleep(0)
                assert await talks.unlock(OWNER, SHARED, name, self.messages(items)) is True
        except ConversationLocked:
            return True
        self.said += items
        return True

    async def unshare(self) -> bool:
        name = self.pick(set(self.said) - self.unsaid)
        if name is None:
            return False
        try:
            assert await self.store.conversations.remove(OWNER, SHARED, name) is True
        except ConversationLocked:
            return True
        self.unsaid.add(name)
        return True

    async def page(self) -> bool:
        talk = self.pick(self.talks)
        if talk is None:
            return False
        expected, is_descending = self.talks[talk], self.dice.random() < 0.5
        expected = expected[::-1] if is_descending else expected
        after = self.pick(expected)
        found = await self.store.conversations.page(
            OWNER, talk, after=after, limit=2, is_descending=is_descending
        )
        start = 0 if after is None else expected.index(after) + 1
        assert found is not None
        assert ids(found.items) == expected[start : start + 2]
        assert found.has_more == (start + 2 < len(expected))
        return True

    async def remove(self) -> bool:
        talk = self.pick(self.talks)
        if talk is None or not (item := self.pick(self.talks[talk])):
            return False
        try:
            assert await self.store.conversations.remove(OWNER, talk, item) is True
        except ConversationLocked:
            return True
        self.talks[talk].remove(item)
        return True

    async def delete(self) -> bool:
        name = self.pick(self.turns)
        if name is None:
            return False
        turn = self.turns[name]
        turn.is_doomed = True
        assert await self.store.delete(OWNER, name) is True
        del self.turns[name]
        self.deleted.add(name)
        if turn.is_open:
            with pytest.raises(TurnLost):
                await self.store.append(OWNER, name, Batch(9_999, 9_999, b"late"))
        return True

    async def read(self) -> bool:
        """Anybody's finished turn is whole, whichever store is asked, until it is deleted."""
        other = self.dice.choice(self.everybody)
        name = self.pick(n for n, t in other.turns.items() if not t.is_open)
        if name is None:
            return False
        turn = other.turns[name]
        log = await self.store.read_log(OWNER, name)
        assert log is not None or turn.is_doomed
        if log is not None:
            assert log.batches == turn.log
            assert ids(log.response.output) == turn.outputs
        return True


@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_reordered_or_foreign(database: Database, seed: int) -> None:
    stores = [await database.open() for _ in range(STORES)]
    await stores[0].conversations.create(OWNER, Conversation(SHARED, 1), [])
    writers: list[Writer] = []
    for number in range(WRITERS):
        writers.append(Writer(number, stores[number % STORES], seed, writers))
    await asyncio.gather(*(writer.work(OPERATIONS // WRITERS) for writer in writers))
    for store in stores:
        await store.ping()  # what it has only queued is written now, and seen by the others
    for store in stores:
        await compare(store, writers)


async def compare(store: Store, writers: list[Writer]) -> None:
    """Ask one store for everything and compare it with what the writers expect."""
    turns = {name: turn for writer in writers for name, turn in writer.turns.items()}
    deleted = set().union(*(writer.deleted for writer in writers))
    for name, turn in turns.items():
        log = await store.read_log(OWNER, name)
        assert log is not None
        assert (log.is_kept, log.batches) == (bool(turn.log), turn.log)
        assert log.response.status == ("in_progress" if turn.is_open else "completed")
        history = await store.history(OWNER, name)
        assert history is not None
        assert (ids(history.items), history.missing) == expected_history(turns, name)
        assert all(item["content"][0]["text"] == f"text of {item['id']}" for item in history.items)
    for name in deleted:
        assert await store.get(OWNER, name) is None
    for talk, items in (pair for writer in writers for pair in writer.talks.items()):
        assert ids(await store.conversations.items(OWNER, talk)) == items
    shared = ids(await store.conversations.items(OWNER, SHARED))
    for writer in writers:
        mine = [name for name in shared if name.startswith(writer.name)]
        assert mine == [name for name in writer.said if name not in writer.unsaid]
    assert len(shared) == sum(len(writer.said) - len(writer.unsaid) for writer in writers)


def expected_history(turns: dict[str, Turn], name: str | None) -> tuple[list[str], str | None]:
    items: list[str] = []
    while name is not None and name in turns:
        turn = turns[name]
        items = turn.inputs + turn.outputs + items
        name = turn.parent
    return items, name
