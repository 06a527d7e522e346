"""Files for people who work on the project: they agree with each other and with the tree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WORKFLOW = (ROOT / ".github/workflows/test.yml").read_text("utf-8")


def test_workflow_runs_on_the_supported_pythons() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    supported = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: 3." in line]
    (matrix,) = re.findall(r"python: \[(.*)\]", WORKFLOW)
    assert re.findall(r'"(.*?)"', matrix) == supported


def test_plugins_have_the_licence_and_the_pythons_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for path in (ROOT / "plugins").glob("*/pyproject.toml"):
        plugin = tomllib.loads(path.read_text("utf-8"))["project"]
        for name in ("license", "license-files", "requires-python"):
            assert plugin[name] == project[name], path
        pythons = {line for line in project["classifiers"] if "Python" in line}
        assert pythons <= set(plugin["classifiers"]), path
        assert (path.parent / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_workflow_may_only_read_and_pins_its_actions() -> None:
    assert re.findall(r"^permissions:\n((?:  .*\n)+)", WORKFLOW, re.MULTILINE) == [
        "  contents: read\n"
    ]
    actions = re.findall(r"uses: (\S+)", WORKFLOW)
    assert actions and all(re.search(r"@[0-9a-f]{40}$", action) for action in actions)


def test_workflow_runs_scripts_that_exist() -> None:
    scripts = re.findall(r"run: (\S+)", WORKFLOW)
    assert scripts == ["scripts/quick", "scripts/test", "scripts/test-more"]
    assert all((ROOT / script).exists() for script in scripts)


def test_pre_commit_has_the_ruff_of_the_lock_file() -> None:
    (locked,) = re.findall(
        r"^ruff==(\S+)", (ROOT / "requirements/test.txt").read_text("utf-8"), re.MULTILINE
    )
    config = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall(r"rev: v(\S+)", config) == [locked]


def test_quick_leaves_out_only_folders_that_exist() -> None:
    script = (ROOT / "scripts/quick").read_text("utf-8")
    (names,) = re.findall(r'^left_out="(.*)"$', script, re.MULTILINE)
    assert all((ROOT / "tests" / name).is_dir() for name in names.split())


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").iterdir()), ids=lambda path: path.name)
def test_scripts_are_valid_shell(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True)
