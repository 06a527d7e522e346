"""The table of faults that other gateways had: every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "topics" / "regressions.md"
_FAULTS = 66


def rows() -> list[tuple[int, str]]:
    found = re.findall(r"^\| (\d+) \| .+? \| (.+) \|$", _PAGE.read_text("utf-8"), re.MULTILINE)
    return [(int(number), where) for number, where in found]


def test_every_fault_has_a_row_in_order() -> None:
    assert [number for number, _ in rows()] == [*range(1, _FAULTS + 1)]


def test_every_test_that_is_named_is_linked_and_exists() -> None:
    for number, where in rows():
        links = re.findall(r"\[`(\w+)`\]\(\.\./\.\./(.+?)\)", where)
        assert len(re.findall(r"`(?:test|Test)_?\w+`", where)) == len(links), number
        for name, path in links:
            source = (_ROOT / path).read_text("utf-8")
            assert re.search(rf"\b(?:def {name}\(|{name}(?:: \w+)? = )", source), (number, name)
