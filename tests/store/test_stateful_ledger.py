"""Ledgers do what a plain list of charges would do, in any order of calls.

Each call goes to the memory ledger, to one in a database and to the model; the three agree on
every answer, on every budget and on the sums, and the books contradict nothing. A second store on
the database reserves charges and dies; its charges are settled by the first.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store import MemoryStore, SqliteStore
from antiphon.store.base.ledger import (
    Budget,
    Granted,
    Payer,
    RateLimit,
    Reservation,
    Settlement,
    UsageQuery,
)
from antiphon.store.postgres import PostgresStore
from tests.postgres import fresh_database
from tests.store.ledger_model import ModelLedger, start_of
from tests.store.ledger_samples import NOON, Clock

RESPONSES = st.sampled_from([f"r{number}" for number in range(12)])
NUMBERS = st.integers(0, 2)
PAYERS = st.builds(
    Payer,
    st.sampled_from(["p", "q"]),
    key=st.sampled_from([None, "k1", "k2"]),
    user=st.sampled_from([None, "u"]),
    conversation=st.sampled_from([None, "c"]),
    run=st.sampled_from([None, "x", "y"]),
)
COSTS = st.integers(0, 40)
SCOPES = st.sampled_from(
    [
        ("organization", ""),
        ("project", "p"),
        ("key", "k1"),
        ("user", "p/u"),
        ("conversation", "q/c"),
        ("run", "p/x"),
    ]
)
OUTCOMES = st.sampled_from(["completed", "incomplete", "failed", "cancelled", "released"])
WAITS = st.sampled_from([1.0, 3600.0, 43_200.0, 86_400.0, 7 * 86_400.0])
FIELDS = ("project", "key", "user", "model", "provider", "kind", "basis", "outcome")
# Seconds before or after now: also at the edges of hours and days.
EDGES = st.builds(
    lambda hours, seconds: hours * 3600 + seconds,
    st.integers(-24 * 9, 30),
    st.sampled_from([-1, 0, 1]),
)
QUERIES = st.fixed_dictionaries(
    {
        "width": st.sampled_from([60, 3600, 86_400]),
        "group_by": st.lists(st.sampled_from(FIELDS), unique=True, max_size=3).map(tuple),
        "projects": st.sampled_from([(), (), ("p",), ("q", "none")]),
        "keys": st.sampled_from([(), (), (), ("k1",)]),
        "users": st.sampled_from([(), (), (), ("u",)]),
        "models": st.sampled_from([(), (), ("n",)]),
        "kinds": st.sampled_from([(), (), ("model",), ("search", "image")]),
    }
)
DEAD = "dead"


class LedgerMachine(RuleBasedStateMachine):
    """The model is a list; each question goes to it and to both ledgers."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ModelLedger()
        self.clock = Clock(NOON)
        self.count = 0
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "a.db"
        self.memory = MemoryStore()
        self.memory.ledger.clock = self.clock
        self.kept = self._open()
        self.mortal: SqliteStore | PostgresStore | None = None

    def _open(self) -> SqliteStore | PostgresStore:
        """Return a store on the data that is kept, with the clock of the test."""
        store = self._store()
        store.ledger.clock = self.clock
        return store

    def _store(self) -> SqliteStore | PostgresStore:
        return SqliteStore(self.path)

    def teardown(self) -> None:
        if self.mortal is not None:
            self.run(self.mortal.close())
        self.run(self.kept.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        self.directory.cleanup()

    def run(self, coroutine: Any) -> Any:
        """Any: each method has its own answer."""
        return self.loop.run_until_complete(coroutine)

    def both(self, method: str, *args: Any) -> Any:
        """Ask both ledgers; return their one answer."""
        answers = [
            self.run(getattr(store.ledger, method)(*args)) for store in (self.memory, self.kept)
        ]
        assert answers[0] == answers[1]
        return answers[0]

    @rule(
        response=RESPONSES,
        number=NUMBERS,
        payer=PAYERS,
        cost=st.none() | COSTS,
        tokens=st.tuples(COSTS, COSTS),
        model=st.sampled_from(["m", "n"]),
        kind=st.sampled_from(["model", "model", "search"]),
        ceiling=st.none() | st.integers(0, 100),
        allows=st.booleans(),
        is_mortal=st.booleans(),
    )
    def reserve(  # all that a reservation has
        self,
        response: str,
        number: int,
        payer: Payer,
        cost: int | None,
        tokens: tuple[int, int],
        model: str,
        kind: Any,
        ceiling: int | None,
        allows: bool,
        is_mortal: bool,
    ) -> None:
        wanted = Reservation(
            response_id=response,
            number=number,
            payer=payer,
            model=model,
            kind=kind,
            held=TokenCounts(fresh=tokens[0], output=tokens[1]),
            held_cost=cost,
            is_request=number == 0,
            run_ceiling=ceiling,
            allows_unpriced=allows,
        )
        if is_mortal and self.mortal is None:
            self.mortal = self._open()
        writer = self.mortal if is_mortal and self.mortal is not None else self.kept
        answers = [self.run(store.ledger.reserve(wanted)) for store in (self.memory, writer)]
        assert answers[0] == answers[1]
        granted = self.model.reserve(wanted, self.clock.now, DEAD if is_mortal else "us")
        assert isinstance(answers[0], Granted) is granted

    @rule(response=RESPONSES, number=NUMBERS, tokens=COSTS, cost=COSTS)
    def extend(self, response: str, number: int, tokens: int, cost: int) -> None:
        key = (response, number)
        known = self.model.charges.get(key)
        if known is not None and known.writer == DEAD:
            return  # the memory ledger has one writer
        answer = self.both("extend", response, number, TokenCounts(output=tokens), cost)
        assert answer is self.model.extend(key, tokens, cost, self.clock.now, "us")

    @rule(
        response=RESPONSES,
        number=NUMBERS,
        outcome=OUTCOMES,
        basis=st.sampled_from(["reported", "counted"]),
        cost=st.none() | COSTS,
        tokens=st.tuples(COSTS, COSTS),
    )
    def settle(
        self,
        response: str,
        number: int,
        outcome: Any,
        basis: Any,
        cost: int | None,
        tokens: tuple[int, int],
    ) -> None:
        settled = Settlement(
            response_id=response,
            number=number,
            outcome=outcome,
            basis=basis,
            used=TokenCounts(fresh=tokens[0], reasoning=tokens[1]),
            cost=cost,
        )
        known = self.model.charges.get((response, number))
        self.run(self.kept.ledger.settle([settled]))
        if known is None or known.writer != DEAD:
            self.run(self.memory.ledger.settle([settled]))
        self.model.settle(settled, "us")

    @precondition(lambda self: self.mortal is not None)
    @rule()
    def crash(self) -> None:
        assert self.mortal is not None
        self.run(self.mortal.close())
        self.mortal = None
        left = [one for one in self.model.charges.values() if one.writer == DEAD]
        left = [one for one in left if one.state == "held"]
        assert self.run(self.kept.ledger.settle_abandoned(100)) == len(left)
        for one in left:
            settled = Settlement(
                response_id=one.wanted.response_id,
                number=one.wanted.number,
                outcome="failed",
                basis="assumed",
                used=one.wanted.held,
                cost=one.wanted.held_cost,
            )
            self.run(self.memory.ledger.settle([settled]))
            self.model.settle(settled, DEAD)

    @rule(
        scope=SCOPES,
        unit=st.sampled_from(["usd", "tokens"]),
        period=st.sampled_from(["total", "day", "day", "week", "month"]),
        ceiling=st.integers(0, 200),
        allows=st.booleans(),
    )
    def put_budget(self, scope: Any, unit: Any, period: Any, ceiling: int, allows: bool) -> None:
        self.count += 1
        budget = Budget(
            id=f"b{self.count}",
            scope=scope[0],
            scope_id=scope[1],
            unit=unit,
            period=period,
            ceiling=ceiling,
            allows_unpriced=allows,
        )
        state = self.both("put_budget", budget)
        self.model.budgets[budget.scope, budget.scope_id, unit, period] = budget
        assert (state.spent, state.held) == self.model.used(budget, self.clock.now)

    @precondition(lambda self: self.model.budgets)
    @rule(place=st.integers(0, 100))
    def delete_budget(self, place: int) -> None:
        states = self.both("budgets")
        budget = states[place % len(states)].budget
        assert self.both("delete_budget", budget.id)
        del self.model.budgets[budget.scope, budget.scope_id, budget.unit, budget.period]

    @rule(scope=SCOPES, seats=st.none() | st.integers(1, 3))
    def put_limit(self, scope: Any, seats: int | None) -> None:
        limit_id = f"l-{scope[0]}"
        if seats is None:
            assert self.both("delete_limit", limit_id) is (scope in self.model.seats)
            self.model.seats.pop(scope, None)
            return
        limit = RateLimit(id=limit_id, scope=scope[0], scope_id=scope[1], concurrent=seats)
        self.both("put_limit", limit)
        self.model.seats[scope] = seats

    @rule(seconds=WAITS)
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(edges=st.tuples(EDGES, EDGES), asked=QUERIES)
    def look(self, edges: tuple[int, int], asked: dict[str, Any]) -> None:
        start, end = sorted(int(self.clock.now) + edge for edge in edges)
        query = UsageQuery(start=start, end=end + 1, **asked)
        rows = self.both("usage", query)
        found = {
            (row.start, *(getattr(row, name) for name in query.group_by)): (
                *(row.charges, row.requests, row.used.total, row.cost),
                *(row.unpriced, row.not_reported),
            )
            for row in rows
        }
        assert len(found) == len(rows)
        assert found == self.model.sums(query)

    @rule(hours=st.sampled_from([1, 48]))
    def total(self, hours: int) -> None:
        while self.run(self.kept.ledger.total(hours)) == hours:
            pass

    @rule()
    def check(self) -> None:
        assert self.run(self.memory.ledger.check()) == []
        assert self.run(self.kept.ledger.check()) == []

    @invariant()
    def budgets_agree(self) -> None:
        states = self.both("budgets")
        assert len(states) == len(self.model.budgets)
        for state in states:
            budget = state.budget
            place = (budget.scope, budget.scope_id, budget.unit, budget.period)
            known = self.model.budgets[place]
            assert budget.ceiling == known.ceiling
            assert (state.spent, state.held) == self.model.used(known, self.clock.now)
            assert state.period_start == start_of(budget.period, self.clock.now)


class PostgresLedgerMachine(LedgerMachine):
    """The same with a database on a server."""

    def __init__(self) -> None:
        self.database = fresh_database()
        self.url = ""
        super().__init__()

    def _store(self) -> PostgresStore:
        self.url = self.url or self.run(self.database.__aenter__())
        return PostgresStore(self.url)

    def teardown(self) -> None:
        if self.mortal is not None:
            self.run(self.mortal.close())
            self.mortal = None
        self.run(self.kept.close())
        self.run(self.database.__aexit__(None, None, None))
        super().teardown()


_SETTINGS = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLedgers = LedgerMachine.TestCase
TestLedgers.settings = _SETTINGS
TestPostgresLedgers = PostgresLedgerMachine.TestCase
TestPostgresLedgers.settings = settings(_SETTINGS, max_examples=15)
