"""Which program does the extension run, and where does it leave the offer of its models?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.gateway.places import data_directory
from tests.editors.test_bridge_js import order

EDITOR: dict[str, Any] = {"command": "", "isTrusted": True, "folders": [], "selected": ""}


def _program(folder: Path) -> Path:
    path = folder / "bin" / "antiphon"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    return path


async def _find(home: Path, **editor: Any) -> dict[str, Any]:
    found: dict[str, Any] = await order(home, "find", **{**EDITOR, **editor})
    return found


async def test_the_setting_decides(tmp_path: Path) -> None:
    named = _program(tmp_path / "named")
    _program(tmp_path / "work" / ".venv")

    found = await _find(tmp_path, command=str(named), folders=[str(tmp_path / "work")])

    assert found == {"program": str(named)}


@pytest.mark.parametrize("command", ["/nowhere/antiphon", "antiphon", "/etc"])
async def test_a_setting_that_names_no_program_is_an_error_and_nothing_else_is_tried(
    tmp_path: Path, command: str
) -> None:
    _program(tmp_path / "work" / ".venv")

    found = await _find(tmp_path, command=command, folders=[str(tmp_path / "work")])

    assert found["error"]["code"] == "no_program"
    assert command in found["error"]["message"]


async def test_the_selected_environment_comes_before_those_of_the_workspace(tmp_path: Path) -> None:
    own = _program(tmp_path / "work" / "venv")
    chosen = _program(tmp_path / "chosen")
    folders = [str(tmp_path / "work")]

    selected = await _find(tmp_path, folders=folders, selected=str(chosen.parent / "python3"))
    none = await _find(tmp_path, folders=folders)

    assert (selected, none) == ({"program": str(chosen)}, {"program": str(own)})


async def test_a_workspace_that_is_not_trusted_chooses_no_program(tmp_path: Path) -> None:
    own = _program(tmp_path / "work" / ".venv")

    found = await _find(tmp_path, folders=[str(tmp_path / "work")], isTrusted=False)

    assert found.get("program") != str(own)


async def test_the_folder_of_pipx_is_searched(tmp_path: Path) -> None:
    own = _program(tmp_path / ".local")

    found = await _find(tmp_path)

    # Unless the machine has one in its PATH.
    assert "program" in found
    assert found["program"] == str(own) or not found["program"].startswith(str(tmp_path))


async def test_the_offer_is_left_where_the_gateway_looks(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, str], str, str]] = [
        ({}, "linux", "/home/ada"),
        ({"XDG_DATA_HOME": "/data"}, "linux", "/home/ada"),
        ({"XDG_DATA_HOME": "data"}, "linux", "/home/ada"),
        ({}, "darwin", "/Users/ada"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/Users/ada"),
        ({}, "win32", "/Users/ada"),
    ]

    places = await order(tmp_path, "places", cases=cases)

    assert places == [
        str(data_directory(environ, platform=platform, home=Path(home)))
        for environ, platform, home in cases
    ]
