"""Alerts of budgets: which thresholds are reported, and how often."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.keep.budget_alerts import BudgetAlerts
from antiphon.gateway.assemble import ServerSettings
from antiphon.store import MemoryStore
from antiphon.store.base.ledger import Budget
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask
from tests.engine.keep.test_webhooks import endpoint, listening, unwrapped
from tests.store.ledger_samples import Clock, ending, wanted

DAY = 86_400
_numbers = count(1)


def alerts_on(store: MemoryStore, *endpoints: str) -> BudgetAlerts:
    mint: Callable[[str], str] = lambda prefix: f"{prefix}_{next(_numbers)}"  # noqa: E731
    return BudgetAlerts(endpoints or ("hook",), store, now=lambda: 7, mint=mint)


def budget(ceiling: int = 100, **fields: Any) -> Budget:
    known: dict[str, Any] = {"id": "bud_1", "scope": "project", "scope_id": "p", "soft": (50, 80)}
    return Budget(ceiling=ceiling, **{**known, "period": "day", **fields})


async def spend(store: MemoryStore, cost: int, **payer: Any) -> None:
    name = f"r{next(_numbers)}"
    await store.ledger.reserve(wanted(name, cost=cost, **payer))
    await store.ledger.settle([ending(name, cost=cost)])


async def thresholds(store: MemoryStore, alerts: BudgetAlerts) -> list[int]:
    """Look at the budgets; return the thresholds of which there are new notices."""
    await alerts.look()
    found = await store.notices.take("hook", 10, 10, 100)
    for one in found:
        await store.notices.settle(one.id)
    return [json.loads(one.response_id)["threshold"] for one in found]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


async def test_each_threshold_is_reported_once(store: MemoryStore) -> None:
    await store.ledger.put_budget(budget())
    alerts, seen = alerts_on(store), []
    for cost in (40, 15, 5, 25, 15):
        await spend(store, cost)
        seen.append(await thresholds(store, alerts))
        assert await thresholds(store, alerts) == []
    assert seen == [[], [50], [], [80], [100]]


async def test_of_thresholds_that_are_passed_at_once_the_highest_is_reported(
    store: MemoryStore,
) -> None:
    await store.ledger.put_budget(budget())
    await spend(store, 90)
    assert await thresholds(store, alerts_on(store)) == [80]


async def test_a_notice_has_the_figures_of_the_budget(store: MemoryStore) -> None:
    store.ledger.clock = Clock()
    place: dict[str, Any] = {"scope": "user", "scope_id": "p/ann"}
    await store.ledger.put_budget(budget(10**9, **place))
    await spend(store, 6 * 10**8, user="ann")
    await alerts_on(store).look()
    (notice,) = await store.notices.take("hook", 10, 10, 100)
    assert (notice.type, notice.owner, notice.created_at) == ("budget.threshold", "p", 7)
    assert json.loads(notice.response_id) == {
        "id": "bud_1",
        "threshold": 50,
        "scope": "user",
        "scope_id": "ann",
        "project_id": "p",
        "unit": "usd",
        "limit": "1.00",
        "spent": "0.60",
        "period": "day",
        "period_start": 1_700_006_400,
    }


async def test_a_raised_ceiling_and_a_new_period_begin_again(store: MemoryStore) -> None:
    store.ledger.clock = clock = Clock()
    await store.ledger.put_budget(budget())
    alerts = alerts_on(store)
    await spend(store, 85)
    assert await thresholds(store, alerts) == [80]
    await store.ledger.put_budget(budget(200))
    assert await thresholds(store, alerts) == []
    await spend(store, 20)
    assert await thresholds(store, alerts) == [50]
    clock.now += DAY
    assert await thresholds(store, alerts) == []
    await spend(store, 120)
    assert await thresholds(store, alerts) == [50]


async def test_processes_on_one_store_report_it_once(store: MemoryStore) -> None:
    await store.ledger.put_budget(budget())
    await spend(store, 60)
    found = [await thresholds(store, alerts_on(store)) for _ in range(3)]
    assert found == [[50], [], []]


async def test_what_callers_set_for_their_runs_is_not_reported(store: MemoryStore) -> None:
    await spend(store, 60, run="night")
    await store.ledger.reserve(wanted("last", cost=1, run="night", run_ceiling=61))
    assert await thresholds(store, alerts_on(store)) == []


async def test_endpoints_that_come_later_are_informed(store: MemoryStore) -> None:
    await store.ledger.put_budget(budget())
    await spend(store, 60)
    alerts = BudgetAlerts((), store, now=lambda: 0, mint=str)
    assert await thresholds(store, alerts) == []
    alerts.use(["hook"])
    assert await thresholds(store, alerts) == [50]


async def test_a_refused_request_is_reported_to_the_endpoints_that_ask_for_it() -> None:
    store = MemoryStore()
    place = {"scope": "project", "scope_id": "local", "unit": "tokens"}
    await store.ledger.put_budget(budget(100, **place))
    async with listening() as listener, listening() as other:
        hooks = (
            endpoint(listener.url, events=("budget.threshold",)),
            endpoint(other.url, events=("response.failed",)),
        )
        settings = ServerSettings(webhooks=hooks)
        async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
            running = asyncio.create_task(gateway.app.webhooks.run())
            assert (await ask(gateway)).status == 429
            request = await listener.next()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    assert unwrapped(request)
    event = json.loads(request.body)
    assert event["type"] == "budget.threshold"
    assert (event["data"]["id"], event["data"]["threshold"]) == ("bud_1", 100)
    assert (event["data"]["spent"], event["data"]["limit"]) == (0, 100)
    assert other.heard.empty()
