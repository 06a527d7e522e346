"""A client on a gateway of its own: what it is started with, and that nothing is left behind."""

from __future__ import annotations

import re
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.cli.run.session import SMALL_CONTEXT
from tests.cli.canned import Canned, canned_server
from tests.cli.processes import ECHO, closed_port
from tests.cli.run.running import Started, put_codex, started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put_codex(tmp_path / "bin", monkeypatch)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return temporary


def _run(runner: CliRunner, *words: str, flags: Sequence[str] = (), config: str = ECHO) -> Result:
    Path("antiphon.toml").write_text(config)
    return runner.invoke(main, ["run", "codex", *flags, "--", *words])


def _models(*models: dict[str, object]) -> Canned:
    return Canned(200, msgspec.json.encode({"object": "list", "data": list(models)}))


def _run_before(runner: CliRunner, listed: Canned, *flags: str) -> Result:
    """Run it before an upstream that lists these models."""
    with canned_server(lambda method, path, body: listed) as url:
        return _run(runner, flags=["--upstream", url, *flags], config="")


def test_the_client_reaches_a_model_and_nothing_is_left_behind(
    runner: CliRunner, capfd: pytest.CaptureFixture[str], tmp_path: Path, _place: Path
) -> None:
    before = {*tmp_path.iterdir(), tmp_path / "antiphon.toml"}
    result = _run(runner, "ask", "hello there")
    said = capfd.readouterr().out
    assert said.splitlines()[1:] == ["hello there"]
    assert result.exit_code == 0
    assert list(_place.iterdir()) == []
    assert set(tmp_path.iterdir()) == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(started(said).address)


def test_it_is_said_on_stderr_what_runs(
    runner: CliRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    result = _run(runner)
    assert result.stderr == "antiphon: codex runs on scripted\n"
    assert len(capfd.readouterr().out.splitlines()) == 1


def test_a_client_that_is_killed_has_the_exit_code_of_a_shell(runner: CliRunner) -> None:
    assert _run(runner, "die").exit_code == 137


def test_settings_for_many_callers_do_not_hinder_one(
    runner: CliRunner, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DIALECT", "open-responses")
    config = (
        'require_keys = true\nallowed_origins = ["*"]\nworkers = 4\nhost = "0.0.0.0"\nport = 1\n'
        + ECHO
    )
    assert _run(runner, "ask", "hello", config=config).exit_code == 0
    assert capfd.readouterr().out.splitlines()[1] == "hello"


@pytest.mark.parametrize(
    ("flags", "config", "model"),
    [
        ([], ECHO, "scripted"),
        (["--model", "another"], ECHO, "another"),
        ([], 'default_model = "chosen"\n' + ECHO, "chosen"),
        (["-m", "another"], 'default_model = "chosen"\n' + ECHO, "another"),
    ],
)
def test_the_model_is_the_one_named_else_the_default_else_the_first(
    runner: CliRunner,
    capfd: pytest.CaptureFixture[str],
    flags: list[str],
    config: str,
    model: str,
) -> None:
    _run(runner, flags=flags, config=config)
    assert started(capfd.readouterr().out).settings["model"] == model


def test_a_model_that_is_named_needs_no_list(
    runner: CliRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    with closed_port() as port:
        flags = ["--upstream", f"http://127.0.0.1:{port}/v1", "--model", "mine"]
        result = _run(runner, flags=flags, config="")
    assert result.exit_code == 0
    assert started(capfd.readouterr().out).settings["model"] == "mine"


def test_an_upstream_that_lists_nothing_asks_for_a_name(runner: CliRunner) -> None:
    result = _run_before(runner, _models())
    assert result.exit_code == 1
    assert "pass --model NAME" in result.stderr


@pytest.mark.parametrize(
    ("context", "flags", "is_small"),
    [
        (SMALL_CONTEXT, [], True),
        (SMALL_CONTEXT + 1, [], False),
        (SMALL_CONTEXT, ["--no-small"], False),
        (SMALL_CONTEXT + 1, ["--small"], True),
    ],
)
def test_a_model_that_takes_little_has_a_client_that_says_little(
    runner: CliRunner,
    capfd: pytest.CaptureFixture[str],
    context: int,
    flags: list[str],
    is_small: bool,
) -> None:
    result = _run_before(runner, _models({"id": "tiny", "max_model_len": context}), *flags)
    assert result.exit_code == 0
    seen = started(capfd.readouterr().out)
    assert _is_small(seen) is is_small
    assert ("with few tools" in result.stderr) is is_small
    assert ("--no-small turns this off" in result.stderr) is (is_small and not flags)


def _is_small(seen: Started) -> bool:
    return seen.settings.get("features.multi_agent") is False


def test_a_model_of_unknown_size_is_taken_for_a_large_one(
    runner: CliRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    _run_before(runner, _models({"id": "who-knows"}))
    assert not _is_small(started(capfd.readouterr().out))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the stand-in looks there")
def test_a_gateway_that_dies_is_told_with_its_log(runner: CliRunner, _place: Path) -> None:
    result = _run(runner, "kill-gateway")
    assert result.exit_code == 0
    assert "the gateway ended before codex did" in result.stderr
    (log,) = re.findall(r"log is (\S+)", result.stderr)
    assert Path(log).is_file()


def test_a_client_that_fails_points_to_what_the_gateway_had_to_say(runner: CliRunner) -> None:
    with closed_port() as port:
        flags = ["--upstream", f"http://127.0.0.1:{port}/v1", "--model", "mine"]
        result = _run(runner, "exit", "3", flags=flags, config="")
    assert result.exit_code == 3
    (log,) = re.findall(r"log is (\S+)", result.stderr)
    assert "Provider upstream does not answer: " in Path(log).read_text()


def test_a_client_that_fails_by_itself_is_not_commented_on(runner: CliRunner, _place: Path) -> None:
    result = _run(runner, "exit", "3")
    assert result.exit_code == 3
    assert "log" not in result.stderr
    assert list(_place.iterdir()) == []
