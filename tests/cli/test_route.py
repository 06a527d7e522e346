"""`antiphon route`: why a name leads to a provider that has no list of its models."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from antiphon.cli import main
from tests.cli.canned import Canned, canned_server


def test_a_name_that_no_list_has_comes_with_the_reason(runner: CliRunner, tmp_path: Path) -> None:
    with canned_server(lambda *_: Canned(404, b'{"error": {"message": "no list"}}')) as base_url:
        path = tmp_path / "antiphon.toml"
        path.write_text(f'[providers.down]\nbase_url = "{base_url}"\n')
        result = runner.invoke(main, ["route", "some-model", "--config", str(path)])
    assert result.exit_code == 0
    last = result.stdout.splitlines()[-1]
    assert last.startswith("No provider lists this name. down/some-model is asked, because")
    assert "no list" in last


def test_an_editor_that_does_not_run_is_named_with_what_to_do(
    runner: CliRunner, tmp_path: Path
) -> None:
    path = tmp_path / "antiphon.toml"
    file = tmp_path / "editor.json"
    path.write_text(f'[providers.editor]\nwire_api = "host"\npath = "{file}"\n')
    result = runner.invoke(main, ["route", "editor/mine", "--config", str(path)])
    assert result.exit_code == 0
    first, second, *_, last = result.stdout.splitlines()
    assert (first, second) == ("editor/mine", "editor/mine  host")
    assert str(file) in last and "start the editor" in last
