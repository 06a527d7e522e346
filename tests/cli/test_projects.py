"""`antiphon projects`: listed, archived and purged; and what `antiphon keys` says of projects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.store import Store
from antiphon.store.base import AuditQuery
from antiphon.store.base.ledger import Budget, RateLimit, Scope
from antiphon.store.sqlite import SqliteStore
from tests.store.samples import run_turn

_T = TypeVar("_T")
_STORE = ["--store", "sqlite:keys.db"]


def _run(runner: CliRunner, *arguments: str, answer: str | None = None) -> Result:
    return runner.invoke(main, [*arguments, *_STORE], input=answer)


def _look(tmp_path: Path, use: Callable[[Store], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        store = SqliteStore(tmp_path / "keys.db")
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _actions(tmp_path: Path) -> list[str]:
    async def read(store: Store) -> list[str]:
        assert (await store.audit.verify()).problem is None
        entries = await store.audit.page(AuditQuery(), limit=100, is_descending=False)
        assert all(entry.actor.startswith("cli:") for entry in entries)
        return [entry.action for entry in entries]

    return _look(tmp_path, read)


def test_a_project_is_listed_with_its_keys_and_its_state(runner: CliRunner) -> None:
    assert _run(runner, "projects", "create", "lab", "--name", "The lab").exit_code == 0
    _run(runner, "projects", "create", "vault", "--never-store")
    for _ in range(2):
        _run(runner, "keys", "create", "--project", "lab")
    _run(runner, "keys", "create", "--project", "known-by-its-key")
    rows = [row.split(maxsplit=4) for row in _run(runner, "projects", "list").stdout.splitlines()]
    found = {row[0]: row for row in rows}
    assert found["local"][1:3] == ["always", "0"]
    assert (found["lab"][2], found["lab"][3], found["lab"][4]) == ("2", "active", "The lab")
    assert found["vault"][3:] == ["never", "stored  vault"]
    assert found["known-by-its-key"][2] == "1"


def test_a_project_is_created_once(runner: CliRunner) -> None:
    _run(runner, "keys", "create", "--project", "ann")
    for name in ("ann", "local"):
        again = _run(runner, "projects", "create", name)
        assert again.exit_code == 1
        assert "already is a project" in again.stderr
    assert _run(runner, "projects", "create", " ").exit_code == 2


def test_a_project_is_changed(runner: CliRunner) -> None:
    _run(runner, "keys", "create", "--project", "ann")
    assert _run(runner, "projects", "update", "ann", "--never-store").exit_code == 0
    assert "never stored" in _run(runner, "projects", "list").stdout
    _run(runner, "projects", "update", "ann", "--may-store", "--name", "Ann")
    assert "never stored" not in _run(runner, "projects", "list").stdout
    assert _run(runner, "projects", "update", "nobody", "--name", "x").exit_code == 1


def test_an_archived_project_is_hidden_and_gets_no_keys(runner: CliRunner) -> None:
    _run(runner, "keys", "create", "--project", "ann")
    assert _run(runner, "projects", "archive", "ann").exit_code == 0
    assert "ann" not in _run(runner, "projects", "list").stdout
    assert "archived 2" in _run(runner, "projects", "list", "--all").stdout
    refused = _run(runner, "keys", "create", "--project", "ann")
    assert refused.exit_code == 2
    assert "is archived" in refused.stderr
    for name in ("nobody", "local"):
        assert _run(runner, "projects", "archive", name).exit_code == 1


def test_a_purge_counts_asks_and_removes_everything(runner: CliRunner, tmp_path: Path) -> None:
    _run(runner, "keys", "create", "--project", "ann")
    _run(runner, "keys", "create", "--project", "bob")
    for owner in ("ann", "bob"):
        _look(tmp_path, lambda store, owner=owner: run_turn(store, "r1", owner=owner))  # type: ignore[misc] # mypy does not see the default
    counted = _run(runner, "projects", "purge", "ann", "--dry-run")
    assert counted.stdout.split() == [
        *("responses", "1", "items", "2", "keys", "1"),
        *("in", "all", "4"),
    ]
    assert "Nothing was removed" in counted.stderr
    refused = _run(runner, "projects", "purge", "ann", answer="n\n")
    assert refused.exit_code == 1
    assert _look(tmp_path, lambda store: store.get("ann", "r1")) is not None
    done = _run(runner, "projects", "purge", "ann", answer="y\n")
    assert done.exit_code == 0
    assert "Removed 5 rows" in done.stderr  # with the row that archived it
    assert _look(tmp_path, lambda store: store.get("ann", "r1")) is None
    assert _look(tmp_path, lambda store: store.get("bob", "r1")) is not None
    assert "ann" not in _run(runner, "projects", "list", "--all").stdout
    assert "ann" not in _run(runner, "keys", "list").stdout
    assert _actions(tmp_path)[-2:] == ["project.archived", "project.purged"]
    assert _run(runner, "projects", "purge", "ann", "--yes").exit_code == 1


def test_a_purge_removes_budgets_and_limits_of_the_project_only(
    runner: CliRunner, tmp_path: Path
) -> None:
    _run(runner, "keys", "create", "--project", "ann")
    (key,) = _look(tmp_path, lambda store: store.list_keys())
    places: list[tuple[Scope, str]] = [
        ("project", "ann"),
        ("key", key.id),
        ("run", "ann/nightly"),
        ("project", "anna"),
        ("organization", ""),
    ]

    async def limit(store: Store) -> None:
        for number, (scope, name) in enumerate(places):
            budget = Budget(id=f"b{number}", scope=scope, scope_id=name, ceiling=5)
            await store.ledger.put_budget(budget)
            await store.ledger.put_limit(
                RateLimit(id=f"l{number}", scope=scope, scope_id=name, requests=5)
            )

    async def left(store: Store) -> tuple[list[str], list[str]]:
        budgets = [state.budget.id for state in await store.ledger.budgets()]
        return budgets, [one.id for one in await store.ledger.rate_limits()]

    _look(tmp_path, limit)
    assert _run(runner, "projects", "purge", "ann", "--yes").exit_code == 0
    assert _look(tmp_path, left) == (["b3", "b4"], ["l3", "l4"])


def test_local_is_purged_and_stays(runner: CliRunner, tmp_path: Path) -> None:
    _look(tmp_path, lambda store: run_turn(store, "r1", owner="local"))
    assert _run(runner, "projects", "purge", "local", "--yes").exit_code == 0
    assert _look(tmp_path, lambda store: store.get("local", "r1")) is None
    assert "local" in _run(runner, "projects", "list").stdout


def test_what_limits_a_key_is_listed(runner: CliRunner) -> None:
    made = _run(
        runner,
        *("keys", "create", "--project", "ann", "--role", "viewer", "--user", "Ann Ayres"),
        *("--models", "small, big", "--never-store", "--expires", "12h", "--name", "laptop"),
    )
    key = made.stdout.strip()
    listed = _run(runner, "keys", "list", "--project", "ann").stdout.splitlines()[1]
    _, key_id, secret = key.split("_", 2)
    assert f"ak_{key_id[:4]}…{secret[-4:]}" in listed
    assert secret[:-4] not in listed
    assert "viewer" in listed
    assert "never" in listed
    assert "laptop · user Ann Ayres · models small, big · never stored" in listed
    assert _run(runner, "keys", "list", "--project", "bob").stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--role", "root"),
        ("--models", " , "),
        ("--expires", "soon"),
        ("--expires", "0"),
        ("--expires", "99999d"),
    ],
)
def test_a_wrong_option_is_refused(runner: CliRunner, arguments: tuple[str, str]) -> None:
    assert _run(runner, "keys", "create", *arguments).exit_code == 2


def test_a_key_is_rotated_and_shown_once(runner: CliRunner, tmp_path: Path) -> None:
    old = _run(runner, "keys", "create", "--project", "ann").stdout.strip()
    key_id = old.split("_")[1]
    rotated = _run(runner, "keys", "rotate", old, "--overlap", "30m")
    new = rotated.stdout.strip()
    assert new.split("_")[1] == key_id
    assert new != old
    assert "good until 2" in rotated.stderr
    assert "rotating until 2" in _run(runner, "keys", "list").stdout
    _run(runner, "keys", "revoke", key_id)
    assert _run(runner, "keys", "rotate", key_id).exit_code == 1
    assert _run(runner, "keys", "rotate", "nothing").exit_code == 1
    assert _actions(tmp_path) == ["api_key.created", "api_key.rotated", "api_key.deleted"]
