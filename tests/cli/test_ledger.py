"""`antiphon ledger`: finds what was changed behind its back, and exports every charge."""

from __future__ import annotations

import csv
import io
import json

from click.testing import CliRunner, Result

from antiphon.cli import main
from tests.cli.books import STORE, break_sum, fill


def _ledger(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, ["ledger", *arguments, *STORE])


def test_a_ledger_that_is_right_passes(runner: CliRunner) -> None:
    fill()
    result = _ledger(runner, "check")

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "right" in result.stderr


def test_a_cost_that_was_changed_is_found(runner: CliRunner) -> None:
    fill()
    break_sum()
    result = _ledger(runner, "check")

    assert result.exit_code == 1
    assert result.stdout.startswith("I")
    lines = result.stdout.splitlines()
    assert f"Contradictions: {len(lines)}." in result.stderr


def test_every_charge_is_exported(runner: CliRunner) -> None:
    fill()
    lines = [json.loads(line) for line in _ledger(runner, "export").stdout.splitlines()]
    table = list(csv.DictReader(io.StringIO(_ledger(runner, "export", "--format", "csv").stdout)))
    bank = _ledger(runner, "export", "--project", "bank")

    assert [one["model"] for one in lines] == ["local", "large", "large"]
    assert [one["cost_usd"] for one in lines] == [None, "1.00", "2.00"]
    assert [row["response_id"] for row in table] == [one["response_id"] for one in lines]
    assert [row["cost_usd"] for row in table] == ["", "1.00", "2.00"]
    assert len(bank.stdout.splitlines()) == 1
    assert "1 charges." in bank.stderr


def test_an_export_begins_at_a_time(runner: CliRunner) -> None:
    fill()
    assert len(_ledger(runner, "export", "--since", "1h").stdout.splitlines()) == 3
    assert _ledger(runner, "export", "--since", "2999-01-01").stdout == ""
