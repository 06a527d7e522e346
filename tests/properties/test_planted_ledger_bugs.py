"""Would a bug in the ledger be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to a module's own source: a settlement
without the fence, a cancelled call that costs nothing, a period by the time of settlement, money
in floats. The changed modules keep the books of one story in a real file; what the books say
at its end is held against what they must.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store import ledger_rates, ledger_rows, ledger_rules
from antiphon.store.base.ledger import Budget, RateLimit, Reservation, Settlement
from antiphon.store.sqlite import (
    ledger_abandoned,
    ledger_books,
    ledger_limits,
    ledger_names,
    ledger_reading,
    ledger_writing,
)
from antiphon.store.sqlite.connection import connect
from tests.properties.planting import plant
from tests.store.ledger_samples import NOON, ending, wanted

MODULES: Final = (
    ledger_rates,
    ledger_rules,
    ledger_rows,
    ledger_names,
    ledger_books,
    ledger_writing,
    ledger_limits,
    ledger_reading,
    ledger_abandoned,
)
DAY: Final = 86_400
# More than a float keeps: 2**53 nano-dollars are nine million dollars.
LARGE: Final = 2**53 + 1


class Story:
    """Calls of one set of modules, each in a transaction of its own."""

    def __init__(self, connection: Any, modules: dict[str, Any]) -> None:
        self._connection = connection
        self._modules = modules
        self.now = NOON

    @contextmanager
    def _in_transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        yield
        self._connection.execute("COMMIT")

    def reserve(self, *some: Reservation, writer: str = "us") -> list[bool]:
        kind = self._modules["ledger_writing"].Reserve
        jobs = [kind(writer, lambda: self.now, one, (), False) for one in some]
        with self._in_transaction():
            answers = kind.together(self._connection, jobs)
        return [hasattr(answer, "warnings") for answer in answers]

    def extend(self, response_id: str, cost: int, writer: str = "us") -> bool:
        held = TokenCounts(output=10)
        kind = self._modules["ledger_writing"].Extend
        with self._in_transaction():
            job = kind(writer, lambda: self.now, response_id, 0, held, cost)
            return bool(job(self._connection))

    def settle(self, *some: Settlement, writer: str = "us") -> None:
        with self._in_transaction():
            settle = self._modules["ledger_writing"].settle_charges
            settle(self._connection, writer, some, self.now)

    def put_budget(self, ceiling: int, **more: Any) -> None:
        fields = {"id": "b", "scope": "project", "scope_id": "p", "period": "day", **more}
        with self._in_transaction():
            put = self._modules["ledger_limits"].put_budget
            put(self._connection, Budget(ceiling=ceiling, **fields), self.now)

    def put_limit(self, **fields: Any) -> None:
        limit = RateLimit(id="l", scope="project", scope_id="p", **fields)
        with self._in_transaction():
            self._modules["ledger_limits"].put_limit(self._connection, limit)

    def settle_dead(self) -> int:
        with self._in_transaction():
            settle = self._modules["ledger_abandoned"].settle_dead
            return int(settle(self._connection, lambda name: name == "us", self.now, 100))

    def look(self, question: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(question).fetchall()  # type: ignore[no-any-return]

    def sums(self) -> list[tuple[Any, ...]]:
        return self.look("SELECT spent, held, typeof(spent) FROM budgets")

    def problems(self) -> list[Any]:
        check = self._modules["ledger_reading"].check_books
        return check(self._connection, lambda name: name == "us")  # type: ignore[no-any-return]


def _money(story: Story) -> Iterator[tuple[str, bool]]:
    story.put_budget(3 * LARGE)
    yield "granted", story.reserve(wanted("r1", cost=LARGE), wanted("r2", cost=LARGE)) == [True] * 2
    yield "exact holds", story.sums() == [(0, 2 * LARGE, "integer")]
    yield "too much", story.reserve(wanted("r3", cost=LARGE + 1)) == [False]
    yield "refused keeps nothing", story.look("SELECT count(*) FROM charges") == [(2,)]
    yield "repeated", story.reserve(wanted("r1", cost=LARGE)) == [True]
    yield "counted once", story.sums() == [(0, 2 * LARGE, "integer")]
    story.settle(ending("r1", cost=LARGE), ending("r2", cost=1))
    yield "exact sums", story.sums() == [(LARGE + 1, 0, "integer")]
    story.settle(ending("r1", cost=5))
    yield "settled once", story.sums() == [(LARGE + 1, 0, "integer")]
    yield "unpriced", story.reserve(wanted("r4", cost=None)) == [False]
    (one,) = story.look("SELECT sum(cost) FROM usage_sums WHERE width = 3600")
    yield "summed up", one == (LARGE + 1,)


def _ends(story: Story) -> Iterator[tuple[str, bool]]:
    story.put_budget(100)
    story.reserve(*(wanted(f"r{number}") for number in range(4)))
    story.settle(ending("r0"), writer="other")
    yield "the fence", story.sums() == [(0, 40, "integer")]
    yield "the fence of more", not story.extend("r0", 20, writer="other")
    story.settle(ending("r0", outcome="cancelled", cost=6))
    yield "a cancelled call is paid", story.sums() == [(6, 30, "integer")]
    story.settle(ending("r1", outcome="released", cost=9))
    yield "a released one is not", story.sums() == [(6, 20, "integer")]
    yield "no room", not story.extend("r2", 90)
    yield "room", story.extend("r2", 80)
    yield "more is held", story.sums() == [(6, 90, "integer")]
    story.reserve(wanted("d", cost=4), writer="dead")
    yield "abandoned", story.settle_dead() == 1
    yield "what was held", story.sums() == [(10, 90, "integer")]
    story.put_budget(0, id="late", period="total")
    late = story.look("SELECT spent, held FROM budgets WHERE id = 'late'")
    yield "a late budget", late == [(10, 90)]
    story.settle(ending("r2", cost=1), ending("r3", cost=2))
    late = story.look("SELECT spent, held FROM budgets WHERE id = 'late'")
    yield "what was held counts once", late == [(13, 0)]


def _periods(story: Story) -> Iterator[tuple[str, bool]]:
    story.put_budget(25)
    story.reserve(wanted("r1"), wanted("r2"))
    yield "full", story.reserve(wanted("r3")) == [False]
    story.now += DAY
    yield "a new day", story.reserve(wanted("r3")) == [True]
    story.settle(ending("r1"), ending("r2"))
    yield "the day of the reservation", story.sums() == [(0, 10, "integer")]
    story.settle(ending("r3"))
    starts = story.look("SELECT DISTINCT start FROM usage_sums WHERE width = 86400 ORDER BY 1")
    yield "two days", starts == [(int(NOON) // DAY * DAY,), (int(NOON) // DAY * DAY + DAY,)]


def _limits(story: Story) -> Iterator[tuple[str, bool]]:
    story.put_limit(requests=3, tokens=100, concurrent=4)
    some = [wanted(f"r{number}", tokens=10, is_request=True) for number in range(4)]
    yield "three requests", story.reserve(*some) == [True, True, True, False]
    yield "a second charge", story.reserve(wanted("r0", 1, tokens=10)) == [True]
    yield "a fourth response", story.reserve(wanted("q", tokens=10)) == [True]
    yield "no fifth", story.reserve(wanted("s", tokens=10)) == [False]
    yield "its seat is kept", story.reserve(wanted("r1", 1, tokens=10)) == [True]
    yield "too many tokens", story.reserve(wanted("r0", 2, tokens=42)) == [False]
    story.settle(ending("r0", tokens=8), ending("r0", 1, tokens=8))
    yield "given back", story.reserve(wanted("q", 1, tokens=44)) == [True]
    story.now += 20
    yield "later", story.reserve(wanted("t", tokens=20, is_request=True)) == [True]


def _runs(story: Story) -> Iterator[tuple[str, bool]]:
    story.reserve(wanted("r0", run="x"))
    yield "too low", story.reserve(wanted("r1", run="x", run_ceiling=19)) == [False]
    yield "set", story.reserve(wanted("r1", run="x", run_ceiling=35)) == [True]
    yield "not raised", story.reserve(wanted("r2", run="x", cost=16, run_ceiling=99)) == [False]
    yield "lowered", story.reserve(wanted("r2", run="x", cost=1, run_ceiling=21)) == [True]
    yield "stays lowered", story.reserve(wanted("r3", run="x", cost=1)) == [False]
    story.settle(ending("r0", cost=2))
    yield "earlier ones count", story.sums() == [(2, 11, "integer")]
    both = wanted("r4", run="y", cost=1, run_ceiling=50), wanted("r4", 1, run="y", run_default=3)
    yield "a default lowers nothing", story.reserve(*both) == [True, True]
    yield "a default limits", story.reserve(wanted("r5", run="z", run_default=9)) == [False]


STORIES: Final = (_money, _ends, _periods, _limits, _runs)


def _wrong(planted: dict[str, Any], directory: Path) -> list[str]:
    """Return what is wrong at the end of every story."""
    wrong: list[str] = []
    for number, story in enumerate(STORIES):
        with closing(connect(directory / f"{number}.db", patience=5.0)) as connection:
            told = Story(connection, planted)
            try:
                wrong += [what for what, is_so in story(told) if not is_so]
                wrong += [problem.rule for problem in told.problems()]
            except Exception as error:  # noqa: BLE001 # a bug may show itself in any way
                wrong.append(repr(error))
    return wrong


def _planted(old: str, new: str) -> dict[str, Any]:
    """Return every module with the change in it, or in what it imports."""
    assert any(old in inspect.getsource(module) for module in MODULES), "write the bug again"
    made: dict[str, Any] = {}
    for place, module in enumerate(MODULES, 1):
        name = module.__name__.rpartition(".")[2]
        before = MODULES[:place]
        is_changed = any(old in inspect.getsource(one) for one in before)
        made[name] = plant(before, old, new) if is_changed else module
    return made


BUGS: Final = {
    "settle without the fence": (
        '    WHERE response = ? AND number = ? AND state = 0 AND writer = ?\n"""\n_SETTLE',
        '    WHERE response = ? AND number = ? AND state = 0 AND ? > 0\n"""\n_SETTLE',
    ),
    "settle twice": (
        '    WHERE response = ? AND number = ? AND state = 0 AND writer = ?\n"""\n_SETTLE',
        '    WHERE response = ? AND number = ? AND ifnull(writer, 0) <> -?\n"""\n_SETTLE',
    ),
    "a budget set since is forgotten": ('f"{_UPDATE} AND links IS NULL"', "_UPDATE"),
    "release on cancel": (
        'if settled.outcome != "released":',
        'if settled.outcome not in {"released", "cancelled"}:',
    ),
    "period by settle time": (
        "if row is not None and row.period_start == start:",
        "if row is not None:",
    ),
    "sums by settle time": ("seconds = reserved_at // 1000", "seconds = int(time.time())"),
    "float money": (
        'tokens.total if unit == "tokens" else cost or 0',
        'tokens.total if unit == "tokens" else float(cost or 0)',
    ),
    "float sums": ("cost or 0, int(cost", "float(cost or 0), int(cost"),
    "hold stays": ("row.held -= amount_of", "row.held -= 0 * amount_of"),
    "spend is forgotten": ("row.spent += amount_of", "row.spent += 0 * amount_of"),
    "spend what was held": (
        "amount_of(row.budget.unit, settled.used, settled.cost)",
        "amount_of(row.budget.unit, held, held_cost)",
    ),
    "no roll-over": ("if start > self.period_start:", "if start < self.period_start:"),
    "one too much": ("row.used + amount <= ceiling", "row.used <= ceiling"),
    "holds are not asked": ("row.used + amount <= ceiling", "row.spent + amount <= ceiling"),
    "unpriced is free": ("if not is_refused and row.used", "if row.used"),
    "a repeated reservation counts": (
        "if name in decisions or connection",
        "if name in decisions and connection",
    ),
    "more without room": (
        "if change > 0 and row.used + change",
        "if change > 0 and row.spent + change",
    ),
    "what is held now is not linked": ("    _link(connection, budget, row)\n", ""),
    "what was spent does not count": ("return spent, holds", "return 0, holds"),
    "requests are not counted": ("+ _MINUTE // limit.requests", "+ 0"),
    "tokens are not given back": ("limit.give_back(", "limit.give_back(0 *"),
    "a second charge needs a seat": ("return wanted.response_id in self.running or", "return"),
    "a seat is for ever": (
        '_OPEN: Final = "charges INDEXED BY charges_held WHERE state = 0"',
        '_OPEN: Final = "charges WHERE state >= 0"',
    ),
    "a run raises its ceiling": (
        "return min(row.budget.ceiling, wanted.run_ceiling)",
        "return wanted.run_ceiling",
    ),
    "a default of a run lowers its ceiling": (
        "        return row.budget.ceiling\n    return min(",
        "        return min(row.budget.ceiling, wanted.run_default or 0)\n    return min(",
    ),
    "a run forgets": ("self._runs.get(budget.scope_id, (0, 0))", "(0, 0)"),
    "the dead pay nothing": ("        used=held,\n        cost=held_cost,", "        cost=0,"),
}


def test_the_modules_as_they_are_tell_the_stories(tmp_path: Path) -> None:
    modules = {module.__name__.rpartition(".")[2]: module for module in MODULES}
    assert _wrong(modules, tmp_path) == []


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_seen(bug: str, tmp_path: Path) -> None:
    assert _wrong(_planted(*BUGS[bug]), tmp_path) != []
