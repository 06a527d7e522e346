"""`antiphon files`, against a gateway in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from tests.cli.processes import Served, closed_port

BIG = b"0123456789" * 1_000_000


@pytest.fixture
def base_url(echo: Served, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ANTIPHON_BASE_URL", echo.base_url)
    return echo.base_url


def run(runner: CliRunner, *words: str) -> Result:
    return runner.invoke(main, ["files", *words])


@pytest.mark.usefixtures("base_url")
def test_a_file_is_uploaded_shown_and_deleted(runner: CliRunner) -> None:
    Path("a.txt").write_text("hello")
    made = run(runner, "upload", "a.txt", "--expires", "2")
    assert made.exit_code == 0, made.stderr
    file_id, name = made.stdout.split()
    assert name == "a.txt"
    assert made.stderr == "a.txt: uploaded, 5 B\n"
    listed = run(runner, "list")
    assert file_id in listed.stdout
    assert listed.stdout.startswith("ID ")
    shown = run(runner, "show", file_id)
    assert "5 B (5 bytes)" in shown.stdout
    fields = json.loads(run(runner, "show", file_id, "--json").stdout)
    assert fields["expires_at"] == fields["created_at"] + 2 * 86_400
    assert run(runner, "content", file_id).stdout == "hello"
    gone = run(runner, "delete", file_id)
    assert (gone.exit_code, gone.stderr) == (0, f"{file_id} is deleted.\n")
    missing = run(runner, "show", file_id)
    assert missing.exit_code == 1
    assert f"No such File object: {file_id}" in missing.stderr


@pytest.mark.usefixtures("base_url")
def test_large_files_come_back_as_they_were(runner: CliRunner) -> None:
    Path("big.bin").write_bytes(BIG)
    (made,) = json.loads(run(runner, "upload", "big.bin", "--json").stdout)
    assert made["bytes"] == len(BIG)
    assert run(runner, "content", made["id"], "-o", "copy.bin").exit_code == 0
    assert Path("copy.bin").read_bytes() == BIG
    again = run(runner, "content", made["id"], "-o", "copy.bin")
    assert (again.exit_code, again.stderr) == (2, "Error: --output: copy.bin exists already\n")
    run(runner, "delete", made["id"])


@pytest.mark.usefixtures("base_url")
def test_a_missing_content_leaves_no_file(runner: CliRunner) -> None:
    result = run(runner, "content", "file-0", "--output", "x")
    assert result.exit_code == 1
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["upload", "nowhere.txt"], "there is no file nowhere.txt"),
        (["upload", "."], "is a folder; name its files"),
        (["upload", "a", "--purpose", "evil"], "'evil' is not one of"),
        (["content", "x", "-o", "/nowhere/y"], "/nowhere/y cannot be written"),
        (["upload"], "Missing argument 'FILE...'"),
    ],
)
@pytest.mark.usefixtures("base_url")
def test_mistakes_are_named(runner: CliRunner, words: list[str], complaint: str) -> None:
    result = run(runner, *words)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_without_a_server_there_is_advice(runner: CliRunner) -> None:
    with closed_port() as port:
        result = run(runner, "list", "--base-url", f"http://127.0.0.1:{port}/v1")
    assert result.exit_code == 1
    assert f"start one with `antiphon serve --port {port}`" in result.stderr
