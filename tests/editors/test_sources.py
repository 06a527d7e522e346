"""The sources of the extension: their types, their size, and what they may use."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients.install import ROOT, node, node_modules, npm_environment
from tests.vscode.vsix import EXTENSION

FOLDER: Final = ROOT / EXTENSION
SOURCES: Final = sorted((FOLDER / "src").glob("*.js"))
# They offer the editor's own models to a gateway, which is another product: that of seed 003.
REVERSE: Final = {"listener.js", "offer.js"}
MAX_LINES: Final = 200
MAX_PROVIDER: Final = 1_000


def code_lines(source: str) -> int:
    """Return the lines that are neither blank nor a comment."""
    without = re.sub(r"/\*\*.*?\*/", "", source, flags=re.DOTALL)
    return len([line for line in without.splitlines() if not re.match(r"\s*(//.*)?$", line)])


def test_the_type_checker_finds_nothing(tmp_path: Path) -> None:
    for name in ("src", "tsconfig.json"):
        copy = shutil.copytree if (FOLDER / name).is_dir() else shutil.copy
        copy(FOLDER / name, tmp_path / name)
    modules = node_modules(EXTENSION)
    (tmp_path / "node_modules").symlink_to(modules)

    done = subprocess.run(
        [node(), modules / "typescript" / "bin" / "tsc", "--project", "tsconfig.json"],
        cwd=tmp_path,
        env=npm_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("", 0)


@pytest.mark.requirement("RFC016-metric-2")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_module_is_small_and_checked(source: Path) -> None:
    text = source.read_text("utf-8")

    assert len(text.splitlines()) < MAX_LINES
    assert text.startswith("// @ts-check\n// ")


@pytest.mark.requirement("RFC016-metric-2")
def test_the_provider_is_small() -> None:
    sizes = {path.name: code_lines(path.read_text("utf-8")) for path in SOURCES}
    provider = sum(size for name, size in sizes.items() if name not in REVERSE)

    print(f"lines of code: {provider} of the provider, {sum(sizes.values())} of all")
    assert provider < MAX_PROVIDER


def test_there_are_no_dependencies_at_run_time_and_no_proposed_api() -> None:
    manifest = json.loads((FOLDER / "package.json").read_text("utf-8"))

    assert "dependencies" not in manifest
    assert "enabledApiProposals" not in manifest
    for source in SOURCES:
        wanted = re.findall(r"require\('([^']+)'\)", source.read_text("utf-8"))
        assert all(name == "vscode" or name.startswith(("./", "node:")) for name in wanted)


def test_the_client_of_the_bridge_needs_no_editor() -> None:
    for name in ("bridge.js", "keeper.js", "counter.js", "lines.js"):
        assert "'vscode'" not in (FOLDER / "src" / name).read_text("utf-8")


def test_what_decides_over_programs_and_keys_is_not_up_to_a_workspace() -> None:
    manifest = json.loads((FOLDER / "package.json").read_text("utf-8"))
    settings = manifest["contributes"]["configuration"]["properties"]

    free = {name for name, one in settings.items() if one.get("scope") != "machine"}
    assert free == {"antiphon.showThinking", "antiphon.logLevel"}
    assert all(one["markdownDescription"].endswith(".") for one in settings.values())


def test_every_setting_and_command_of_the_code_is_declared() -> None:
    manifest = json.loads((FOLDER / "package.json").read_text("utf-8"))
    code = "".join(path.read_text("utf-8") for path in SOURCES)
    declared = {one["command"] for one in manifest["contributes"]["commands"]}
    registered = set(re.findall(r"^  '(antiphon\.\w+)': ", code, re.MULTILINE))

    # The two that only buttons of a notification use are in no palette.
    assert registered - declared == {"antiphon.chooseProgram", "antiphon.howToInstall"}
    assert declared <= registered
    used = set(re.findall(r"(?:get|isOn|update)\('(\w+)'", code)) - {"url"}
    settings = manifest["contributes"]["configuration"]["properties"]
    assert {f"antiphon.{name}" for name in used} <= settings.keys()
