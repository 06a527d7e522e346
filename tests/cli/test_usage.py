"""`antiphon usage`: what was used, by whom, and what is not known."""

from __future__ import annotations

import csv
import io
import json

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.cli.figures import read_since, short_cost, short_count
from antiphon.gateway.errors import BadSettings
from antiphon.store.base import Store
from tests.cli.books import STORE, fill, make, use
from tests.server.api.organization.books import charge
from tests.store.ledger_samples import ending, wanted


def _usage(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, ["usage", *arguments, *STORE])


def test_a_cost_that_is_not_known_is_never_zero(runner: CliRunner) -> None:
    fill()
    result = _usage(runner, "--by", "model")
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}

    assert result.exit_code == 0
    assert "$3.00" in rows["large"]
    assert "unknown" in rows["local"]
    assert "$0" not in rows["local"]
    assert "$3.00 +?" in rows["TOTAL"]
    assert "1 of 3 calls are of a model without a known price" in result.stderr


def test_the_share_that_is_not_reported_is_shown(runner: CliRunner) -> None:
    fill()
    result = _usage(runner, "--by", "user")
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}

    assert rows["bob"].endswith("100.0 %")
    assert rows["ann"].endswith(" 0 %")
    assert "(none)" in rows


def test_runs_and_conversations_are_shown(runner: CliRunner) -> None:
    async def spend(store: Store) -> None:
        for project, run in (("shop", "nightly"), ("shop", "nightly"), ("bank", "nightly")):
            await charge(store, project, run=run, conversation=f"conv_{project}")
        await charge(store, "shop")

    use(spend)
    lines = [line.split()[:3] for line in _usage(runner, "--by", "run").stdout.splitlines()]
    assert lines[0] == ["PROJECT", "RUN", "CALLS"]
    assert sorted(lines[1:-1]) == [
        ["bank", "nightly", "1"],
        ["shop", "(none)", "1"],
        ["shop", "nightly", "2"],
    ]
    of_one = _usage(runner, "--by", "conversation", "--run", "nightly", "--project", "shop").stdout
    assert of_one.splitlines()[1].split()[:2] == ["conv_shop", "2"]
    of_one = _usage(runner, "--by", "run", "--conversation", "conv_bank", "--csv").stdout
    assert of_one.splitlines()[1].startswith("bank,nightly,1,")


def test_json_and_csv_hold_exact_figures(runner: CliRunner) -> None:
    fill()
    found = json.loads(_usage(runner, "--by", "project,model", "--json").stdout)
    table = list(csv.DictReader(io.StringIO(_usage(runner, "--by", "project", "--csv").stdout)))

    first, second = found["groups"]
    assert (first["project"], first["model"], first["cost_usd"]) == ("acme", "large", "3.00")
    assert (first["fresh_tokens"], first["reasoning_tokens"]) == (1100, 70)
    assert first["estimated_tokens"] == 195
    assert second["cost_usd"] is None
    assert [row["cost_usd"] for row in table] == ["3.00", "unknown"]


def test_a_key_is_shown_with_its_name_and_exported_by_its_id(runner: CliRunner) -> None:
    made = runner.invoke(main, ["keys", "create", "--project", "p", "--name", "laptop", *STORE])
    key = made.stdout.split("_")[1]

    async def spend(store: Store) -> None:
        await store.ledger.reserve(wanted("r1", key=key))
        await store.ledger.settle([ending("r1")])

    use(spend)
    shown = runner.invoke(main, ["usage", "--by", "key", *STORE]).stdout
    exact = runner.invoke(main, ["usage", "--by", "key", "--csv", *STORE]).stdout
    assert f"laptop {key[:3]}" in shown
    runner.invoke(main, ["keys", "update", key, "--name", "a name of many words " * 9, *STORE])
    wide = {"COLUMNS": "120"}
    shown = runner.invoke(main, ["usage", "--by", "key", *STORE], env=wide).stdout
    assert f"a name of many word… {key}" in shown
    assert exact.splitlines()[1].startswith(f"{key},")


def test_one_project_alone(runner: CliRunner) -> None:
    fill()
    found = json.loads(_usage(runner, "--by", "project", "--json", "--project", "bank").stdout)

    assert [one["project"] for one in found["groups"]] == ["bank"]


def test_an_empty_store_says_what_to_do_next(runner: CliRunner) -> None:
    make()
    result = _usage(runner)

    assert result.exit_code == 0
    assert "--since 30d" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--by", "colour"], ["--by", ""], ["--since", "soon"], ["--json", "--csv"]]
)
def test_what_cannot_be_is_refused(runner: CliRunner, arguments: list[str]) -> None:
    assert _usage(runner, *arguments).exit_code == 2


@pytest.mark.parametrize("width", ["80", "140"])
def test_no_line_is_longer_than_the_terminal(
    runner: CliRunner, width: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    monkeypatch.setenv("COLUMNS", width)
    result = _usage(runner, "--by", "project,model,user")

    assert max(map(len, result.stdout.splitlines())) <= int(width)


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (67_500, "$0.000068"),
        (999_949_999, "$0.9999"),
        (1_000_000_000, "$1.00"),
        (1_234_565_000_000, "$1,234.57"),
    ],
)
def test_costs_are_rounded_and_never_to_nothing(amount: int, words: str) -> None:
    assert short_cost(amount) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(9_999, "9,999"), (12_345, "12.3k"), (938_700, "938k"), (1_234_567, "1.23M")],
)
def test_large_counts_are_short(count: int, words: str) -> None:
    assert short_count(count) == words


def test_a_time_is_a_span_or_a_date() -> None:
    assert read_since("90m", 10_000) == 10_000 - 5400
    assert read_since("2w", 86_400 * 100) == 86_400 * 86
    assert read_since("1970-01-02", 0) == 86_400
    with pytest.raises(BadSettings, match="7d"):
        read_since("yesterday", 0)
