"""The table of faults that other gateways had: every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_COUNT = 66
_PAGE = _ROOT / "docs" / "topics" / "regressions.md"


def rows() -> list[tuple[int, str]]:
    found = re.findall(r"^\| (\d+) \| .+? \| (.+) \|$", _PAGE.read_text("utf-8"), re.MULTILINE)
    return [(int(number), where) for number, where in found]


def test_every_number_has_its_row() -> None:
    assert [number for number, _ in rows()] == list(range(1, _COUNT + 1))


def test_every_test_that_is_named_exists() -> None:
    for number, where in rows():
        for name, path in re.findall(r"\[`(\w+)`\]\(\.\./\.\./(.+?)\)", where):
            assert f"def {name}(" in (_ROOT / path).read_text("utf-8"), (number, name)
