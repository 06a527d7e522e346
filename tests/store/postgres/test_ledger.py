"""The ledger in PostgreSQL: lost connections, races of nodes, and what is locked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Budget, BudgetState, Granted, Payer, RateLimit, Refused
from antiphon.store.ledger_rows import pack_id
from antiphon.store.postgres import PostgresStore
from tests.postgres import CommitProxy, fresh_database
from tests.store.ledger_samples import ending, wanted
from tests.store.samples import OWNER, opened

BUDGET = Budget(id="b", scope="project", scope_id="p", ceiling=100)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with fresh_database() as made:
        yield made


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[PostgresStore]]:
    made = [PostgresStore(url, patience=60.0) for _ in range(3)]
    yield made
    for store in made:
        await store.close()


@pytest.fixture
async def store(nodes: list[PostgresStore]) -> PostgresStore:
    return nodes[0]


@pytest.fixture
async def connection(url: str) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(url)
    yield made
    await made.close()


async def state_of(store: PostgresStore) -> BudgetState:
    (state,) = await store.ledger.budgets("project", "p")
    return state


async def test_a_reservation_whose_commit_got_no_answer_is_counted_once(
    store: PostgresStore, url: str
) -> None:
    await store.ledger.put_budget(BUDGET)
    await store.ledger.put_limit(RateLimit(id="l", scope="project", scope_id="p", requests=60))
    async with CommitProxy(url) as proxy:
        far = PostgresStore(proxy.url, patience=60.0)
        await far.ping()
        proxy.lose_next_answer()
        answer = await far.ledger.reserve(wanted("r", is_request=True))
        assert isinstance(answer, Granted)
        assert answer.requests is not None
        assert answer.requests.remaining == 59
        assert proxy.lost == 1
        assert (await state_of(store)).held == 10
        proxy.lose_next_answer()
        await far.ledger.settle([ending("r")])
        assert proxy.lost == 2
        await far.close()
    state = await state_of(store)
    assert (state.spent, state.held) == (7, 0)
    assert await store.ledger.check() == []


async def test_an_end_whose_commit_got_no_answer_settles_once(
    store: PostgresStore, url: str
) -> None:
    await store.ledger.put_budget(BUDGET)
    async with CommitProxy(url) as proxy:
        far = PostgresStore(proxy.url, patience=60.0)
        await far.begin(OWNER, opened("r"), [])
        await far.ledger.reserve(wanted("r"))
        proxy.lose_next_answer()
        await far.finish(OWNER, opened("r", status="completed"), entries=[ending("r")])
        assert proxy.lost == 1
        await far.close()
    state = await state_of(store)
    assert (state.spent, state.held) == (7, 0)
    assert await store.ledger.check() == []


async def test_a_reservation_whose_caller_has_left_is_undone(
    store: PostgresStore, url: str
) -> None:
    await store.ledger.put_budget(BUDGET)
    await store.ping()
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM budgets FOR UPDATE")
            task = asyncio.create_task(store.ledger.reserve(wanted("r")))
            async with asyncio.timeout(60):
                while not await is_somebody_waiting(connection):  # noqa: ASYNC110 # no event
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
    finally:
        await connection.close()
    assert await store.ledger.charges() == []
    assert (await state_of(store)).held == 0
    assert isinstance(await store.ledger.reserve(wanted("r")), Granted)
    assert (await state_of(store)).held == 10
    assert await store.ledger.check() == []


async def test_a_charge_is_written_once_where_it_stays(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    for name in ("r1", "r2", "r3"):
        await store.ledger.reserve(wanted(name))
    assert await store.ledger.extend("r1", 0, TokenCounts(output=20), 20)
    await store.ledger.settle([ending("r1"), ending("r2", outcome="released", cost=0)])
    held = await connection.fetch("SELECT response FROM charges_held")
    ended = await connection.fetch("SELECT response, held_cost FROM charges_ended ORDER BY key")
    assert [tuple(row) for row in held] == [(pack_id("r3"),)]
    assert [tuple(row) for row in ended] == [(pack_id("r1"), 20), (pack_id("r2"), 10)]


async def test_a_reservation_that_is_repeated_while_its_charge_ends_counts_once(
    nodes: list[PostgresStore], connection: asyncpg.Connection
) -> None:
    await nodes[0].ledger.put_budget(BUDGET)
    await nodes[0].ledger.reserve(wanted("r"))
    await nodes[1].ping()
    async with connection.transaction():
        await connection.execute("LOCK TABLE usage_sums IN ACCESS EXCLUSIVE MODE")
        settled = asyncio.create_task(nodes[0].ledger.settle([ending("r")]))
        await until_waiting(connection, 1)
        repeated = asyncio.create_task(nodes[1].ledger.reserve(wanted("r")))
        await until_waiting(connection, 2)
    await settled
    assert isinstance(await repeated, Granted)
    assert [one.state for one in await nodes[1].ledger.charges()] == ["settled"]
    state = await state_of(nodes[1])
    assert (state.spent, state.held) == (7, 0)
    assert await nodes[1].ledger.check() == []


async def until_waiting(connection: asyncpg.Connection, count: int) -> None:
    """Return when so many others wait for locks."""
    waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted"
    async with asyncio.timeout(60):
        while await connection.fetchval(waiting) < count:  # noqa: ASYNC110 # no event
            await asyncio.sleep(0.01)


async def is_somebody_waiting(connection: asyncpg.Connection) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() ="
            " ANY(pg_blocking_pids(pid)))"
        )
    )


async def test_a_node_whose_lease_was_lost_renews_it(nodes: list[PostgresStore], url: str) -> None:
    await nodes[1].ledger.reserve(wanted("left"))
    await nodes[1].close()
    await nodes[0].ping()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DELETE FROM nodes")
        assert await nodes[0].ledger.settle_abandoned(10) == 1
        await connection.execute("DELETE FROM nodes")
        assert isinstance(await nodes[0].ledger.reserve(wanted("r")), Granted)
        await connection.execute("DELETE FROM nodes")
        await nodes[0].ledger.settle([ending("r")])
    finally:
        await connection.close()
    assert await nodes[2].ledger.check() == []
    assert {one.state for one in await nodes[2].ledger.charges()} == {"settled"}


async def test_who_has_no_budget_waits_for_nobody(store: PostgresStore, url: str) -> None:
    await store.ledger.put_budget(BUDGET)
    await store.ledger.put_limit(RateLimit(id="l", scope="project", scope_id="p", requests=60))
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM budgets FOR UPDATE")
            await connection.execute("SELECT FROM rate_limits FOR UPDATE")
            async with asyncio.timeout(30):
                await store.ledger.reserve(wanted("r", project="free"))
                await store.ledger.settle([ending("r")])
    finally:
        await connection.close()
    assert await store.ledger.check() == []


async def test_a_charge_that_nobody_waits_for_is_written_when_the_database_is_free(
    nodes: list[PostgresStore], url: str
) -> None:
    await nodes[0].ping()  # the tables are made
    store = PostgresStore(url, patience=2.0)
    await store.ping()
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE charges IN ACCESS EXCLUSIVE MODE")
            store.ledger.reserve_soon(wanted("r"))
            with pytest.raises(StoreUnavailable):
                await store.ledger.settle([ending("r")])
    finally:
        await connection.close()
    async with asyncio.timeout(60):
        while not await store.ledger.charges():  # noqa: ASYNC110 # no event
            await asyncio.sleep(0.05)
    await store.ledger.settle([ending("r")])
    (charge,) = await store.ledger.charges()
    assert charge.state == "settled"
    await store.close()


async def test_the_end_of_a_turn_settles_a_charge_that_was_just_queued(
    store: PostgresStore,
) -> None:
    for number in range(30):
        name = f"r{number}"
        await store.begin("p", opened(name), [])
        store.ledger.reserve_soon(wanted(name))
        await store.finish("p", opened(name, status="completed"), entries=[ending(name)])
    charges = await store.ledger.charges()
    assert [charge.state for charge in charges] == ["settled"] * 30


async def test_a_budget_that_is_set_while_nodes_reserve_counts_every_charge(
    nodes: list[PostgresStore],
) -> None:
    async def use(node: int) -> None:
        for number in range(20):
            name = f"r{node}-{number}"
            await nodes[node].ledger.reserve(wanted(name, run="x"))
            if number % 2:
                await nodes[node].ledger.settle([ending(name)])

    async def set_budgets() -> None:
        for number in range(10):
            budget = Budget(id=f"b{number}", scope="project", scope_id="p", ceiling=10**6)
            await nodes[0].ledger.put_budget(budget)
            assert await nodes[1].ledger.delete_budget(f"b{number}")
            await nodes[0].ledger.put_budget(budget)
            await asyncio.sleep(0)

    await asyncio.gather(*map(use, range(3)), set_budgets())
    state = await state_of(nodes[0])
    assert (state.spent, state.held) == (30 * 7, 30 * 10)
    assert await nodes[2].ledger.check() == []


async def test_nodes_that_give_a_run_its_ceiling_at_once_share_one_budget(
    nodes: list[PostgresStore],
) -> None:
    await nodes[0].ledger.reserve(wanted("first", run="x"))

    async def reserve(node: int, number: int) -> bool:
        ceiling = 100 if number % 2 else None
        one = wanted(f"r{node}-{number}", run="x", run_ceiling=ceiling)
        return isinstance(await nodes[node].ledger.reserve(one), Granted)

    calls = [reserve(node, number) for number in range(20) for node in range(3)]
    granted = sum(await asyncio.gather(*calls))
    (state,) = await nodes[0].ledger.budgets("run", "p/x")
    assert state.held == 10 * (granted + 1)
    assert isinstance(await nodes[1].ledger.reserve(wanted("last", run="x")), Refused)
    assert await nodes[2].ledger.check() == []


async def test_a_charge_beside_the_first_ceiling_of_its_run_is_counted(
    nodes: list[PostgresStore],
) -> None:
    async def reserve(node: int, ceiling: int | None) -> None:
        for number in range(60):
            run = f"x{number}"
            one = wanted(f"{run}-{node}", run=run, run_ceiling=ceiling)
            assert isinstance(await nodes[node].ledger.reserve(one), Granted)

    await asyncio.gather(reserve(0, None), reserve(1, 1000), reserve(2, 900))
    states = await nodes[0].ledger.budgets("run")
    assert {(state.held, state.budget.ceiling) for state in states} == {(30, 900)}
    assert len(states) == 60
    assert await nodes[2].ledger.check() == []


async def test_nodes_that_change_many_budgets_do_not_wait_for_each_other_forever(
    nodes: list[PostgresStore], url: str
) -> None:
    for scope, names in (("project", "pqr"), ("key", "abc"), ("user", ("p/u", "q/u", "r/u"))):
        for name in names:
            await nodes[0].ledger.put_budget(
                Budget(id=f"{scope}{name}", scope=scope, scope_id=name, ceiling=10**9)  # type: ignore[arg-type]
            )
    before = await deadlocks(url)

    async def use(node: int, number: int) -> None:
        name = f"r{node}-{number}"
        project, key = "pqr"[number % 3], "abc"[(number + node) % 3]
        store = nodes[node]
        await store.begin(project, opened(name), [])
        one = wanted(name, project=project, key=key, user="u")
        assert isinstance(await store.ledger.reserve(one), Granted)
        await store.finish(project, opened(name, status="completed"), entries=[ending(name)])

    await asyncio.gather(*(use(node, number) for number in range(60) for node in range(3)))
    assert await nodes[0].ledger.check() == []
    assert await deadlocks(url) == before


async def deadlocks(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        question = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        return int(await connection.fetchval(question))
    finally:
        await connection.close()


async def test_an_unknown_payer_is_asked_about_from_memory(store: PostgresStore, url: str) -> None:
    assert not await store.ledger.limits_apply(Payer("p"), "m")
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE budgets IN ACCESS EXCLUSIVE MODE")
            store.ledger._read_at += 3600  # the answer is fresh for this test
            async with asyncio.timeout(30):
                assert not await store.ledger.limits_apply(Payer("p", user="new"), "m")
    finally:
        await connection.close()
