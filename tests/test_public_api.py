"""The public API: what the page lists is what the modules export, and the docs use nothing else."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.public_api import MODULES, PAGE, PARTS, page, public_names

DOCS = sorted(PAGE.parents[1].rglob("*.md"))


def test_page_lists_exactly_the_exported_names() -> None:
    assert PAGE.read_text("utf-8") == page(), "python -m tests.public_api --write"


@pytest.mark.parametrize("module", [*MODULES, *PARTS])
def test_every_public_name_can_be_imported(module: str) -> None:
    names = public_names(module)
    assert len(set(names)) == len(names)
    for name in names:
        assert getattr(import_module(module), name) is not None


def _imported(program: str) -> set[tuple[str, str]]:
    return {
        (node.module, name.name)
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("antiphon")
        for name in node.names
    }


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.name))
def test_examples_import_public_names_only(path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.DOTALL)
    public = {(module, name) for module in [*MODULES, *PARTS] for name in public_names(module)}
    assert set().union(*map(_imported, programs)) - public == set()
