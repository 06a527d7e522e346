"""`antiphon store`: a look into a store, and a copy that says what it did."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.cli.store_use import show_progress
from antiphon.store import SqliteStore, open_store
from antiphon.store.base import Batch
from antiphon.store.open import servers_of
from antiphon.store.sqlite.migrations import OLDEST_LEVEL
from tests.cli.processes import closed_port
from tests.postgres import fresh_database
from tests.store.samples import OWNER, message, opened, run_turn


def _store(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, ["store", *arguments])


@pytest.fixture
def source(tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path / 'source.db'}"

    async def fill() -> None:
        store = open_store(url)
        await run_turn(store, "r1")
        await store.begin(OWNER, opened("r2"), [message("i2")], batch=Batch(0, 0, b"x"))
        await store.close()

    asyncio.run(fill())
    return url


@pytest.fixture
def postgres() -> Iterator[str]:
    with asyncio.Runner() as runner:
        database = fresh_database()
        yield runner.run(database.__aenter__())
        runner.run(database.__aexit__(None, None, None))


def _figures(text: str) -> dict[str, int]:
    rows = (line.rpartition(" ") for line in text.splitlines())
    return {name.strip(): int(count.replace(",", "")) for name, _, count in rows}


def test_a_copy_tells_what_it_copied(runner: CliRunner, source: str, postgres: str) -> None:
    done = _store(runner, "copy", source, postgres)
    assert done.exit_code == 0, done.stderr
    figures = _figures(done.stdout)
    assert (figures["responses"], figures["items"], figures["log"]) == (2, 3, 1)
    assert "responses: 2" in done.stderr
    assert "Copied and checked: 6 rows are in postgresql://" in done.stderr
    info = _figures(_store(runner, "info", postgres).stdout)
    assert {name: info[name] for name in figures} == figures
    assert (info["unfinished turns"], info["… in progress"]) == (1, 0)
    assert info["bytes"] > 0


def test_a_second_copy_is_refused(runner: CliRunner, source: str, tmp_path: Path) -> None:
    target = f"sqlite:{tmp_path / 'target.db'}"
    assert _store(runner, "copy", source, target).exit_code == 0
    again = _store(runner, "copy", source, target)
    assert again.exit_code == 1
    assert "the target is not empty" in again.stderr


@pytest.mark.parametrize("url", ["memory:", "redis://x", "sqlite:missing.db"])
def test_a_store_that_is_none_is_refused(runner: CliRunner, url: str) -> None:
    assert _store(runner, "info", url).exit_code == 2
    assert _store(runner, "copy", url, "sqlite:b.db").exit_code == 2


def test_an_older_antiphon_is_allowed_after_the_operator_saw_what_it_ignores(
    runner: CliRunner, source: str
) -> None:
    made = runner.invoke(main, ["keys", "create", "--role", "admin", "--store", source])
    assert made.exit_code == 0
    asked = _store(runner, "allow-older", str(OLDEST_LEVEL), source)
    assert asked.exit_code == 1
    assert "An older antiphon ignores: 1 keys" in asked.stderr
    done = _store(runner, "allow-older", str(OLDEST_LEVEL), source, "--yes")
    assert done.exit_code == 0
    assert f"Gateways that know version {OLDEST_LEVEL} may start." in done.stderr
    refused = _store(runner, "allow-older", "1", source, "--yes")
    assert refused.exit_code == 2
    assert "gateways that know version 1 cannot use this database" in refused.stderr


def test_memory_cannot_be_looked_into(runner: CliRunner) -> None:
    for arguments in (["info", "memory:"], ["copy", "memory:", "sqlite:b.db"]):
        shown = _store(runner, *arguments).stderr
        assert "a memory: store exists only inside its own gateway" in shown


def test_a_database_that_is_not_there_is_named(runner: CliRunner) -> None:
    with closed_port() as port:
        found = _store(runner, "info", f"postgresql://ada:hush@127.0.0.1:{port}/db")
    assert found.exit_code == 1
    assert f"127.0.0.1:{port}: the database cannot be reached" in found.stderr
    assert "ada" not in found.stderr and "hush" not in found.stderr


@pytest.mark.parametrize(
    "arguments", [["keys", "list"], ["serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0"]]
)
def test_a_database_that_refuses_a_command_is_named(
    runner: CliRunner, arguments: list[str], postgres: str
) -> None:
    parts = urlsplit(postgres)
    missing = f"postgresql://{parts.netloc}/nobody_made_this?{parts.query}"
    refused = runner.invoke(main, [*arguments, "--store", missing])
    assert refused.exit_code == 1
    assert f"Error: {servers_of(postgres)}: the database server has no database" in refused.stderr


COMMANDS = (
    ["keys", "list"],
    ["keys", "create"],
    ["serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0"],
)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_full_disk_is_one_sentence_at_the_start(runner: CliRunner, arguments: list[str]) -> None:
    refused = runner.invoke(main, [*arguments, "--store", "sqlite:/dev/full"])
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: /dev/full: there is no room left on the disk")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory that nobody can write")
@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_read_only_place_is_one_sentence_at_the_start(
    runner: CliRunner, arguments: list[str]
) -> None:
    refused = runner.invoke(main, [*arguments, "--store", "sqlite:/sys/antiphon.db"])
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: /sys/antiphon.db: the database is read-only")
    assert len(refused.stderr.splitlines()) == 1


def test_a_store_that_cannot_be_written_stops_the_gateway_before_it_begins(
    runner: CliRunner, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(SqliteStore)["__init__"].__kwdefaults__, "patience", 2.0)
    path = source.removeprefix("sqlite:")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = runner.invoke(main, [*COMMANDS[2], "--store", source])
    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"Error: {path}: the database is locked by another process")
    assert refused.stdout == ""


def test_info_without_a_url_is_about_the_configured_store(
    runner: CliRunner, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "antiphon.toml").write_text(f'store = "{source}"\n')
    other = tmp_path / "other.toml"
    other.write_text('store = "sqlite:missing.db"\n')
    named = _store(runner, "info", source)
    found = _store(runner, "info")
    assert (found.exit_code, found.stdout) == (0, named.stdout)
    assert found.stderr == f"{source}\n"
    assert "missing.db" in _store(runner, "info", "--config", str(other)).stderr
    monkeypatch.setenv("ANTIPHON_STORE", "sqlite:missing.db")
    assert _store(runner, "info").exit_code == 2


def test_info_without_a_url_and_without_settings_is_about_the_default_store(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    runner.invoke(main, ["keys", "create"])
    found = _store(runner, "info")
    assert _figures(found.stdout)["keys"] == 1


def test_a_store_is_read_from_a_variable_only_when_it_is_named(
    runner: CliRunner, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("DATABASE_URL", source)
    alone = runner.invoke(main, ["keys", "create"])
    named = runner.invoke(main, ["keys", "create", "--store", "env:DATABASE_URL"])
    assert (alone.exit_code, named.exit_code) == (0, 0)
    (tmp_path / "antiphon.toml").write_text('store = "env:DATABASE_URL"\n')
    assert _figures(_store(runner, "info").stdout)["keys"] == 1
    copied = _store(runner, "copy", "env:DATABASE_URL", f"sqlite:{tmp_path / 'copy.db'}")
    assert copied.exit_code == 0, copied.stderr


@pytest.mark.parametrize("value", ["", "env:OTHER"])
def test_a_variable_without_a_store_is_refused_by_name(
    runner: CliRunner, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", value)
    for arguments in COMMANDS:
        refused = runner.invoke(main, [*arguments, "--store", "env:DATABASE_URL"])
        assert refused.exit_code == 2
        assert "the environment variable DATABASE_URL must hold" in refused.stderr


def test_a_terminal_sees_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for done in (0, 200, 300):
        show_progress("conversation_items", done, 300)
    assert capsys.readouterr().err.replace("\x1b[K", "").split("\r")[1:] == [
        "conversation items: 0 of 300",
        "conversation items: 200 of 300",
        "conversation items: 300 of 300\n",
    ]
