"""`antiphon keys`: made once, listed without secrets, refused after revocation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.cli.remote import Remote, Server
from antiphon.engine.keep.webhooks import is_signing_secret
from antiphon.engine.prepare.seal import read_keys
from antiphon.transport.secret import Secret
from tests.cli.processes import command, serve

_STORE = ["--store", "sqlite:keys.db"]


def _keys(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, ["keys", *arguments])


def test_a_key_is_shown_once_and_never_again(runner: CliRunner) -> None:
    made = _keys(runner, "create", "--project", "ada", "--name", "laptop", *_STORE)
    assert made.exit_code == 0
    key = made.stdout.strip()
    _, key_id, secret = key.split("_", 2)
    listed = _keys(runner, "list", *_STORE).stdout
    assert key_id in listed
    assert "ada" in listed
    assert "laptop" in listed
    assert secret not in listed
    assert secret not in made.stderr


def test_a_key_without_an_owner_has_one_of_its_own(runner: CliRunner) -> None:
    for _ in range(2):
        _keys(runner, "create", *_STORE)
    rows = _keys(runner, "list", *_STORE).stdout.splitlines()[1:]
    assert len({row.split()[1] for row in rows}) == 2


def test_a_webhook_secret_is_one_that_signs_and_never_the_same(runner: CliRunner) -> None:
    one, two = (_keys(runner, "webhook").stdout.strip() for _ in range(2))
    assert one != two
    assert is_signing_secret(one)


def test_an_expiry_is_listed(runner: CliRunner) -> None:
    _keys(runner, "create", "--expires", "90", *_STORE)
    assert "until 2" in _keys(runner, "list", *_STORE).stdout


def test_the_budgets_of_runs_are_set_listed_and_changed(runner: CliRunner) -> None:
    made = _keys(runner, "create", "--run-budget", "2", "--max-run-budget", "10.5", *_STORE)
    key = made.stdout.strip()
    assert "2.00 USD a run · at most 10.50 USD a run" in _keys(runner, "list", *_STORE).stdout

    changes = ("--run-budget", "none", "--max-run-budget", "7", "--name", "agents")
    changed = _keys(runner, "update", key, *changes, *_STORE)
    assert (changed.exit_code, "agents · at most 7.00 USD a run" in changed.stderr) == (0, True)
    assert "2.00 USD" not in _keys(runner, "list", *_STORE).stdout


def test_the_models_of_a_key_are_changed(runner: CliRunner) -> None:
    key = _keys(runner, "create", "--models", "small", *_STORE).stdout.strip()
    assert "models a, b" in _keys(runner, "update", key, "--models", "a,b", *_STORE).stderr
    assert "no limits" in _keys(runner, "update", key, "--models", "all", *_STORE).stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "nothing to change"),
        (("--run-budget", "two"), "--run-budget: 'two' is not an amount in dollars"),
        (("--max-run-budget", "0"), "--max-run-budget: must be greater than 0"),
        (("--models", ","), "--models must name a model"),
        (("--name", "x"), "no key"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(
    runner: CliRunner, arguments: tuple[str, ...], why: str
) -> None:
    _keys(runner, "create", *_STORE)
    refused = _keys(runner, "update", "1f0c2a9be4d05a7c", *arguments, *_STORE)
    assert refused.exit_code != 0
    assert why in refused.output


def test_a_revoked_key_is_not_changed(runner: CliRunner) -> None:
    key = _keys(runner, "create", *_STORE).stdout.strip()
    assert _keys(runner, "revoke", key, *_STORE).exit_code == 0
    refused = _keys(runner, "update", key, "--run-budget", "3", *_STORE)
    assert (refused.exit_code, "is valid" in refused.stderr) == (1, True)
    assert "3.00 USD" not in _keys(runner, "list", *_STORE).stdout


def test_a_revoked_key_is_listed_as_such_and_cannot_be_revoked_again(runner: CliRunner) -> None:
    key = _keys(runner, "create", *_STORE).stdout.strip()
    assert _keys(runner, "revoke", key.split("_")[1], *_STORE).exit_code == 0
    assert "revoked 2" in _keys(runner, "list", *_STORE).stdout
    again = _keys(runner, "revoke", key, *_STORE)
    assert again.exit_code == 1
    assert "antiphon keys list" in again.stderr


def test_an_empty_list_says_how_to_make_one(runner: CliRunner) -> None:
    result = _keys(runner, "list", *_STORE)
    assert result.exit_code == 0
    assert "antiphon keys create" in result.stderr


def test_a_store_in_memory_is_refused(runner: CliRunner) -> None:
    result = _keys(runner, "create", "--store", "memory:")
    assert result.exit_code == 2
    assert "pass --store sqlite:PATH" in result.stderr


def test_an_empty_owner_is_refused(runner: CliRunner) -> None:
    assert _keys(runner, "create", "--project", " ", *_STORE).exit_code == 2


def test_the_file_names_the_store(runner: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('store = "sqlite:other.db"')
    _keys(runner, "create", "--config", "other.toml")
    assert (tmp_path / "other.db").is_file()


@pytest.mark.parametrize("when", ["before", "during"])
async def test_keys_made_for_a_store_open_the_gateway_on_it(tmp_path: Path, when: str) -> None:
    extra = {"ANTIPHON_STORE": "sqlite:keys.db", "ANTIPHON_REQUIRE_KEYS": "true"}

    def create() -> Secret:
        return Secret(command("keys", "create", home=tmp_path, extra=extra).stdout)

    key = create() if when == "before" else None
    with serve(home=tmp_path, extra=extra) as served:
        key = key or create()
        assert await _status(served.base_url, None) == 401
        assert await _status(served.base_url, key) == 200


async def _status(base_url: str, key: Secret | None) -> int:
    async with Remote(Server(base_url, key)) as remote:
        body = msgspec.json.encode({"input": "hi"})
        return (await remote.fetch("POST", "/responses", body)).head.status


def test_a_key_to_seal_is_one_and_never_the_same(runner: CliRunner) -> None:
    one, two = (_keys(runner, "seal").stdout.strip() for _ in range(2))
    assert one != two
    assert len(read_keys(f"{one},{two}")) == 2
