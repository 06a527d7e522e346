"""`antiphon vector-stores`, against a gateway in a process of its own."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from tests.cli.processes import Served


@pytest.fixture(autouse=True)
def documents(echo: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the gateway, and make a folder to index."""
    monkeypatch.setenv("ANTIPHON_BASE_URL", echo.base_url)
    Path("docs/deep").mkdir(parents=True)
    Path("docs/.git").mkdir()
    Path("docs/refunds.md").write_text("# Refunds\n\nRefunds are paid within 14 days.")
    Path("docs/deep/shipping.txt").write_text("Shipping to Europe takes 3 days.")
    Path("docs/.secret").write_text("refunds")
    Path("note.txt").write_text("A note about honey.")


def run(runner: CliRunner, *words: str) -> Result:
    return runner.invoke(main, ["vector-stores", *words])


def test_a_folder_is_made_searchable(runner: CliRunner) -> None:
    made = run(runner, "create", "handbook", "docs", "note.txt", "--expires", "9")
    assert made.exit_code == 0, made.stderr
    store = made.stdout.strip()
    assert made.stderr.endswith("3 of 3 files are indexed.\n")
    found = run(runner, "search", store, "when are refunds paid?")
    first, text = found.stdout.splitlines()[:2]
    assert "docs/refunds.md" in first
    assert text.strip() == "# Refunds Refunds are paid within 14 days."
    where = '{"type": "eq", "key": "path", "value": "docs/deep/shipping.txt"}'
    (only,) = json.loads(run(runner, "search", store, "days", "--filter", where, "--json").stdout)
    assert only["filename"] == "shipping.txt"
    assert "3 (3 completed)" in run(runner, "show", store).stdout
    assert json.loads(run(runner, "show", store, "--json").stdout)["expires_after"]["days"] == 9
    assert store in run(runner, "list").stdout
    listed = json.loads(run(runner, "files", store, "--json").stdout)
    assert {file["attributes"]["path"] for file in listed} == {
        *("docs/refunds.md", "docs/deep/shipping.txt", "note.txt")
    }
    gone = run(runner, "delete", store, "--with-files")
    assert gone.stderr == f"{store} is deleted with 3 files.\n"
    left = runner.invoke(main, ["files", "list", "--json"]).stdout
    assert not {file["id"] for file in json.loads(left)} & {file["id"] for file in listed}


def test_files_are_added_with_attributes(runner: CliRunner) -> None:
    store = run(runner, "create", "s").stdout.strip()
    added = run(
        runner, "add", store, "note.txt", "--attribute", "year=2026", "--attribute", "draft=true"
    )
    assert added.exit_code == 0, added.stderr
    assert added.stdout == ""
    assert "year=2026.0, draft=True, path=note.txt" in run(runner, "files", store).stdout
    recent = '{"type": "gte", "key": "year", "value": 2026}'
    assert "note.txt" in run(runner, "search", store, "honey", "--filter", recent).stdout
    old = '{"type": "lt", "key": "year", "value": 2026}'
    assert run(runner, "search", store, "honey", "--filter", old).stderr == "Nothing was found.\n"


def test_files_that_cannot_be_indexed_are_named(runner: CliRunner) -> None:
    Path("bad.docx").write_bytes(b"\x00\x01\x02")
    store = run(runner, "create", "s").stdout.strip()
    added = run(runner, "add", store, "note.txt", "bad.docx")
    assert added.exit_code == 1
    assert "bad.docx: not indexed: " in added.stderr
    assert added.stderr.endswith("Error: 1 of 2 files are indexed\n")
    failed = run(runner, "files", store, "--status", "failed").stdout
    assert "bad.docx" in failed
    assert "note.txt" not in failed


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["add", "vs_0", "note.txt"], 1, "Vector store 'vs_0' not found."),
        (["add", "vs_0", "nowhere"], 2, "there is no file or folder nowhere"),
        (["add", "vs_0", "empty"], 2, "there are no files in empty"),
        (["add", "vs_0", "note.txt", "--attribute", "x"], 2, "--attribute must be KEY=VALUE"),
        (["search", "vs_0", "x", "--filter", "5"], 2, "--filter must be a JSON object"),
        (["search", "vs_0", "x"], 1, "Vector store 'vs_0' not found."),
        (["files", "vs_0"], 1, "Vector store 'vs_0' not found."),
        (["delete", "vs_0"], 1, "Vector store 'vs_0' not found."),
    ],
)
def test_mistakes_are_named(runner: CliRunner, words: list[str], code: int, complaint: str) -> None:
    Path("empty").mkdir()
    result = run(runner, *words)
    assert result.exit_code == code
    assert complaint in result.stderr


def test_the_commands_of_the_page_on_files_work(runner: CliRunner) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/files.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    commands = [line for line in lines if not line.startswith("antiphon serve")]
    assert len(commands) == 10
    Path("notes.md").write_text("Some notes.")
    store, printed = "", list[str]()
    for line in commands:
        if not line.startswith("antiphon "):
            subprocess.run(line, shell=True, check=True)
            continue
        result = runner.invoke(main, shlex.split(line.replace("vs_…", store))[1:])
        assert result.exit_code == 0, (line, result.stderr)
        store = result.stdout.split()[0] if " create " in line else store
        printed.append(result.stdout)
    assert "Refunds are paid within 14 days." in printed[-3]
    assert "notes.md" in printed[-1]
