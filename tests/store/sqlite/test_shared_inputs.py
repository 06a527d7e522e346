"""What inputs have in common is stored once, and each response has all of its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from antiphon.protocol.items import Item
from antiphon.protocol.thread import Thread
from antiphon.store import SqliteStore, open_store
from antiphon.store.base import Batch
from antiphon.store.check import check_store
from antiphon.store.copy import copy_store, read_info
from antiphon.store.downgrade import allow_older
from antiphon.store.encoding import StoredItem, decode_item
from antiphon.store.sqlite.connection import connect
from antiphon.store.sqlite.history import FIND_ITEM
from antiphon.store.sqlite.migrations import (
    MIGRATIONS,
    OLDEST_LEVEL,
    SHARED_INPUTS,
    STORE,
    is_newest,
)
from antiphon.store.sqlite.shared_inputs import Place, SharedInput
from antiphon.store.sqlite.turn_writing import begin_turn
from antiphon.store.turns import Beginning
from tests.postgres import fresh_database
from tests.store.samples import OWNER, ids, message, opened
from tests.store.sqlite.test_store import found_in_files

_LONG = 64 * 1024


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@asynccontextmanager
async def opened_at(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    try:
        yield store
    finally:
        await store.close()


class Agent:
    """Sends a context that grows, which is remembered as a process does."""

    def __init__(self) -> None:
        self.context = Thread(weight=_LONG)
        self.sent: dict[str, list[Item]] = {}

    async def send(
        self,
        store: SqliteStore,
        name: str,
        new: Sequence[str] = (),
        *,
        owner: str = OWNER,
        parent: str | None = None,
        is_logged: bool = True,
    ) -> None:
        """Store a turn with the context, these new items, and one that is only of this turn."""
        self.context = self.context.grow([message(item_id, f"text {item_id}") for item_id in new])
        given = self.context.with_tail([message(f"end-{name}")])
        batch = Batch(0, 0, b"began") if is_logged else None
        await store.begin(owner, opened(name, parent), given, batch=batch)
        output = [message(f"out-{name}")]
        ended = opened(name, parent, status="completed", output=output)
        await store.finish(owner, ended, batch=Batch(1, 1, b"ended") if is_logged else None)
        self.sent[name] = list(given)


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(found)


async def problems(path: Path) -> list[str]:
    checked = await check_store(f"sqlite:{path}", lambda *_: None)
    # The logs of these tests have no events in them.
    return [f.message for f in checked.findings if f.where not in ("logs", "log")]


@pytest.mark.parametrize("is_logged", [True, False], ids=["streamed", "whole"])
async def test_a_context_that_grows_is_stored_once(path: Path, is_logged: bool) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        await agent.send(store, "r0", [f"i{number}" for number in range(50)], is_logged=is_logged)
        for turn in range(1, 10):
            await agent.send(store, f"r{turn}", [f"new-{turn}"], is_logged=is_logged)
        await agent.send(store, "r10", is_logged=is_logged)
        for name, given in agent.sent.items():
            assert await store.input_items(OWNER, name) == given
    # The context, and two items of each turn: the last of its input, and its output.
    assert count(path, "items") == 59 + 2 * 11
    assert count(path, "inputs") == 10
    assert await problems(path) == []
    async with opened_at(path) as store:
        for name, given in agent.sent.items():
            assert await store.input_items(OWNER, name) == given
            history = await store.history(OWNER, name)
            assert history is not None
            assert history.items == [*given, message(f"out-{name}")]
            assert history.turns == 1


async def test_a_chain_of_such_turns_is_read_in_order(path: Path) -> None:
    first, second = Agent(), Agent()
    async with opened_at(path) as store:
        await first.send(store, "r0", ["a", "b"])
        await first.send(store, "r1", ["c"])
        await second.send(store, "r2", ["d", "e"], parent="r1")
        await second.send(store, "r3", ["f"], parent="r2")
        history = await store.history(OWNER, "r3")
    assert history is not None
    assert " ".join(ids(history.items)) == (
        "a b c end-r1 out-r1 d e end-r2 out-r2 d e f end-r3 out-r3"
    )
    assert (history.turns, history.missing) == (3, None)


async def test_two_contexts_that_part_have_what_they_share(path: Path) -> None:
    agent, other = Agent(), Agent()
    async with opened_at(path) as store:
        await agent.send(store, "r0", ["a", "b"])
        other.context = agent.context
        await agent.send(store, "r1", ["c"])
        await other.send(store, "r2", ["d"])
        assert ids(await store.input_items(OWNER, "r1")) == ["a", "b", "c", "end-r1"]
        assert ids(await store.input_items(OWNER, "r2")) == ["a", "b", "d", "end-r2"]
        assert count(path, "items") == 4 + 2 * 3
        assert await store.delete(OWNER, "r1")
        assert ids(await store.input_items(OWNER, "r2")) == ["a", "b", "d", "end-r2"]
        assert await store.find_item(OWNER, "c") is None
    assert await problems(path) == []


@pytest.mark.parametrize("order", ["r0 r1 r2", "r2 r1 r0", "r1 r0 r2", "r1 r2 r0"])
async def test_deleting_one_leaves_the_others_whole(path: Path, order: str) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        for number in range(3):
            await agent.send(store, f"r{number}", [f"SECRET-{number}"])
        for name in order.split():
            assert await store.delete(OWNER, name)
            del agent.sent[name]
            for left, given in agent.sent.items():
                assert await store.input_items(OWNER, left) == given
            assert await problems(path) == []
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET") == []
    assert count(path, "items") == count(path, "inputs") == 0


async def test_what_only_deleted_turns_had_is_in_no_file(path: Path) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        await agent.send(store, "r0", ["a"])
        await agent.send(store, "r1", ["SECRET"])
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET")
        assert await store.delete(OWNER, "r1")
        assert await asyncio.to_thread(found_in_files, path.parent, "SECRET") == []
        assert await store.input_items(OWNER, "r0") == agent.sent["r0"]


async def test_a_sweep_removes_what_no_turn_has_any_more(path: Path) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        for number in range(20):
            await agent.send(store, f"r{number}", [f"i{number}"])
        assert await store.sweep(1, 0) == 0
        assert await store.sweep(2_000, 0) == 20
    assert count(path, "items") == count(path, "inputs") == 0


async def test_what_is_remembered_of_deleted_turns_is_stored_again(path: Path) -> None:
    agent, other = Agent(), Agent()
    async with opened_at(path) as store:
        await agent.send(store, "r0", ["a", "b"])
        assert await store.delete(OWNER, "r0")
        await other.send(store, "x0", ["c", "d"])  # its row gets the key of the one that is gone
        await agent.send(store, "r1", ["e"])
        assert ids(await store.input_items(OWNER, "r1")) == ["a", "b", "e", "end-r1"]
        assert ids(await store.input_items(OWNER, "x0")) == ["c", "d", "end-x0"]
    assert await problems(path) == []


async def test_another_owner_does_not_get_what_is_remembered(path: Path) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        await agent.send(store, "r0", ["a", "b"])
        await agent.send(store, "r1", owner="bob")
        assert await store.delete(OWNER, "r0")
        assert ids(await store.input_items("bob", "r1")) == ["a", "b", "end-r1"]
    with closing(sqlite3.connect(path)) as connection:
        owners = connection.execute("SELECT DISTINCT owner FROM items").fetchall()
    assert owners == [("bob",)]


async def test_another_process_shares_nothing_and_reads_everything(path: Path) -> None:
    agent = Agent()
    async with opened_at(path) as store, opened_at(path) as other:
        await agent.send(store, "r0", ["a", "b"])
        await agent.send(other, "r1", ["c"])
        await agent.send(store, "r2", ["d"])
        for one in (store, other):
            for name, given in agent.sent.items():
                assert await one.input_items(OWNER, name) == given
    assert count(path, "items") == 2 + 3 + 2 + 2 * 3
    assert await problems(path) == []


async def test_the_newest_turn_that_has_an_item_is_found(path: Path) -> None:
    agent, other = Agent(), Agent()
    async with opened_at(path) as store:
        await agent.send(store, "r0", ["a", "b"])
        other.context = other.context.grow([message("a", "changed")])
        await other.send(store, "r1")
        assert await store.find_item(OWNER, "a") == message("a", "changed")
        await agent.send(store, "r2", ["c"])  # its beginning was stored before the change
        assert await store.find_item(OWNER, "a") == message("a", "text a")
        await store.begin(OWNER, opened("r3"), [message("a", "again")])
        await store.ping()
        assert await store.find_item(OWNER, "a") == message("a", "again")


async def test_an_item_that_is_there_often_is_found_at_once(path: Path) -> None:
    """A caller may give many items one id: no other one may wait until they were all followed."""
    agent = Agent()
    async with opened_at(path) as store:
        await agent.send(store, "r0", ["x"] * 2000)
        for turn in range(1, 200):
            await agent.send(store, f"r{turn}", [f"new-{turn}"], is_logged=False)
    with closing(sqlite3.connect(path)) as connection:
        steps = 0

        def count_steps() -> int:
            nonlocal steps
            steps += 1
            return 0

        connection.set_progress_handler(count_steps, 1000)
        question = {"owner": OWNER, "id": "x"}
        (body,) = connection.execute(FIND_ITEM, question).fetchone()
    assert decode_item(body) == message("x", "text x")
    assert steps < 200  # thousands of instructions; more than ten thousand if each row was followed


def _shared(items: Sequence[str], place: Place | None, learned: list[Place]) -> SharedInput:
    return SharedInput(
        [StoredItem(one, b'{"id":"%s"}' % one.encode()) for one in items], place, learned.append
    )


def test_a_place_that_was_never_committed_is_not_used(path: Path) -> None:
    """The key is given again, perhaps to another's items."""
    learned: list[Place] = []

    def begin(name: str, items: Sequence[str], place: Place | None) -> None:
        turn = Beginning("me", OWNER, name, None, "in_progress", 1, b"{}", [])
        connection.execute("BEGIN IMMEDIATE")
        begin_turn(connection, turn, _shared(items, place, learned))

    with closing(connect(path, patience=1)) as connection:
        begin("r0", ["a", "b"], None)
        connection.execute("ROLLBACK")
        begin("r1", ["c", "d"], None)
        connection.execute("COMMIT")
        assert learned[0].key == learned[1].key
        begin("r2", ["a", "b"], learned[0])
        connection.execute("COMMIT")
        found = connection.execute(
            "SELECT responses.id, group_concat(items.id, ' ') FROM responses"
            " JOIN items ON items.response = -responses.input GROUP BY responses.key"
        ).fetchall()
    assert found == [("r1", "c d"), ("r2", "a b")]


async def test_older_gateways_read_everything_once_they_are_allowed(path: Path) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        for number in range(3):
            await agent.send(store, f"r{number}", [f"i{number}"])
    await allow_older(f"sqlite:{path}", SHARED_INPUTS - 1)
    with closing(sqlite3.connect(path)) as connection:
        assert is_newest(connection, STORE._replace(migrations=MIGRATIONS[: SHARED_INPUTS - 1]))
        for name, given in agent.sent.items():
            rows = connection.execute(
                "SELECT items.id FROM items JOIN responses ON responses.key = items.response"
                " WHERE responses.id = ? AND kind = 0 ORDER BY position",
                (name,),
            ).fetchall()
            assert [item_id for (item_id,) in rows] == ids(given)
    async with opened_at(path) as store:  # both may write now, so nothing is shared
        await agent.send(store, "r3", ["new"])
        assert await store.input_items(OWNER, "r3") == agent.sent["r3"]
    assert count(path, "inputs") == 0
    assert await problems(path) == []
    assert OLDEST_LEVEL < SHARED_INPUTS


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_copy_has_all_items_of_each_response(path: Path, kind: str) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        for number in range(5):
            await agent.send(store, f"r{number}", [f"i{number}", f"j{number}"])
    async with AsyncExitStack() as stack:
        if kind == "postgres":
            target = await stack.enter_async_context(fresh_database())
        else:
            target = f"sqlite:{path.with_name('b.db')}"
        counts = await copy_store(f"sqlite:{path}", target, lambda *_: None)
        assert counts["items"] == 2 + 4 + 6 + 8 + 10 + 2 * 5
        copied = open_store(target)
        for name, given in agent.sent.items():
            assert await copied.input_items(OWNER, name) == given
        await copied.close()


async def test_a_check_reads_once_what_many_turns_have(path: Path) -> None:
    agent, totals = Agent(), dict[str, int]()
    async with opened_at(path) as store:
        for number in range(30):
            await agent.send(store, f"r{number}", [f"i{number}"])
    await check_store(f"sqlite:{path}", lambda name, _, total: totals.update({name: total}))
    assert totals["items"] == count(path, "items") == 30 + 2 * 30
    info = await read_info(f"sqlite:{path}")
    assert info.counts["items"] == sum(map(len, agent.sent.values())) + 30


async def test_damage_in_a_shared_item_is_found(path: Path) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        for number in range(3):
            await agent.send(store, f"r{number}", [f"i{number}"])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE items SET body = 'no' WHERE id = 'i1'")
    (found,) = [one for one in await problems(path) if "cannot be read" in one]
    assert found.startswith("i1 ")


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM inputs WHERE key = 3", "responses without the beginning of their input: 1"),
        ("DELETE FROM inputs WHERE key = 3", "shared items without their input: 1"),
        ("DELETE FROM items WHERE response = -2", "inputs that lack items: 1"),
        ("UPDATE responses SET input = 1 WHERE id = 'r2'", "inputs that no response has: 1"),
    ],
)
async def test_damage_is_found(path: Path, statement: str, problem: str) -> None:
    agent = Agent()
    async with opened_at(path) as store:
        for number in range(3):
            await agent.send(store, f"r{number}", [f"i{number}"])
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount == 1
    assert problem in await problems(path)
