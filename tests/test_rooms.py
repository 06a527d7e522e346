"""The rooms: each job in its own place, small, and importing only what it may."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/antiphon"
CALLING = {"client", "host"}
SERVING = {"gateway", "server", "engine", "routing", "backends", "store", "tools"}
SHARED = {"protocol", "models", "plans", "transport", "wires"}
LINES_OF_A_PROVIDER = 1000
LINES_OF_A_MODULE = 200


def modules(room: str) -> list[Path]:
    return sorted((SOURCE / room).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Return the full names of all that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                found |= {name.name for name in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {f"{module}.{name.name}" for name in names}
            case ast.ImportFrom(level=level):
                assert level == 0, f"{path}: relative import"
    return found


def rooms_of(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("antiphon.")}


def foreign_to(room: str) -> set[str]:
    if room in CALLING:
        return SERVING
    return CALLING if room in SERVING else CALLING | SERVING


@pytest.mark.parametrize("room", sorted(CALLING | SERVING | SHARED))
def test_the_two_wings_do_not_know_each_other(room: str) -> None:
    found = modules(room)
    assert found
    strays = {path.name: rooms_of(imports(path)) & foreign_to(room) for path in found}
    assert not any(strays.values()), strays


@pytest.mark.requirement("RFC016-client", "RFC016-problem-3")
@pytest.mark.parametrize("room", sorted(CALLING))
def test_the_calling_wing_stands_on_no_sdk(room: str) -> None:
    allowed = sys.stdlib_module_names | {"antiphon", "msgspec", "jsonschema_rs", "tiktoken"}
    tops = {name.partition(".")[0] for path in modules(room) for name in imports(path)}
    assert tops - allowed == set()


def lines(path: Path) -> int:
    """Return how many lines of code a module has: no blank lines, comments or docstrings."""
    text = path.read_text("utf-8")
    prose = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    written = enumerate((line.strip() for line in text.splitlines()), 1)
    return sum(bool(line) and line[0] != "#" and number not in prose for number, line in written)


def test_only_lines_of_code_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        '"""A\n\nb"""\n\n# no\nX = 1\n"""What X is."""\n\n\ndef f():\n    return """\n"""\n'
    )
    assert lines(path) == 4


@pytest.mark.requirement("RFC016-metric-2")
def test_the_provider_is_small() -> None:
    parts = ["provider", "translate", "adapter", "usage"]
    sizes = {part: lines(SOURCE / "host" / f"{part}.py") for part in parts}
    assert sum(sizes.values()) < LINES_OF_A_PROVIDER, sizes


@pytest.mark.requirement("RFC016-metric-2")
@pytest.mark.parametrize("room", sorted(CALLING))
def test_a_module_is_small_on_average(room: str) -> None:
    sizes = {path.name: lines(path) for path in modules(room)}
    assert mean(sizes.values()) < LINES_OF_A_MODULE, sizes


@pytest.mark.requirement("004-constraint-2")
def test_types_are_checked_strictly_in_sources_and_tests() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert settings["strict"] is True
    assert {"src", "tests"} <= set(settings["files"])
