"""`antiphon budgets` and `antiphon limits`: set, listed, deleted; wrong ones are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.store.base import AuditQuery, Store
from antiphon.store.base.ledger import BudgetState, RateLimit
from antiphon.store.sqlite import SqliteStore
from tests.cli.books import DB, STORE, fill, make, use
from tests.store.ledger_samples import wanted


def _run(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, [*arguments, *STORE])


def _stored() -> tuple[list[BudgetState], list[RateLimit], list[str]]:
    """Return what the store holds: budgets, limits, and the actions of the audit log."""

    async def run() -> tuple[list[BudgetState], list[RateLimit], list[str]]:
        store = SqliteStore(Path(DB))
        log = await store.audit.page(AuditQuery(), limit=100, is_descending=False)
        found = await store.ledger.budgets(), await store.ledger.rate_limits()
        await store.close()
        return *found, [entry.action for entry in log]

    return asyncio.run(run())


def test_a_budget_is_set_replaced_listed_and_deleted(runner: CliRunner) -> None:
    fill()
    first = _run(runner, "budgets", "set", "--project", "acme", "--usd", "50")
    second = _run(
        runner, "budgets", "set", "--project", "acme", "--usd", "4.000000001", "--soft", "80,50"
    )
    listed = _run(runner, "budgets", "list")
    (state,), _, _ = _stored()
    deleted = _run(runner, "budgets", "delete", second.stdout.strip())
    states, _, log = _stored()

    assert first.exit_code == second.exit_code == 0
    assert first.stdout == second.stdout
    assert "project acme may spend $50.00 per month; $3.00 is used." in first.stderr
    assert state.budget.ceiling == 4_000_000_001
    assert state.budget.soft == (50, 80)
    assert "74 %" in listed.stdout
    assert deleted.exit_code == 0
    assert states == []
    assert log == ["budget.updated", "budget.updated", "budget.deleted"]


@pytest.mark.parametrize(
    ("arguments", "scope_id", "unit"),
    [
        (["--organization", "--tokens", "1000"], "", "tokens"),
        (["--project", "acme", "--user", "ann", "--usd", "1"], "acme/ann", "usd"),
        (["--project", "acme", "--run", "night", "--tokens", "5"], "acme/night", "tokens"),
        (["--project", "acme", "--conversation", "conv_1", "--usd", "1"], "acme/conv_1", "usd"),
    ],
)
def test_every_scope_can_have_a_budget(
    runner: CliRunner, arguments: list[str], scope_id: str, unit: str
) -> None:
    fill()
    assert _run(runner, "budgets", "set", *arguments, "--per", "total").exit_code == 0
    (state,), _, _ = _stored()

    assert (state.budget.scope_id, state.budget.unit) == (scope_id, unit)
    assert state.budget.period == "total"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--usd", "5"], 2, "--project"),
        (["--project", "acme"], 2, "--usd or as --tokens"),
        (["--project", "acme", "--usd", "5", "--tokens", "5"], 2, "--usd or as --tokens"),
        (["--project", "acme", "--usd", "five"], 2, "five"),
        (["--project", "acme", "--usd", "0"], 2, "greater than 0"),
        (["--project", "acme", "--tokens", str(10**20)], 2, "at most"),
        (["--project", "acme", "--usd", "0.0000000001"], 2, "not an amount"),
        (["--user", "ann", "--usd", "5"], 2, "add --project"),
        (["--project", "acme", "--user", "a", "--run", "b", "--usd", "5"], 2, "choose one"),
        (["--organization", "--project", "acme", "--usd", "5"], 2, "leave the others out"),
        (["--project", "acme", "--usd", "5", "--soft", "200"], 2, "percentages"),
        (["--project", "nobody", "--usd", "5"], 1, "antiphon projects list"),
        (["--key", "nobody", "--usd", "5"], 1, "antiphon keys list"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(
    runner: CliRunner, arguments: list[str], code: int, words: str
) -> None:
    fill()
    result = _run(runner, "budgets", "set", *arguments)

    assert result.exit_code == code, result.stderr
    assert words in result.stderr
    assert _stored()[0] == []


def test_a_limit_is_set_replaced_listed_and_deleted(runner: CliRunner) -> None:
    fill()
    first = _run(runner, "limits", "set", "--project", "acme", "--rpm", "60", "--tpm", "100000")
    second = _run(runner, "limits", "set", "--project", "acme", "--concurrent", "3")
    other = _run(runner, "limits", "set", "--project", "acme", "--model", "large", "--rpm", "5")
    listed = _run(runner, "limits", "list").stdout
    _, limits, _ = _stored()
    deleted = _run(runner, "limits", "delete", other.stdout.strip())
    _, left, log = _stored()

    assert first.stdout == second.stdout != other.stdout
    assert [(one.requests, one.tokens, one.concurrent) for one in limits] == [
        (None, None, 3),
        (5, None, None),
    ]
    assert "large" in listed
    assert deleted.exit_code == 0
    assert len(left) == 1
    assert log == ["rate_limit.updated"] * 3 + ["rate_limit.deleted"]


def test_what_is_not_there_cannot_be_deleted(runner: CliRunner) -> None:
    make()
    for command in ("budgets", "limits"):
        result = _run(runner, command, "delete", "nothing")
        assert result.exit_code == 1
        assert f"antiphon {command} list" in result.stderr


def test_empty_lists_say_how_to_set_one(runner: CliRunner) -> None:
    make()
    for command in ("budgets", "limits"):
        result = _run(runner, command, "list")
        assert result.exit_code == 0
        assert f"antiphon {command} set" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"), [([], "--rpm"), (["--tpm", str(10**20)], "at most")]
)
def test_a_limit_that_cannot_be_is_refused(
    runner: CliRunner, arguments: list[str], words: str
) -> None:
    fill()
    result = _run(runner, "limits", "set", "--project", "acme", *arguments)

    assert result.exit_code == 2
    assert words in result.stderr


def test_ceilings_of_runs_are_listed_only_if_that_is_asked_for(runner: CliRunner) -> None:
    async def reserve(store: Store) -> None:
        await store.ledger.reserve(wanted("r1", run="night", run_ceiling=10**9))

    use(reserve)
    assert "night" not in _run(runner, "budgets", "list").stdout
    assert "run night of p" in _run(runner, "budgets", "list", "--runs").stdout
