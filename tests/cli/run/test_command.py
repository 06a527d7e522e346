"""`antiphon run` as a command: what it takes, and what it refuses before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli import main
from tests.cli.processes import ECHO, closed_port
from tests.cli.run.running import put_codex, started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")


@pytest.fixture(autouse=True)
def _codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_codex(tmp_path / "bin", monkeypatch)
    (tmp_path / "antiphon.toml").write_text(ECHO)


@pytest.mark.parametrize("words", [["exit", "7"], ["exit", "0", "--json", "-m", "x"], []])
def test_what_follows_the_dashes_reaches_the_client_as_it_is(
    runner: CliRunner, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    result = runner.invoke(main, ["run", "codex", "--", *words])
    assert started(capfd.readouterr().out).arguments == words
    assert result.exit_code == (7 if words == ["exit", "7"] else 0)


def test_an_unknown_client_is_refused_with_those_there_are(runner: CliRunner) -> None:
    result = runner.invoke(main, ["run", "emacs"])
    assert result.exit_code == 2
    assert "codex" in result.stderr


def test_a_client_that_is_not_installed_is_told_with_the_command(
    runner: CliRunner, tmp_path: Path
) -> None:
    (tmp_path / "bin" / "codex").unlink()
    result = runner.invoke(main, ["run", "codex"])
    assert result.exit_code == 1
    assert "npm install -g @openai/codex" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--upstream", "localhost:1/v1"], "does not begin with http:// or https://"),
        (
            ["--upstream", "http://127.0.0.1:9/v1", "--upstream-key-env", "NOPE"],
            "NOPE is not set",
        ),
        (["--profile", "llamacpp"], "--profile are used only with --upstream"),
        (["--config", "gone.toml"], "gone.toml cannot be read"),
    ],
)
def test_settings_without_sense_are_told_before_anything_starts(
    runner: CliRunner, capfd: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    result = runner.invoke(main, ["run", "codex", *arguments])
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert capfd.readouterr().out == ""


def test_a_store_that_is_none_is_told_in_the_gateways_words(
    runner: CliRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    result = runner.invoke(main, ["run", "codex", "--store", "redis://x"])
    assert result.exit_code == 1
    assert "the gateway did not start: --store: redis: is no store" in result.stderr
    assert capfd.readouterr().out == ""


def test_an_upstream_that_is_away_is_told_and_the_client_is_not_started(
    runner: CliRunner, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "antiphon.toml").unlink()
    with closed_port() as port:
        result = runner.invoke(main, ["run", "codex", "--upstream", f"http://127.0.0.1:{port}/v1"])
    assert result.exit_code == 1
    assert "the models cannot be listed" in result.stderr
    assert "is the upstream running?" in result.stderr
    assert capfd.readouterr().out == ""
