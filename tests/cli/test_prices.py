"""`antiphon prices`: what a model costs, and who states it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from antiphon.cli import main
from antiphon.models.table import FIGURES_FROM
from tests.cli.canned import Canned, canned_server

LIST = {
    "data": [
        {"id": "mine"},
        {"id": "routed", "pricing": {"prompt": "0.000002", "completion": "0.0000125"}},
        {"id": "gpt-5.1"},
        {"id": "nobody-knows"},
    ]
}
SETTINGS = """
[providers.up]
base_url = "{url}"

[models.mine.price]
input = "1.25"
cached = "0.125"
output = "10"
"""


def prices(runner: CliRunner, folder: Path, *names: str) -> tuple[list[str], str]:
    with canned_server(lambda *_: Canned(200, json.dumps(LIST).encode())) as base_url:
        path = folder / "antiphon.toml"
        path.write_text(SETTINGS.format(url=base_url))
        result = runner.invoke(main, ["prices", *names, "--config", str(path)])
    assert result.exit_code == 0
    return result.stdout.splitlines(), result.stderr


def test_each_price_has_its_source(runner: CliRunner, tmp_path: Path) -> None:
    (head, *rows), notes = prices(runner, tmp_path)
    assert head.split() == [
        *("MODEL", "PROVIDER", "INPUT", "CACHED", "CACHE", "WRITE", "OUTPUT", "FROM")
    ]
    mine, routed, known, unknown = (row.split() for row in rows)
    assert mine == ["mine", "up", "$1.25", "$0.125", "$1.25", "$10.00", "settings"]
    assert routed == ["routed", "up", "$2.00", "$2.00", "$2.00", "$12.50", "upstream"]
    assert known[-4:] == ["bundled", "table", "of", FIGURES_FROM]
    assert unknown == ["nobody-knows", "up", "-", "-", "-", "-", "unknown"]
    assert "1 of 4 prices are unknown" in notes


def test_models_are_chosen_by_a_part_of_their_name(runner: CliRunner, tmp_path: Path) -> None:
    (_, *rows), notes = prices(runner, tmp_path, "mine", "rout")
    assert [row.split()[0] for row in rows] == ["mine", "routed"]
    assert notes == ""
    assert prices(runner, tmp_path, "none") == ([], "No provider lists such a model.\n")


def test_a_provider_without_a_list_is_named(runner: CliRunner, tmp_path: Path) -> None:
    with canned_server(lambda *_: Canned(404, b'{"error": {"message": "no list"}}')) as base_url:
        path = tmp_path / "antiphon.toml"
        path.write_text(SETTINGS.format(url=base_url))
        result = runner.invoke(main, ["prices", "--config", str(path)])
    assert result.exit_code == 0
    assert "up has no list of models" in result.stderr
