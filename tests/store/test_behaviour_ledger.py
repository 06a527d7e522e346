"""What every ledger does: hold, refuse, settle once, count, and prove its sums."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base import AuditQuery, AuditRecord, Store
from antiphon.store.base.ledger import (
    Budget,
    Granted,
    Ledger,
    LineItem,
    Payer,
    RateLimit,
    Refused,
    UsageQuery,
)
from antiphon.store.base.requests import RequestQuery
from tests.store.conftest import LEDGER_KINDS, Database, open_database
from tests.store.ledger_samples import NOON, Clock, ending, wanted
from tests.store.samples import OWNER, opened

DAY = 86_400
MINTED = "resp_ap-" + "0123456789abcdef" * 3


@pytest.fixture(params=LEDGER_KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database of each kind that has a ledger."""
    async with open_database(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return store.ledger


def set_clock(store: Store, clock: Clock) -> None:
    """Let a store go by this clock. A database on a server has a clock of its own."""
    if not hasattr(store.ledger, "clock"):
        pytest.skip("the clock of a server cannot be set")
    store.ledger.clock = clock


def everything(**more: Any) -> UsageQuery:
    return UsageQuery(start=0, end=2**33, width=more.pop("width", DAY), **more)


# Reserving and settling


async def test_a_charge_is_held_and_then_settled(ledger: Ledger) -> None:
    assert await ledger.reserve(wanted(MINTED, key="k", user="u", conversation="c")) == Granted()
    (held,) = await ledger.open_charges(MINTED)
    assert (held.state, held.held_cost, held.cost, held.outcome) == ("held", 10, None, None)
    items = (LineItem("search", 2, 5),)
    await ledger.settle([ending(MINTED, first_ms=3, total_ms=9, items=items)])
    assert await ledger.open_charges(MINTED) == []
    (charge,) = await ledger.charges(response_id=MINTED)
    assert charge.response_id == MINTED
    assert charge.payer == Payer("p", key="k", user="u", conversation="c")
    assert (charge.state, charge.cost, charge.outcome) == ("settled", 7, "completed")
    assert (charge.first_ms, charge.total_ms, charge.items) == (3, 9, items)
    assert charge.used == TokenCounts(fresh=5, output=3)
    assert charge.settled_at is not None
    assert charge.settled_at >= charge.reserved_at
    assert await ledger.check() == []


async def test_a_second_settlement_changes_nothing(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=100))
    await ledger.reserve(wanted("r"))
    await ledger.settle([ending("r", cost=7)])
    await ledger.settle([ending("r", cost=9), ending("r", outcome="released")])
    (charge,) = await ledger.charges(response_id="r")
    assert (charge.cost, charge.outcome) == (7, "completed")
    (state,) = await ledger.budgets()
    assert (state.spent, state.held) == (7, 0)
    (row,) = await ledger.usage(everything())
    assert (row.charges, row.cost) == (1, 7)


async def test_the_same_reservation_again_is_granted_and_counts_once(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=10))
    for _ in range(3):
        answer = await ledger.reserve(wanted("r"))
        assert isinstance(answer, Granted)
        assert answer.is_limited
    (state,) = await ledger.budgets()
    assert state.held == 10
    assert len(await ledger.charges()) == 1


async def test_a_released_charge_cost_nothing_and_is_in_no_sum(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=10))
    await ledger.reserve(wanted("r"))
    await ledger.settle([ending("r", cost=10, outcome="released")])
    (charge,) = await ledger.charges()
    assert (charge.state, charge.cost, charge.used.total) == ("released", 0, 0)
    (state,) = await ledger.budgets()
    assert (state.spent, state.held) == (0, 0)
    assert await ledger.usage(everything()) == []


async def test_settlements_are_made_also_if_the_reservation_is_refused(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=10))
    await ledger.reserve(wanted("r"))
    answer = await ledger.reserve(wanted("r", 1, cost=4), [ending("r", 0, cost=7)])
    assert isinstance(answer, Refused)
    assert (answer.used, answer.limit) == (7, 10)
    assert [charge.number for charge in await ledger.charges()] == [0]
    assert await ledger.check() == []


async def test_a_settlement_makes_room_for_the_next_charge_of_its_turn(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=10))
    await ledger.reserve(wanted("r"))
    answer = await ledger.reserve(wanted("r", 1, cost=3), [ending("r", 0, cost=7)])
    assert isinstance(answer, Granted)
    assert [charge.number for charge in await ledger.open_charges("r")] == [1]


async def test_a_charge_reserved_soon_is_there_before_what_is_written_later(
    store: Store, ledger: Ledger
) -> None:
    running, done = opened("r"), opened("r")
    ledger.reserve_soon(wanted("r", project=OWNER))
    await store.begin(OWNER, running, [])
    done.status = "completed"
    await store.finish(OWNER, done, entries=[ending("r")])
    (charge,) = await ledger.charges(response_id="r")
    assert charge.state == "settled"
    assert await ledger.check() == []


async def test_many_charges_reserved_soon_and_settled_at_once(store: Store, ledger: Ledger) -> None:
    for number in range(50):
        ledger.reserve_soon(wanted(f"r{number}"))
    ends = [ledger.settle([ending(f"r{number}")]) for number in range(50)]
    await asyncio.gather(*ends)
    (row,) = await ledger.usage(everything())
    assert (row.charges, row.cost, row.used.total) == (50, 350, 400)
    assert await ledger.check() == []


# The end of a turn


async def test_the_end_of_a_turn_settles_its_charges(store: Store, ledger: Ledger) -> None:
    await ledger.reserve(wanted("r", project=OWNER))
    response = opened("r")
    await store.begin(OWNER, response, [])
    response.status = "completed"
    await store.finish(OWNER, response, entries=[ending("r", cost=5)])
    (charge,) = await ledger.charges(response_id="r")
    assert (charge.state, charge.cost) == ("settled", 5)


async def test_an_end_that_is_lost_settles_nothing(store: Store, ledger: Ledger) -> None:
    await ledger.reserve(wanted("r", project=OWNER))
    response = opened("r")
    response.status = "completed"
    with pytest.raises(TurnLost):
        await store.finish(OWNER, response, entries=[ending("r")])
    (charge,) = await ledger.open_charges("r")
    assert charge.state == "held"


async def test_charges_stay_when_their_response_is_deleted(store: Store, ledger: Ledger) -> None:
    await ledger.reserve(wanted("r", project=OWNER))
    await store.begin(OWNER, opened("r"), [])
    await store.delete(OWNER, "r")
    await ledger.settle([ending("r")])
    (charge,) = await ledger.charges(project=OWNER)
    assert charge.state == "settled"


# Budgets


async def test_a_budget_lets_through_what_fits_and_no_more(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="organization", ceiling=100, period="total"))
    answers = await asyncio.gather(*(ledger.reserve(wanted(f"r{n}")) for n in range(50)))
    assert sum(isinstance(answer, Granted) for answer in answers) == 10
    refusal = next(answer for answer in answers if isinstance(answer, Refused))
    assert (refusal.by, refusal.scope, refusal.id, refusal.limit) == (
        "budget",
        "organization",
        "b",
        100,
    )
    assert refusal.retry_after is None
    assert len(await ledger.charges()) == 10
    assert await ledger.check() == []


async def test_a_refused_reservation_takes_from_no_budget(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="wide", scope="organization", ceiling=100))
    await ledger.put_budget(Budget(id="narrow", scope="key", scope_id="k", ceiling=5))
    await ledger.put_limit(RateLimit(id="l", scope="project", scope_id="p", requests=1))
    answer = await ledger.reserve(wanted("r", key="k", is_request=True))
    assert isinstance(answer, Refused)
    assert (answer.id, answer.scope, answer.scope_id) == ("narrow", "key", "k")
    assert [state.held for state in await ledger.budgets()] == [0, 0]
    assert isinstance(await ledger.reserve(wanted("r", is_request=True)), Granted)


async def test_users_of_two_projects_are_not_the_same_user(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="user", scope_id="p/ann", ceiling=5))
    assert isinstance(await ledger.reserve(wanted("r1", user="ann", project="q")), Granted)
    assert isinstance(await ledger.reserve(wanted("r2", user="ann")), Refused)


async def test_a_budget_counts_what_was_spent_and_is_held_already(ledger: Ledger) -> None:
    await ledger.reserve(wanted("r1", user="a/b", conversation="c"))
    await ledger.settle([ending("r1", cost=7)])
    await ledger.reserve(wanted("r2", user="a/b", conversation="c", cost=9))
    for scope, scope_id in (
        ("organization", ""),
        ("project", "p"),
        ("user", "p/a/b"),
        ("conversation", "p/c"),
    ):
        budget = Budget(id=f"b-{scope}", scope=scope, scope_id=scope_id, ceiling=100)  # type: ignore[arg-type] # of these
        state = await ledger.put_budget(budget)
        assert (state.spent, state.held) == (7, 9)
    tokens = Budget(id="t", scope="project", scope_id="p", unit="tokens", ceiling=100)
    state = await ledger.put_budget(tokens)
    assert (state.spent, state.held) == (8, 10)
    await ledger.settle([ending("r2", cost=1)])
    assert {(s.spent, s.held) for s in await ledger.budgets() if s.budget.unit == "usd"} == {(8, 0)}
    assert await ledger.check() == []


async def test_a_new_ceiling_replaces_the_old_one_and_keeps_the_sums(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=100))
    await ledger.reserve(wanted("r1", cost=60))
    state = await ledger.put_budget(Budget(id="c", scope="project", scope_id="p", ceiling=50))
    assert (state.budget.id, state.held) == ("c", 60)
    assert len(await ledger.budgets()) == 1
    assert isinstance(await ledger.reserve(wanted("r2", cost=0)), Refused)
    assert await ledger.check() == []
    await ledger.put_budget(Budget(id="c", scope="project", scope_id="p", ceiling=70))
    assert isinstance(await ledger.reserve(wanted("r2")), Granted)
    assert await ledger.delete_budget("c")
    assert not await ledger.delete_budget("c")
    assert isinstance(await ledger.reserve(wanted("r3", cost=10**9)), Granted)
    assert await ledger.check() == []


async def test_budgets_are_listed_by_scope(ledger: Ledger) -> None:
    for name in ("p", "q"):
        await ledger.put_budget(Budget(id=name, scope="project", scope_id=name, ceiling=1))
    await ledger.put_budget(Budget(id="o", scope="organization", ceiling=1))
    assert [state.budget.id for state in await ledger.budgets()] == ["p", "q", "o"]
    assert [state.budget.id for state in await ledger.budgets("project")] == ["p", "q"]
    assert [state.budget.id for state in await ledger.budgets("project", "q")] == ["q"]


async def test_an_unpriced_charge_needs_leave_of_a_budget_in_money(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=100))
    answer = await ledger.reserve(wanted("r1", cost=None))
    assert isinstance(answer, Refused)
    assert answer.by == "unpriced"
    assert isinstance(await ledger.reserve(wanted("r2", cost=None, allows_unpriced=True)), Granted)
    await ledger.settle([ending("r2", cost=None)])
    (row,) = await ledger.usage(everything())
    assert (row.cost, row.unpriced) == (0, 1)
    await ledger.put_budget(
        Budget(id="b", scope="project", scope_id="p", ceiling=100, allows_unpriced=True)
    )
    assert isinstance(await ledger.reserve(wanted("r1", cost=None)), Granted)
    assert await ledger.check() == []


async def test_the_first_soft_threshold_gives_a_warning(ledger: Ledger) -> None:
    await ledger.put_budget(
        Budget(id="b", scope="project", scope_id="p", ceiling=100, soft=(80, 50))
    )
    first = await ledger.reserve(wanted("r1", cost=49))
    second = await ledger.reserve(wanted("r2", cost=1))
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert (first.warnings, second.warnings) == ((), ("b",))


async def test_a_charge_that_cost_more_than_was_held_is_no_contradiction(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=10))
    await ledger.reserve(wanted("r"))
    await ledger.settle([ending("r", cost=50)])
    (state,) = await ledger.budgets()
    assert (state.spent, state.held) == (50, 0)
    assert await ledger.check() == []


async def test_more_is_held_only_if_there_is_room(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=30))
    await ledger.reserve(wanted("r1"))
    await ledger.reserve(wanted("r2"))
    more = TokenCounts(fresh=5, output=20)
    assert not await ledger.extend("r1", 0, more, 21)
    assert await ledger.extend("r1", 0, more, 20)
    (charge,) = await ledger.open_charges("r1")
    assert (charge.held, charge.held_cost) == (more, 20)
    assert isinstance(await ledger.reserve(wanted("r3", cost=1)), Refused)
    await ledger.settle([ending("r1", cost=2)])
    assert not await ledger.extend("r1", 0, more, 3)
    (state,) = await ledger.budgets()
    assert (state.spent, state.held) == (2, 10)
    assert await ledger.check() == []


# Runs


async def test_a_run_sets_its_ceiling_and_may_only_lower_it(ledger: Ledger) -> None:
    assert isinstance(await ledger.reserve(wanted("r1", run="x", run_ceiling=30)), Granted)
    assert isinstance(await ledger.reserve(wanted("r2", run="x", run_ceiling=100)), Granted)
    (state,) = await ledger.budgets("run")
    assert (state.budget.ceiling, state.held, state.budget.scope_id) == (30, 20, "p/x")
    answer = await ledger.reserve(wanted("r3", run="x", run_ceiling=20))
    assert isinstance(answer, Refused)
    assert (answer.scope, answer.limit) == ("run", 20)
    assert isinstance(await ledger.reserve(wanted("r3", run="x", cost=4, run_ceiling=25)), Granted)
    assert isinstance(await ledger.reserve(wanted("r4", run="x", cost=2)), Refused)
    assert isinstance(await ledger.reserve(wanted("r5", run="y")), Granted)
    assert await ledger.limits_apply(Payer("p", run="x"), "m")
    assert await ledger.check() == []


async def test_a_default_is_the_ceiling_of_a_run_that_has_none(ledger: Ledger) -> None:
    assert isinstance(await ledger.reserve(wanted("r0", run="x", run_default=9)), Refused)
    assert isinstance(await ledger.reserve(wanted("r1", run="x", run_default=25)), Granted)
    assert isinstance(await ledger.reserve(wanted("r2", run="x", run_default=99)), Granted)
    assert isinstance(await ledger.reserve(wanted("r3", run="x")), Refused)
    (state,) = await ledger.budgets("run")
    assert (state.budget.ceiling, state.held) == (25, 20)
    assert isinstance(await ledger.reserve(wanted("r3", run="x", run_ceiling=21)), Refused)
    assert await ledger.check() == []


async def test_a_default_lowers_no_ceiling_that_there_is_but_a_maximum_does(
    ledger: Ledger,
) -> None:
    await ledger.reserve(wanted("r1", run="x", run_ceiling=50))
    await ledger.reserve(wanted("r2", run="x", run_default=30))
    assert [one.budget.ceiling for one in await ledger.budgets("run")] == [50]
    await ledger.reserve(wanted("r3", run="x", run_default=30, run_ceiling=40))
    assert [one.budget.ceiling for one in await ledger.budgets("run")] == [40]
    await ledger.reserve(wanted("s1", run="y", run_default=30, run_ceiling=20))
    assert [one.budget.ceiling for one in await ledger.budgets("run", "p/y")] == [20]


async def test_a_ceiling_applies_to_its_run_alone(ledger: Ledger) -> None:
    run, other = Payer("p", run="night"), Payer("p", run="day")
    assert not await ledger.limits_apply(run, "m")
    await ledger.reserve(wanted("r1", run="night", run_ceiling=100))
    assert await ledger.limits_apply(run, "m")
    assert not await ledger.limits_apply(other, "m")
    assert not await ledger.limits_apply(Payer("q", run="night"), "m")
    assert not await ledger.limits_apply(Payer("p"), "m")
    await ledger.put_budget(Budget(id="b", scope="run", scope_id="p/day", ceiling=50))
    assert await ledger.limits_apply(other, "m")
    assert [one.budget.id for one in await ledger.budgets(with_ceilings=False)] == ["b"]
    assert len(await ledger.budgets()) == 2
    assert len(await ledger.budgets("run", "p/night", with_ceilings=False)) == 0


async def test_a_ceiling_counts_what_the_run_has_used_before(ledger: Ledger) -> None:
    await ledger.reserve(wanted("r1", run="x"))
    await ledger.settle([ending("r1", cost=7)])
    await ledger.reserve(wanted("r2", run="x"))
    assert isinstance(await ledger.reserve(wanted("r3", run="x", run_ceiling=26)), Refused)
    assert await ledger.budgets() == []
    assert isinstance(await ledger.reserve(wanted("r3", run="x", run_ceiling=27)), Granted)
    (state,) = await ledger.budgets()
    assert (state.spent, state.held) == (7, 20)
    await ledger.settle([ending("r2", cost=1)])
    assert await ledger.check() == []


# Periods


async def test_a_new_period_begins_with_nothing_spent(store: Store, ledger: Ledger) -> None:
    clock = Clock()
    set_clock(store, clock)
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", period="day", ceiling=25))
    await ledger.reserve(wanted("r1"))
    await ledger.reserve(wanted("r2"))
    await ledger.settle([ending("r1")])
    assert isinstance(await ledger.reserve(wanted("r3")), Refused)
    clock.now += DAY
    (state,) = await ledger.budgets()
    assert (state.spent, state.held, state.period_start) == (0, 0, int(NOON) // DAY * DAY + DAY)
    assert isinstance(await ledger.reserve(wanted("r3")), Granted)
    assert await ledger.check() == []


async def test_a_charge_counts_in_the_period_of_its_reservation(
    store: Store, ledger: Ledger
) -> None:
    clock = Clock()
    set_clock(store, clock)
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", period="day", ceiling=25))
    await ledger.reserve(wanted("r1"))
    clock.now += DAY
    await ledger.reserve(wanted("r2"))
    assert await ledger.extend("r1", 0, TokenCounts(output=50), 50)
    await ledger.settle([ending("r1", cost=20)])
    (state,) = await ledger.budgets()
    assert (state.spent, state.held) == (0, 10)
    first, *others = await ledger.usage(everything())
    assert (first.start, first.cost, others) == (int(NOON) // DAY * DAY, 20, [])
    assert await ledger.check() == []


# Rate limits


async def test_requests_pass_until_the_limit_and_again_later(store: Store, ledger: Ledger) -> None:
    clock = Clock()
    set_clock(store, clock)
    await ledger.put_limit(RateLimit(id="l", scope="key", scope_id="k", requests=7))
    answers = [await ledger.reserve(wanted(f"r{n}", key="k", is_request=True)) for n in range(9)]
    assert [isinstance(answer, Granted) for answer in answers] == [True] * 7 + [False] * 2
    refusal = answers[-1]
    assert isinstance(refusal, Refused)
    assert (refusal.by, refusal.unit, refusal.period, refusal.used) == (
        "requests",
        "requests",
        "minute",
        7,
    )
    assert refusal.retry_after is not None
    assert refusal.retry_after == pytest.approx(60 / 7, abs=0.001)
    assert refusal.requests is not None
    assert refusal.requests.remaining == 0
    assert isinstance(await ledger.reserve(wanted("r0", 1, key="k")), Granted)
    clock.now += refusal.retry_after + 0.001
    assert isinstance(await ledger.reserve(wanted("a", key="k", is_request=True)), Granted)
    assert isinstance(await ledger.reserve(wanted("b", key="k", is_request=True)), Refused)
    clock.now += 60
    granted = await ledger.reserve(wanted("c", key="k", is_request=True))
    assert isinstance(granted, Granted)
    assert granted.requests is not None
    assert (granted.requests.limit, granted.requests.remaining) == (7, 6)


async def test_tokens_that_were_not_used_are_given_back(store: Store, ledger: Ledger) -> None:
    set_clock(store, Clock())
    await ledger.put_limit(RateLimit(id="l", scope="project", scope_id="p", tokens=100, model="m"))
    assert isinstance(await ledger.reserve(wanted("r1", tokens=80)), Granted)
    refusal = await ledger.reserve(wanted("r2", tokens=30))
    assert isinstance(refusal, Refused)
    assert refusal.by == "tokens"
    assert refusal.retry_after == pytest.approx(6.0)
    assert isinstance(await ledger.reserve(wanted("r3", tokens=30, model="other")), Granted)
    await ledger.settle([ending("r1", tokens=70)])
    granted = await ledger.reserve(wanted("r2", tokens=30))
    assert isinstance(granted, Granted)
    assert granted.tokens is not None
    assert granted.tokens.remaining == 0
    await ledger.settle([ending("r2", tokens=40)])
    refusal = await ledger.reserve(wanted("r4", tokens=2))
    assert isinstance(refusal, Refused)
    assert refusal.retry_after == pytest.approx(7.2)


async def test_input_beyond_the_limit_never_passes(ledger: Ledger) -> None:
    await ledger.put_limit(RateLimit(id="l", scope="project", scope_id="p", tokens=100))
    answer = await ledger.reserve(wanted("r1", tokens=202))
    assert isinstance(answer, Refused)
    assert (answer.by, answer.retry_after) == ("too_large", None)
    granted = await ledger.reserve(wanted("r1", tokens=200))
    assert isinstance(granted, Granted)
    assert granted.tokens is not None
    assert granted.tokens.remaining == 0


async def test_responses_that_run_have_a_seat_each(ledger: Ledger) -> None:
    await ledger.put_limit(RateLimit(id="l", scope="user", scope_id="p/u", concurrent=2))
    assert isinstance(await ledger.reserve(wanted("r1", user="u")), Granted)
    assert isinstance(await ledger.reserve(wanted("r2", user="u")), Granted)
    refusal = await ledger.reserve(wanted("r3", user="u"))
    assert isinstance(refusal, Refused)
    assert refusal.by == "concurrent"
    assert refusal.retry_after is not None
    assert isinstance(await ledger.reserve(wanted("r1", 1, user="u")), Granted)
    await ledger.settle([ending("r1", 0)])
    assert isinstance(await ledger.reserve(wanted("r3", user="u")), Refused)
    await ledger.settle([ending("r1", 1)])
    assert isinstance(await ledger.reserve(wanted("r3", user="u")), Granted)


async def test_limits_are_replaced_listed_and_removed(ledger: Ledger) -> None:
    one = RateLimit(id="one", scope="project", scope_id="p", requests=1)
    two = RateLimit(id="two", scope="project", scope_id="p", model="m", tokens=5, concurrent=1)
    await ledger.put_limit(RateLimit(id="old", scope="project", scope_id="p", requests=9))
    await ledger.put_limit(one)
    await ledger.put_limit(two)
    assert await ledger.rate_limits() == [one, two]
    assert await ledger.rate_limits("project", "p") == [one, two]
    assert await ledger.rate_limits("key") == []
    assert await ledger.delete_limit("one")
    assert not await ledger.delete_limit("one")
    assert await ledger.rate_limits("project") == [two]


async def test_limits_apply_to_the_scopes_and_models_they_name(ledger: Ledger) -> None:
    payer = Payer("p", key="k", user="u")
    assert not await ledger.limits_apply(payer, "m")
    await ledger.put_limit(RateLimit(id="l", scope="key", scope_id="k", model="m", requests=1))
    assert await ledger.limits_apply(payer, "m")
    assert not await ledger.limits_apply(payer, "n")
    assert not await ledger.limits_apply(Payer("p", key="j"), "m")
    await ledger.delete_limit("l")
    assert not await ledger.limits_apply(payer, "m")
    await ledger.put_budget(Budget(id="b", scope="user", scope_id="p/u", ceiling=1))
    assert await ledger.limits_apply(payer, "m")
    assert not await ledger.limits_apply(Payer("q", user="u"), "m")


async def test_a_charge_that_cannot_be_refused_counts_all_the_same(ledger: Ledger) -> None:
    await ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=15))
    ledger.reserve_soon(wanted("r1"))
    ledger.reserve_soon(wanted("r2"))
    assert len(await ledger.charges()) == 2
    (state,) = await ledger.budgets()
    assert state.held == 20
    assert await ledger.check() == []


# Lists and sums


async def test_charges_are_listed_newest_first_in_pages(store: Store, ledger: Ledger) -> None:
    for number in range(5):
        await ledger.reserve(
            wanted(f"r{number}", project="p" if number % 2 else "q", run="x", conversation="c")
        )
    charges = await ledger.charges()
    assert [charge.reserved_at for charge in charges] == sorted(
        (charge.reserved_at for charge in charges), reverse=True
    )
    pages, last = [], None
    while page := await ledger.charges(before=last, limit=2):
        pages += page
        last = (page[-1].reserved_at, page[-1].response_id, page[-1].number)
    assert pages == charges
    assert {charge.response_id for charge in await ledger.charges(project="p")} == {"r1", "r3"}
    assert len(await ledger.charges(run="x", conversation="c", project="q")) == 3
    assert await ledger.charges(run="none") == []
    assert await ledger.charges(response_id="none") == []


async def make_requests(ledger: Ledger) -> None:
    """Five requests: r0 runs, r1 ended at its second try, r2 failed, r3 is a chain, r4 released."""
    for number in range(5):
        project, model = ("p" if number % 2 else "q"), ("m" if number < 3 else "n")
        await ledger.reserve(
            wanted(f"r{number}", project=project, model=model, key=f"k{number}", run="x")
        )
    await ledger.reserve(wanted("r1", 1, project="p"), [ending("r1", outcome="failed")])
    await ledger.settle([ending("r1", 1), ending("r2", outcome="failed")])
    for number in (1, 2):
        last = ending("r3", number - 1)
        await ledger.reserve(wanted("r3", number, project="p"), [last])
    await ledger.settle([ending("r3", 2, outcome="incomplete"), ending("r4", outcome="released")])


async def asked(ledger: Ledger, **query: Any) -> list[str]:
    return [one[0].response_id for one in await ledger.requests(RequestQuery(**query))]


async def test_a_request_has_all_its_charges_in_their_order(ledger: Ledger) -> None:
    await make_requests(ledger)
    found = await ledger.requests(RequestQuery())
    assert {one[0].response_id: [charge.number for charge in one] for one in found} == {
        "r0": [0],
        "r1": [0, 1],
        "r2": [0],
        "r3": [0, 1, 2],
        "r4": [0],
    }
    times = [one[0].reserved_at for one in found]
    assert times == sorted(times, reverse=True)


async def test_requests_are_chosen_by_every_filter(ledger: Ledger) -> None:
    await make_requests(ledger)
    newest = [one[0] for one in await ledger.requests(RequestQuery())]
    assert set(await asked(ledger, projects=("p",))) == {"r1", "r3"}
    assert set(await asked(ledger, projects=("p", "q"), models=("n",))) == {"r3", "r4"}
    assert await asked(ledger, keys=("k2",)) == ["r2"]
    assert await asked(ledger, users=("ann",)) == await asked(ledger, conversations=("c",)) == []
    assert await asked(ledger, runs=("x",), responses=("r3", "none")) == ["r3"]
    assert await asked(ledger, projects=("no\0name",)) == []
    late = newest[2].reserved_at
    assert set(await asked(ledger, start=late)) | set(await asked(ledger, end=late)) == {
        charge.response_id for charge in newest
    }
    assert all(one[0].reserved_at < late for one in await ledger.requests(RequestQuery(end=late)))


@pytest.mark.parametrize(
    ("status", "ids"),
    [
        ("in_progress", {"r0"}),
        ("completed", {"r1"}),
        ("failed", {"r2"}),
        ("incomplete", {"r3"}),
        ("released", {"r4"}),
        ("cancelled", set()),
    ],
)
async def test_a_request_ends_as_its_last_charge(
    ledger: Ledger, status: Any, ids: set[str]
) -> None:
    await make_requests(ledger)
    assert set(await asked(ledger, status=status)) == ids


async def test_pages_of_requests_fit_together(ledger: Ledger) -> None:
    await make_requests(ledger)
    pages: list[str] = []
    last = None
    while page := await ledger.requests(RequestQuery(before=last, limit=2)):
        pages += [one[0].response_id for one in page]
        last = (page[-1][0].reserved_at, page[-1][0].response_id)
    assert pages == await asked(ledger)


@pytest.mark.parametrize("width", [60, 3600, DAY])
async def test_usage_is_summed_by_time_and_name(store: Store, ledger: Ledger, width: Any) -> None:
    clock = Clock()
    set_clock(store, clock)
    for number, model in enumerate(("a", "a", "b")):
        await ledger.reserve(wanted(f"r{number}", model=model, key="k", is_request=number == 0))
        await ledger.settle([ending(f"r{number}", basis="counted" if model == "b" else "reported")])
    clock.now += width
    await ledger.reserve(wanted("r3", model="a"))
    await ledger.settle([ending("r3", outcome="cancelled", cost=None)])
    await ledger.reserve(wanted("r4", model="a"))
    first, second = int(NOON), int(NOON) + width
    rows = await ledger.usage(everything(width=width, group_by=("model",)))
    seen = [(row.start, row.model, row.charges, row.requests, row.cost) for row in rows]
    assert seen == [
        (first // width * width, "a", 2, 1, 14),
        (first // width * width, "b", 1, 0, 7),
        (second // width * width, "a", 1, 0, 0),
    ]
    assert [row.not_reported for row in rows] == [0, 1, 0]
    rows = await ledger.usage(everything(width=width, group_by=("key", "outcome")))
    assert [(row.key, row.outcome) for row in rows] == [("k", "completed"), (None, "cancelled")]
    query = UsageQuery(start=second, end=second + 1, width=width)
    (row,) = await ledger.usage(query)
    assert (row.charges, row.unpriced, row.used) == (1, 1, TokenCounts(fresh=5, output=3))
    (row,) = await ledger.usage(everything(width=width, models=("b",), projects=("p", "q")))
    assert row.cost == 7
    assert await ledger.usage(everything(width=width, keys=("none",))) == []
    assert await ledger.usage(everything(width=width, kinds=("search",))) == []


@pytest.mark.parametrize("width", [60, 3600, DAY])
async def test_usage_is_summed_by_run_and_conversation(
    store: Store, ledger: Ledger, width: Any
) -> None:
    clock = Clock()
    set_clock(store, clock)
    payers: tuple[dict[str, Any], ...] = (
        {"run": "x", "conversation": "c1"},
        {"run": "x", "conversation": "c2"},
        {"run": "y", "conversation": "c1"},
        {"run": "x", "project": "q"},
        {},
    )
    for number, payer in enumerate(payers):
        await ledger.reserve(wanted(f"r{number}", **payer))
        await ledger.settle([ending(f"r{number}", cost=10**number)])
    clock.now += width
    await ledger.reserve(wanted("late", run="y"))
    await ledger.settle([ending("late", cost=7)])
    await ledger.reserve(wanted("free", run="y"))
    await ledger.settle([ending("free", outcome="released")])
    await ledger.reserve(wanted("held", run="y"))

    async def costs(*group_by: Any, **more: Any) -> list[tuple[Any, ...]]:
        rows = await ledger.usage(everything(width=width, group_by=group_by, **more))
        return [(*(getattr(row, name) for name in group_by), row.cost) for row in rows]

    assert await costs("run") == [(None, 10_000), ("x", 1011), ("y", 100), ("y", 7)]
    by_project = await costs("project", "run", runs=("x",))
    assert by_project == [("p", "x", 11), ("q", "x", 1000)]
    assert await costs("conversation", runs=("x", "none")) == [(None, 1000), ("c1", 1), ("c2", 10)]
    assert await costs("run", conversations=("c1",), projects=("p",)) == [("x", 1), ("y", 100)]
    assert await costs(runs=("y",)) == [(100,), (7,)]
    assert await costs("run", runs=("none",)) == []
    assert len(await costs("run", most=2)) == 2
    early = UsageQuery(start=int(NOON), end=int(NOON) + 1, width=width, runs=("y",))
    assert [row.cost for row in await ledger.usage(early)] == [100]


@pytest.mark.parametrize("width", [3600, DAY])
async def test_totals_change_no_answer(store: Store, ledger: Ledger, width: Any) -> None:
    clock = Clock()
    set_clock(store, clock)
    for number in range(30):
        name = f"r{number}"
        await ledger.reserve(wanted(name, key=f"k{number % 3}", user=name, model=f"m{number % 2}"))
        await ledger.settle([ending(name, outcome="failed" if number % 5 == 0 else "completed")])
        clock.now += 3600 * (1 if number % 7 else 40)
    queries = [
        everything(width=width, group_by=("model", "outcome")),
        everything(width=width, projects=("p",)),
        everything(width=width, group_by=("key",)),
        UsageQuery(start=int(NOON) + DAY + 5, end=int(NOON) + 3 * DAY + 5, width=width),
    ]
    before = [await ledger.usage(query) for query in queries]
    for limit in (1, 2, 10**6):
        await ledger.total(limit)
        assert [await ledger.usage(query) for query in queries] == before
        assert await ledger.check() == []
    await ledger.sweep(int(NOON) + 2 * DAY, 1000)
    assert [await ledger.usage(query) for query in queries] == before
    assert await ledger.check() == []


async def test_an_hour_with_a_held_charge_is_totalled_later(store: Store, ledger: Ledger) -> None:
    clock = Clock()
    set_clock(store, clock)
    await ledger.reserve(wanted("slow"))
    await ledger.reserve(wanted("r"))
    await ledger.settle([ending("r")])
    clock.now += 5 * DAY
    assert await ledger.total(1000) == 0
    await ledger.settle([ending("slow")])
    await ledger.total(1000)
    (row,) = await ledger.usage(everything(width=3600))
    assert (row.charges, row.cost) == (2, 14)
    assert await ledger.check() == []


async def test_totals_are_right_when_the_clock_was_set_back(store: Store, ledger: Ledger) -> None:
    clock = Clock()
    set_clock(store, clock)
    for name, hours in (("r0", 3), ("r1", 2), ("r2", -4), ("r3", 40)):
        await ledger.reserve(wanted(name))
        await ledger.settle([ending(name)])
        clock.now += 3600 * hours
        await ledger.total(1000)
        assert await ledger.check() == []
    rows = await ledger.usage(everything(width=3600))
    assert [(row.start - int(NOON), row.cost) for row in rows] == [
        *((0, 7), (3600, 7), (3 * 3600, 7), (5 * 3600, 7)),
    ]
    (row,) = await ledger.usage(everything())
    assert row.cost == 28


async def test_swept_charges_stay_in_the_sums(store: Store, ledger: Ledger) -> None:
    clock = Clock()
    set_clock(store, clock)
    await ledger.put_budget(
        Budget(id="b", scope="project", scope_id="p", period="total", ceiling=10**6)
    )
    for number in range(3):
        await ledger.reserve(wanted(f"r{number}", run="x", run_ceiling=10**6))
    await ledger.settle([ending("r0"), ending("r1")])
    clock.now += 10 * DAY
    before = int(NOON) + DAY
    assert await ledger.sweep(before, 1) == 1
    assert await ledger.sweep(before, 100) == 1
    assert [charge.response_id for charge in await ledger.charges()] == ["r2"]
    (row,) = await ledger.usage(everything())
    assert (row.charges, row.cost) == (2, 14)
    assert await ledger.check() == []
    state = await ledger.put_budget(
        Budget(id="c", scope="organization", period="total", ceiling=10**6)
    )
    assert (state.spent, state.held) == (14, 10)
    await ledger.settle([ending("r2")])
    await ledger.sweep(before, 100)
    await ledger.sweep(before, 100)
    assert [one.budget.id for one in await ledger.budgets()] == ["b", "c"]
    assert await ledger.check() == []


async def test_names_that_cannot_be_stored_do_not_stop_a_charge(ledger: Ledger) -> None:
    answer = await ledger.reserve(wanted("r\ud800", user="\ud800", model="🎵", run="a\0b"))
    assert answer == Granted()
    await ledger.settle([ending("r\ud800")])
    (charge,) = await ledger.charges()
    assert (charge.response_id, charge.state, charge.model) == ("r\ud800", "settled", "🎵")


# Several stores


async def test_only_the_writer_settles_or_extends_a_charge(pair: tuple[Store, Store]) -> None:
    one, other = pair
    await one.ledger.reserve(wanted("r"))
    await other.ledger.settle([ending("r")])
    assert not await other.ledger.extend("r", 0, TokenCounts(output=99), 99)
    assert await other.ledger.open_charges("r") == []
    (charge,) = await other.ledger.charges(response_id="r")
    assert charge.state == "held"
    assert await other.ledger.settle_abandoned(10) == 0
    assert await other.ledger.check() == []


async def test_stores_share_budgets_and_limits(pair: tuple[Store, Store]) -> None:
    one, other = pair
    assert not await one.ledger.limits_apply(Payer("p"), "m")
    await other.ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=100))
    async with asyncio.timeout(30):
        while not await one.ledger.limits_apply(Payer("p"), "m"):  # noqa: ASYNC110 # no event
            await asyncio.sleep(0.05)
    answers = await asyncio.gather(
        *(store.ledger.reserve(wanted(f"{n}-{id(store)}")) for n in range(20) for store in pair)
    )
    assert sum(isinstance(answer, Granted) for answer in answers) == 10
    assert await one.ledger.check() == []


async def test_a_ceiling_that_another_store_sets_applies(
    pair: tuple[Store, Store],
) -> None:
    one, two = pair
    payer = Payer("p", run="night")
    assert not await two.ledger.limits_apply(payer, "m")
    await one.ledger.reserve(wanted("r1", run="night", run_ceiling=100))
    for _ in range(1200):  # what another process has set is known after a second
        if await two.ledger.limits_apply(payer, "m"):
            break
        await asyncio.sleep(0.05)
    # From then on at once, for every other run too.
    await one.ledger.reserve(wanted("r2", run="day", run_ceiling=100))
    assert await two.ledger.limits_apply(Payer("p", run="day"), "m")
    assert not await two.ledger.limits_apply(Payer("p", run="noon"), "m")


async def test_a_budget_that_another_store_sets_has_what_is_held_now(
    pair: tuple[Store, Store],
) -> None:
    one, other = pair
    await one.ledger.reserve(wanted("r1"))
    await one.ledger.reserve(wanted("r2"))
    state = await other.ledger.put_budget(
        Budget(id="b", scope="project", scope_id="p", ceiling=100)
    )
    assert (state.spent, state.held) == (0, 20)
    await one.ledger.settle([ending("r1")])
    assert await one.ledger.extend("r2", 0, TokenCounts(output=30), 93)
    assert not await one.ledger.extend("r2", 0, TokenCounts(output=30), 94)
    (state,) = await other.ledger.budgets()
    assert (state.spent, state.held) == (7, 93)
    assert await other.ledger.check() == []


async def test_charges_of_a_store_that_died_are_settled_with_what_was_held(
    database: Database, pair: tuple[Store, Store]
) -> None:
    one, other = pair
    await one.ledger.put_budget(Budget(id="b", scope="project", scope_id="p", ceiling=100))
    for number in range(3):
        await one.ledger.reserve(wanted(f"r{number}"))
    await one.close()
    problems = await other.ledger.check()
    assert {problem.rule for problem in problems} == {"I7"}
    assert await other.ledger.settle_abandoned(2) == 2
    assert await other.ledger.settle_abandoned(2) == 1
    assert await other.ledger.settle_abandoned(2) == 0
    for charge in await other.ledger.charges():
        assert (charge.basis, charge.cost, charge.used) == ("assumed", 10, charge.held)
    (state,) = await other.ledger.budgets()
    assert (state.spent, state.held) == (30, 0)
    assert await other.ledger.check() == []


async def test_the_charges_of_an_unfinished_response_go_to_its_successor(
    pair: tuple[Store, Store],
) -> None:
    one, other = pair
    await one.ledger.reserve(wanted("r", project=OWNER))
    response = opened("r")
    await one.begin(OWNER, response, [])
    await one.close()
    assert await other.ledger.settle_abandoned(10) == 0
    assert [orphan.response.id for orphan in await other.claim_orphans(10)] == ["r"]
    assert [charge.number for charge in await other.ledger.open_charges("r")] == [0]
    response.status = "failed"
    await other.finish(OWNER, response, entries=[ending("r", outcome="failed")])
    (charge,) = await other.ledger.charges(response_id="r")
    assert charge.state == "settled"
    assert await other.ledger.check() == []


async def test_a_change_of_a_budget_and_its_audit_record_are_stored_together(store: Store) -> None:
    budget = Budget(id="b", scope="project", scope_id="p", ceiling=10)

    def record(action: str, body: dict[str, Any] | None = None) -> AuditRecord:
        return AuditRecord(at=1, actor="local", action=action, subject="b", body=body or {})

    await store.ledger.put_budget(budget, audit=record("budget.updated"))
    raised = msgspec.structs.replace(budget, ceiling=99)
    with pytest.raises((TypeError, StoreUnavailable)):  # a record that cannot be stored
        await store.ledger.put_budget(raised, audit=record("budget.updated", {"x": object()}))
    (kept,) = await store.ledger.budgets()
    assert not await store.ledger.delete_budget("other", audit=record("budget.deleted"))
    assert await store.ledger.delete_budget("b", audit=record("budget.deleted"))

    entries = await store.audit.page(AuditQuery(), limit=10)
    assert kept.budget.ceiling == 10
    assert sorted(one.action for one in entries) == ["budget.deleted", "budget.updated"]
