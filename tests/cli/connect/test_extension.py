"""`antiphon connect vscode --extension`: which editor is called, and with what."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.cli.connect import extension
from antiphon.cli.connect.extension import EDITORS

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the editors here are scripts")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for editors, which is all of PATH; each writes its arguments to a file."""
    found = tmp_path / "bin"
    found.mkdir()
    monkeypatch.setenv("PATH", str(found))
    return found


def _editor(folder: Path, name: str, code: int = 0) -> Path:
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "$@" >> {path}.log\necho told >&2\nexit {code}\n', "utf-8")
    path.chmod(0o755)
    return path


def _calls(editor: Path) -> list[str]:
    log = Path(f"{editor}.log")
    return log.read_text("utf-8").splitlines() if log.exists() else []


def _vsix(tmp_path: Path) -> Path:
    path = tmp_path / "antiphon.vsix"
    path.write_bytes(b"PK")
    return path


def _run(runner: CliRunner, *arguments: str | Path) -> Result:
    return runner.invoke(main, ["connect", "vscode", *map(str, arguments)])


@pytest.mark.parametrize("name", EDITORS)
def test_the_extension_is_installed_with_the_command_of_the_editor(
    runner: CliRunner, folder: Path, tmp_path: Path, name: str
) -> None:
    editor, vsix = _editor(folder, name), _vsix(tmp_path)

    result = _run(runner, "--extension", "--vsix", vsix)

    assert result.exit_code == 0, result.output
    assert _calls(editor) == [f"--install-extension {vsix}"]
    assert f"Installed the extension into {editor}." in result.stderr
    assert '"antiphon.command"' in result.stderr


def test_of_several_editors_the_first_is_used_and_the_others_are_named(
    runner: CliRunner, folder: Path, tmp_path: Path
) -> None:
    code, codium, vsix = _editor(folder, "code"), _editor(folder, "codium"), _vsix(tmp_path)

    result = _run(runner, "--extension", "--vsix", vsix, "--url", "http://127.0.0.1:9999/v1")

    assert (len(_calls(code)), _calls(codium)) == (1, [])
    assert f"There is {codium} too: {codium} --install-extension {vsix}" in result.stderr
    assert 'Set "antiphon.url" in the editor to http://127.0.0.1:9999/v1.' in result.stderr


def test_the_extension_is_removed_again(runner: CliRunner, folder: Path) -> None:
    editor = _editor(folder, "code")

    result = _run(runner, "--extension", "--undo")

    assert result.exit_code == 0
    assert _calls(editor) == ["--uninstall-extension antiphon.antiphon"]


def test_a_dry_run_changes_nothing(runner: CliRunner, folder: Path, tmp_path: Path) -> None:
    editor = _editor(folder, "code")

    result = _run(runner, "--extension", "--dry-run", "--vsix", _vsix(tmp_path))

    assert "Would run: " in result.stderr
    assert _calls(editor) == []


def test_what_is_missing_is_named_with_what_to_do(
    runner: CliRunner, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_editor = _run(runner, "--extension", "--vsix", _vsix(tmp_path))
    monkeypatch.setattr(extension, "PACKAGED", tmp_path / "none.vsix")
    no_file = _run(runner, "--extension")
    wrong = runner.invoke(main, ["connect", "zed", "--extension"])

    assert "none of the commands code, code-insiders" in no_editor.stderr
    assert '"Install from VSIX..."' in no_editor.stderr
    assert "scripts/vsix FILE makes one" in no_file.stderr
    assert "--extension is for vscode" in wrong.stderr
    assert [no_editor.exit_code, no_file.exit_code, wrong.exit_code] == [1, 1, 2]


def test_the_words_of_an_editor_that_fails_are_shown(
    runner: CliRunner, folder: Path, tmp_path: Path
) -> None:
    _editor(folder, "code", code=3)

    result = _run(runner, "--extension", "--vsix", _vsix(tmp_path))

    assert result.exit_code == 1
    assert "ended with 3: told" in result.stderr
    assert os.fspath(folder) in result.stderr
