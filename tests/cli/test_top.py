"""`antiphon top`: one screen, or a live one that q and Ctrl-C leave."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.cli.top_screen import Moment, draw
from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base import Store
from antiphon.store.base.ledger import Budget, BudgetState, Charge, Payer, UsageRow
from tests.cli.books import DB, STORE, fill, make, use
from tests.cli.terminals import at_terminal
from tests.store.ledger_samples import wanted


def _row(project: str, cost: int, unpriced: int = 0) -> UsageRow:
    return UsageRow(
        start=0,
        project=project,
        key=f"key-of-{project}",
        model="m",
        basis="reported",
        charges=1,
        used=TokenCounts(100, 0, 0, 100),
        cost=cost,
        unpriced=unpriced,
    )


def _moment(
    today: list[UsageRow],
    budgets: list[BudgetState] | None = None,
    running: list[Charge] | None = None,
) -> Moment:
    return Moment(
        now=0,
        running=running or [],
        is_more=False,
        minutes=[UsageRow(start=60 * n, used=TokenCounts(100 * n)) for n in range(5)],
        today=today,
        budgets=budgets or [],
    )


def _budget(spent: int) -> BudgetState:
    return BudgetState(Budget(id="b", scope="project", scope_id="acme", ceiling=100), 0, spent, 0)


def test_one_screen_shows_what_was_spent_today(runner: CliRunner) -> None:
    fill()
    result = runner.invoke(main, ["top", "--once", *STORE])

    assert result.exit_code == 0
    assert "acme" in result.stdout
    assert "$3.00 +?" in result.stdout
    assert "unknown" in result.stdout
    assert "\x1b" not in result.stdout


def test_an_empty_store_says_what_to_do_next(runner: CliRunner) -> None:
    make()
    result = runner.invoke(main, ["top", "--once", *STORE])

    assert "Nothing was asked today" in result.stdout
    assert "antiphon budgets set" in result.stdout


@pytest.mark.parametrize(
    "command",
    [
        *(["top", "--once"], ["usage"], ["ledger", "check"], ["ledger", "export"]),
        *(["budgets", "list"], ["budgets", "set", "--organization", "--usd", "5"]),
        *(["limits", "list"], ["limits", "set", "--organization", "--rpm", "5"]),
        *(["projects", "list"], ["keys", "revoke", "1f0c2a9be4d05a7c"]),
    ],
    ids=" ".join,
)
def test_a_store_in_a_wrong_place_is_missed_and_not_made(
    runner: CliRunner, command: list[str]
) -> None:
    result = runner.invoke(main, [*command, *STORE])

    assert result.exit_code == 1
    assert f"there is no store at {Path(DB).absolute()}" in result.stderr
    assert not Path(DB).exists()


def test_the_most_expensive_come_first_and_lists_are_cut() -> None:
    rows = [_row(f"p{n}", n * 1_000_000_000) for n in range(1, 9)]
    lines = draw(_moment(rows), 80, 26)
    projects = [line.split()[0] for line in lines if line.startswith("p")]

    assert projects == ["p8", "p7", "p6", "p5"]
    assert "… and 4 more" in lines


def test_keys_are_shown_with_their_names() -> None:
    rows = [_row("acme", 3), _row("bank", 2)]
    lines = draw(msgspec.structs.replace(_moment(rows), keys={"key-of-acme": "laptop k1"}), 80, 40)
    assert any(line.startswith("laptop k1 ") for line in lines)
    assert any(line.startswith("key-of-bank ") for line in lines)


def _charge(project: str, began: float) -> Charge:
    return Charge(
        response_id=f"resp_{project}",
        number=0,
        state="held",
        payer=Payer(project, key=f"key-of-{project}"),
        kind="model",
        model="m",
        served="m",
        provider="p",
        reserved_at=began,
        held=TokenCounts(),
    )


def test_what_runs_is_shown_where_there_is_room() -> None:
    running = [_charge(f"p{n}", -3725.0 * (9 - n)) for n in range(9)]
    tall = draw(_moment([_row("acme", 1)], running=running), 80, 50)
    low = draw(_moment([_row("acme", 1)], running=running), 80, 23)

    assert any(line.startswith("9 running") for line in tall)
    assert [line.split()[0] for line in tall if line.endswith("min")][:3] == ["p0", "p1", "p2"]
    assert any(line.endswith("key-of-p0  m      9 h 18 min") for line in tall)
    assert not any("RUNS FOR" in line for line in low)


def test_a_response_with_two_calls_runs_once(runner: CliRunner) -> None:
    async def hold(store: Store) -> None:
        for number in range(2):
            await store.ledger.reserve(wanted("r1", number))

    use(hold)
    shown = runner.invoke(main, ["top", "--once", *STORE]).stdout
    assert "1 running" in shown
    assert "RUNS FOR" in shown


def test_only_budgets_near_their_limits_are_shown() -> None:
    near = draw(_moment([], [_budget(70), _budget(10)]), 80, 40)
    far = draw(_moment([], [_budget(69)]), 80, 40)

    assert sum("project acme" in line for line in near) == 1
    assert any("70 %" in line for line in near)
    assert "The budget is below 70 %." in far


@pytest.mark.parametrize("width", [20, 80, 140])
def test_no_line_is_longer_than_the_screen(width: int) -> None:
    rows = [_row("a-project-with-a-very-long-name-" * 4, 10**15)]
    running = [_charge("a-project-with-a-very-long-name", -9)]
    assert max(map(len, draw(_moment(rows, [_budget(100)], running), width, 40))) <= width


@pytest.mark.parametrize("keys", ["q", "\x03"])
async def test_the_live_screen_is_left_with_a_key(keys: str, tmp_path: Path) -> None:
    await asyncio.to_thread(make)
    async with at_terminal("top", *STORE, "--interval", "0.2", home=tmp_path) as terminal:
        await terminal.until("q leaves")
        await terminal.until("q leaves")  # drawn again, in place
        terminal.type(keys)
        assert await terminal.end() == 0
        await terminal.until_raw("\x1b[?1049l")
