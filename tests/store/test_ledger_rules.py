"""The rules of reservations: who is granted, and what budgets and limits become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Budget, Granted, RateLimit, Refused
from antiphon.store.ledger_rows import pack_id, unpack_id
from antiphon.store.ledger_rules import (
    RUN_PREFIX,
    Books,
    BudgetRow,
    LimitRow,
    Links,
    decode_links,
    encode_links,
    floor_time,
    normalize,
    period_start,
)
from tests.store.ledger_model import start_of
from tests.store.ledger_samples import NOON, ending, wanted

TIMES = st.floats(0, 4_000_000_000, allow_nan=False)


def limited(**fields: Any) -> LimitRow:
    return LimitRow(1, RateLimit(id="l", scope="project", scope_id="p", **fields))


def budget(ceiling: int, *, spent: int = 0, held: int = 0, key: int = 1) -> BudgetRow:
    made = Budget(id=f"b{key}", scope="project", scope_id="p", period="total", ceiling=ceiling)
    return BudgetRow(key, made, 0, spent, held)


@given(TIMES)
def test_periods_are_those_of_the_calendar(now: float) -> None:
    for period in ("total", "day", "week", "month"):
        assert period_start(period, now) == start_of(period, now)


def test_a_week_begins_on_monday() -> None:
    monday = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
    assert period_start("week", monday) == monday
    assert period_start("week", monday - 0.001) == monday - 7 * 86_400


@given(TIMES)
def test_a_time_without_parts_of_milliseconds_is_in_the_same_period(now: float) -> None:
    floored = floor_time(now)
    assert 0 <= now - floored < 0.0011
    assert round(floored * 1000) / 1000 == floored
    assert period_start("day", floored) == period_start("day", now)


def test_a_refused_reservation_does_not_count_for_those_after_it() -> None:
    books = Books(NOON, [budget(25)])
    answers = [
        books.reserve(wanted(f"r{n}", cost=cost)).answer for n, cost in enumerate((20, 10, 5))
    ]
    assert [isinstance(answer, Granted) for answer in answers] == [True, False, True]
    (row,) = books.changed_budgets()
    assert (row.held, row.excess) == (25, 0)


def test_all_budgets_are_taken_from_or_none() -> None:
    books = Books(NOON, [budget(100, key=1), budget(5, key=2)])
    answer = books.reserve(wanted("r")).answer
    assert isinstance(answer, Refused)
    assert answer.id == "b2"
    assert books.changed_budgets() == []


def test_the_widest_scope_is_named_in_a_refusal() -> None:
    narrow = Budget(id="narrow", scope="key", scope_id="k", period="total", ceiling=0)
    wide = Budget(id="wide", scope="organization", period="total", ceiling=0)
    books = Books(NOON, [BudgetRow(1, narrow, 0), BudgetRow(2, wide, 0)])
    answer = books.reserve(wanted("r", key="k")).answer
    assert isinstance(answer, Refused)
    assert answer.id == "wide"


def test_a_forced_reservation_is_granted_and_leaves_the_budget_overdrawn() -> None:
    books = Books(NOON, [budget(15)])
    for name in ("r1", "r2"):
        assert isinstance(books.reserve(wanted(name), is_forced=True).answer, Granted)
    (row,) = books.changed_budgets()
    assert (row.held, row.excess) == (20, 5)


def test_the_time_of_books_is_not_before_a_period_that_has_begun() -> None:
    row = budget(10)
    row.budget = msgspec.structs.replace(row.budget, period="day")
    row.period_start = period_start("day", NOON)
    books = Books(row.period_start - 5.0, [row])
    assert books.now == row.period_start
    assert books.reserve(wanted("r")).links.budgets == ((1, row.period_start),)


def test_a_settlement_of_an_older_period_does_not_change_the_new_one() -> None:
    row = budget(100, held=10)
    row.budget = msgspec.structs.replace(row.budget, period="day")
    row.period_start = period_start("day", NOON)
    links = Links(((1, row.period_start - 86_400),))
    Books(NOON, [row]).settle(links, TokenCounts(output=10), 10, ending("r"))
    assert (row.spent, row.held) == (0, 10)


def test_a_ceiling_that_was_refused_leaves_no_budget() -> None:
    books = Books(NOON, runs={"p/x": (4, 5)})
    assert isinstance(books.reserve(wanted("r", run="x", run_ceiling=18)).answer, Refused)
    assert books.changed_budgets() == []
    decision = books.reserve(wanted("r", run="x", run_ceiling=19))
    assert isinstance(decision.answer, Granted)
    (row,) = books.changed_budgets()
    assert (row.key, row.spent, row.held, row.excess) == (0, 4, 15, 0)
    assert row.budget.id.startswith(RUN_PREFIX)
    assert decision.budgets == (row,)
    assert isinstance(books.reserve(wanted("q", run="x", cost=1)).answer, Refused)


@given(st.integers(1, 100_000), st.integers(0, 2**31))
def test_a_minute_lets_exactly_the_limit_pass(limit: int, start: int) -> None:
    row = limited(requests=limit)
    books = Books(float(start), limits=[row])
    row.tat_requests = start * 10**9 + (limit - 1) * (60 * 10**9 // limit)
    assert isinstance(books.reserve(wanted("r1", is_request=True)).answer, Granted)
    refusal = books.reserve(wanted("r2", is_request=True)).answer
    assert isinstance(refusal, Refused)
    assert refusal.retry_after is not None
    assert 0 < refusal.retry_after <= 60 / limit + 1e-6
    later = Books(start + refusal.retry_after + 0.001, limits=[row])
    assert isinstance(later.reserve(wanted("r2", is_request=True)).answer, Granted)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 80)), max_size=30))
def test_tokens_never_pass_faster_than_the_limit(steps: list[tuple[int, int, int]]) -> None:
    """What was used in any time is at most a full limit, its refill, and what was over-used."""
    limit, now, row = 100, NOON, limited(tokens=100)
    used = over = 0
    for number, (held, wait, spent) in enumerate(steps):
        now += wait
        books = Books(now, limits=[row])
        decision = books.reserve(wanted(f"r{number}", tokens=held))
        if isinstance(decision.answer, Granted):
            counts = TokenCounts(output=spent)
            settled = msgspec.structs.replace(ending(f"r{number}"), used=counts)
            books.settle(decision.links, decision.wanted.held, 0, settled)
            used += spent
            over = max(over, spent - held)
        assert used <= limit + (now - NOON) * limit / 60 + over + 1


def test_the_tightest_limit_is_reported() -> None:
    one = limited(requests=10, tokens=1000)
    two = LimitRow(2, RateLimit(id="m", scope="organization", requests=5, tokens=5000))
    answer = Books(NOON, limits=[one, two]).reserve(wanted("r", is_request=True)).answer
    assert isinstance(answer, Granted)
    assert answer.requests is not None
    assert answer.tokens is not None
    assert (answer.requests.limit, answer.requests.remaining) == (5, 4)
    assert (answer.tokens.limit, answer.tokens.remaining) == (1000, 990)


@pytest.mark.parametrize("fields", [{"requests": 0}, {"tokens": 0}])
def test_a_limit_of_nothing_lets_nothing_pass(fields: dict[str, int]) -> None:
    answer = Books(NOON, limits=[limited(**fields)]).reserve(wanted("r", is_request=True, tokens=0))
    assert isinstance(answer.answer, Refused)
    assert answer.answer.retry_after is None


def test_a_released_charge_used_nothing() -> None:
    settled = normalize(ending("r", cost=5, outcome="released"))
    assert (settled.cost, settled.used.total) == (0, 0)
    assert normalize(ending("r", outcome="cancelled")).cost == 7


def test_links_are_the_same_after_storage() -> None:
    links = Links(((1, 2), (3, 4)), ((5, 6),))
    assert decode_links(encode_links(links)) == links


@given(st.text(max_size=20) | st.from_regex(r"resp_[A-Za-z0-9-]{0,9}[0-9a-f]{48}", fullmatch=True))
def test_ids_are_the_same_after_storage(response_id: str) -> None:
    assert unpack_id(pack_id(response_id)) == response_id


def test_an_id_of_a_gateway_is_packed() -> None:
    assert len(pack_id("resp_ap-" + "0f" * 24)) == 28
