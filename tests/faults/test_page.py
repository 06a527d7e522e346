"""The page on faults keeps its word: every row names a test, and every test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
PAGE = (TESTS.parent / "docs/topics/faults.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`(test_\w+)`", PAGE))
HERE = sorted(Path(__file__).parent.glob("test_*.py"))


def _tests_in(path: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", path.read_text("utf-8"), re.MULTILINE))


def test_every_test_that_the_page_names_exists() -> None:
    existing = {name for path in TESTS.rglob("test_*.py") for name in _tests_in(path)}
    assert sorted(NAMED - existing) == []


def test_every_row_of_the_page_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    heads = ("| situation |", "| rule |", "| bug |")
    assert [row for row in rows if "`test_" not in row and not row.startswith(heads)] == []


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_the_page_names_every_test_of_this_folder(path: Path) -> None:
    own = _tests_in(path) if path != Path(__file__) else set()
    assert sorted(own - NAMED) == []
