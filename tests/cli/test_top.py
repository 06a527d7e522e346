"""`antiphon top`: one screen, or a live one that q and Ctrl-C leave."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.cli.top_screen import Moment, draw
from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Budget, BudgetState, UsageRow
from tests.cli.books import STORE, fill
from tests.cli.terminals import at_terminal


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


def _moment(today: list[UsageRow], budgets: list[BudgetState] | None = None) -> Moment:
    return Moment(
        now=0,
        running=2,
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
    result = runner.invoke(main, ["top", "--once", *STORE])

    assert "Nothing was asked today" in result.stdout
    assert "antiphon budgets set" in result.stdout


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


def test_only_budgets_near_their_limits_are_shown() -> None:
    near = draw(_moment([], [_budget(70), _budget(10)]), 80, 40)
    far = draw(_moment([], [_budget(69)]), 80, 40)

    assert sum("project acme" in line for line in near) == 1
    assert any("70 %" in line for line in near)
    assert "The budget is below 70 %." in far


@pytest.mark.parametrize("width", [20, 80, 140])
def test_no_line_is_longer_than_the_screen(width: int) -> None:
    rows = [_row("a-project-with-a-very-long-name-" * 4, 10**15)]
    assert max(map(len, draw(_moment(rows, [_budget(100)]), width, 40))) <= width


@pytest.mark.parametrize("keys", ["q", "\x03"])
async def test_the_live_screen_is_left_with_a_key(keys: str, tmp_path: Path) -> None:
    async with at_terminal("top", *STORE, "--interval", "0.2", home=tmp_path) as terminal:
        await terminal.until("q leaves")
        await terminal.until("q leaves")  # drawn again, in place
        terminal.type(keys)
        assert await terminal.end() == 0
        await terminal.until_raw("\x1b[?1049l")
