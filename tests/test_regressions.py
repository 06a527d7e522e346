"""The list of regressions names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "topics" / "regressions.md"


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    found = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }

    assert named - found == set()


def test_rows_are_in_order_and_no_number_stands_twice() -> None:
    numbers = [int(n) for n in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)]

    assert numbers == sorted(set(numbers))
