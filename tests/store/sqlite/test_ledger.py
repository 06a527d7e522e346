"""What is special about the ledger in SQLite: lost writes, damaged books, the size of a charge."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import SqliteStore
from antiphon.store.base.ledger import Budget, Granted, Payer, UsageQuery
from antiphon.store.sqlite.ledger_reading import find_charges
from tests.store.ledger_samples import Clock, ending, wanted
from tests.store.samples import OWNER, opened

MANY = 20_000
MOST_BYTES = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(path)
    yield made
    await made.close()


def change(path: Path, *statements: str) -> None:
    """Change the file behind the store's back."""
    with closing(sqlite3.connect(path, timeout=30.0)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


REFUSE = "CREATE TRIGGER refuse BEFORE INSERT ON charges BEGIN SELECT RAISE(ABORT, 'no'); END"


async def test_a_charge_that_could_not_be_written_is_there_at_the_end_of_its_turn(
    store: SqliteStore, path: Path
) -> None:
    change(path, REFUSE)
    store.ledger.reserve_soon(wanted("r", project=OWNER))
    await store.begin(OWNER, opened("r"), [])
    assert await store.ledger.charges() == []
    change(path, "DROP TRIGGER refuse")
    await store.finish(OWNER, opened("r", status="completed"), entries=[ending("r")])
    (charge,) = await store.ledger.charges()
    assert charge.state == "settled"
    assert await store.ledger.check() == []


async def test_a_charge_that_could_not_be_written_is_there_when_it_is_settled(
    store: SqliteStore, path: Path
) -> None:
    change(path, REFUSE)
    store.ledger.reserve_soon(wanted("r"))
    await store.ledger.settle([])
    assert await store.ledger.charges() == []
    change(path, "DROP TRIGGER refuse")
    await store.ledger.settle([ending("r")])
    (charge,) = await store.ledger.charges()
    assert charge.state == "settled"


async def test_a_reservation_that_could_not_be_written_is_an_error(
    store: SqliteStore, path: Path
) -> None:
    change(path, REFUSE)
    with pytest.raises(StoreUnavailable):
        await store.ledger.reserve(wanted("r"))
    change(path, "DROP TRIGGER refuse")
    assert await store.ledger.reserve(wanted("r")) == Granted()


@pytest.mark.parametrize(
    ("rule", "damage"),
    [
        ("I2", "UPDATE budgets SET spent = spent + 1"),
        ("I2", "UPDATE budgets SET held = held - 1"),
        ("I2", "DELETE FROM charges WHERE state = 0"),
        ("I3", "UPDATE budgets SET ceiling = 16"),
        ("I4", "UPDATE charges SET state = 0, writer = 1 WHERE state = 1"),
        ("I5", "UPDATE usage_sums SET cost = cost + 1 WHERE width = 3600"),
        ("I5", "UPDATE usage_sums SET requests = requests + 1 WHERE width = 86400"),
        ("I5", "UPDATE usage_sums SET output = output + 1 WHERE width = -3600"),
        ("I5", "UPDATE usage_sums SET start = start - 86400 WHERE width = -86400"),
        ("I5", "DELETE FROM usage_sums WHERE width = -3600"),
        ("I5", "UPDATE usage_sums SET charges = charges + 1 WHERE width = -7200"),
        ("I5", "DELETE FROM usage_sums WHERE width = -172800"),
        ("I5", "UPDATE ledger_marks SET value = value + 3600 WHERE name = 'totalled_before'"),
        ("I5", "DELETE FROM usage_sums"),
        ("I5", "DELETE FROM charges WHERE state = 1"),
        (
            "I7",
            "UPDATE charges SET writer = (SELECT key FROM names WHERE name = 'm') WHERE state = 0",
        ),
    ],
)
async def test_damaged_books_are_seen(
    store: SqliteStore, path: Path, rule: str, damage: str
) -> None:
    clock = store.ledger.clock = Clock()
    await store.ledger.put_budget(
        Budget(id="b", scope="project", scope_id="p", period="total", ceiling=100)
    )
    await store.ledger.reserve(wanted("r1", key="k"))
    await store.ledger.settle([ending("r1")])
    clock.now += 86_400
    await store.ledger.reserve(wanted("r2"))
    await store.ledger.reserve(wanted("r3"))
    await store.ledger.settle([ending("r3")])
    assert await store.ledger.total(48) == 24
    assert await store.ledger.check() == []
    change(path, damage)
    assert rule in {problem.rule for problem in await store.ledger.check()}


async def test_totals_answer_what_needs_neither_keys_nor_users(
    store: SqliteStore, path: Path
) -> None:
    clock = store.ledger.clock = Clock()
    for number in range(3):
        await store.ledger.reserve(wanted(f"r{number}", key=f"k{number}", user="u"))
        await store.ledger.settle([ending(f"r{number}")])
        clock.now += 3600
    await store.ledger.total(2)
    # What is answered from a total can be told by its cost.
    change(path, "UPDATE usage_sums SET cost = cost + 1000 WHERE width < 0")

    async def costs(**more: Any) -> list[int]:
        query = UsageQuery(start=0, end=2**33, width=3600, **more)
        return [row.cost for row in await store.ledger.usage(query)]

    totalled = [1007, 1007, 7]
    assert await costs() == totalled
    assert await costs(group_by=("project", "model", "provider", "kind")) == totalled
    assert await costs(group_by=("basis", "outcome"), models=("m",), kinds=("model",)) == totalled
    assert await costs(projects=("p",)) == totalled
    assert await costs(group_by=("key",)) == [7, 7, 7]
    assert await costs(group_by=("model", "user")) == [7, 7, 7]
    assert await costs(keys=("k1",)) == [7]
    assert await costs(users=("u",)) == [7, 7, 7]


async def test_ceilings_of_runs_are_known_to_other_stores(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    try:
        assert not await other.ledger.limits_apply(Payer("p", run="x"), "m")
        for name in ("x", "y"):
            await store.ledger.reserve(wanted(name, run=name, run_ceiling=100))
        other.ledger._read_at = float("-inf")  # a second has passed
        assert await other.ledger.limits_apply(Payer("p", run="x"), "m")
        assert await other.ledger.limits_apply(Payer("p", run="y"), "m")
        assert not await other.ledger.limits_apply(Payer("p", run="z"), "m")
    finally:
        await other.close()


async def test_a_charge_is_small(store: SqliteStore, path: Path) -> None:
    def used() -> int:
        with closing(sqlite3.connect(path)) as connection:
            count, free, size = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
            return int((count - free) * size)

    store.ledger.clock = Clock()
    before = used()
    for first in range(0, MANY, 500):
        names = [
            f"resp_ap-{number * 0x9E3779B97F4A7C15 % 2**192:048x}"
            for number in range(first, first + 500)
        ]
        for place, name in enumerate(names):
            more: dict[str, Any] = {
                "key": f"k{place % 50}",
                "conversation": f"conv_{place}",
                "run": f"r{place % 9}",
            }
            store.ledger.reserve_soon(
                wanted(name, cost=31_730_000, tokens=11_048, is_request=True, **more)
            )
        ends = [
            ending(name, cost=10_575_000, tokens=9_810, first_ms=640, total_ms=9_120)
            for name in names
        ]
        await store.ledger.settle(ends)
    each = (used() - before) / MANY
    print(f"{each:.0f} bytes per charge")
    assert each <= MOST_BYTES


@pytest.mark.parametrize(
    ("names", "index"),
    [
        ({"project": "p", "conversation": "c"}, "charges_by_conversation"),
        ({"project": "p", "run": "r"}, "charges_by_run"),
        ({"project": "p"}, "charges_by_project"),
        ({}, "charges_by_time"),
    ],
)
async def test_charges_are_found_by_the_narrowest_index(
    store: SqliteStore, path: Path, names: dict[str, str], index: str
) -> None:
    await store.ping()
    asked: list[str] = []
    with closing(sqlite3.connect(path, timeout=30.0)) as connection:
        connection.set_trace_callback(asked.append)
        assert find_charges(connection, names, None, None, 100) == []
        connection.set_trace_callback(None)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {asked[-1]}").fetchall()
    assert index in str(plan)
