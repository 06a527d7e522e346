"""Paths and names in CONTRIBUTING.md, the design page and the decisions exist in the tree."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "CONTRIBUTING.md"
PAGES = [GUIDE, ROOT / "docs/topics/design.md", *sorted((ROOT / "docs/decisions").glob("0*.md"))]
_NOT_NAMES = {"wire_api", "owner", "WHERE", "Protocol", "None"}


def _spans(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


def _paths(page: Path) -> list[str]:
    """Return the spans that name a file or folder of this project."""
    tops = {path.name for path in [*ROOT.iterdir(), *(ROOT / "src/antiphon").iterdir()]}
    spans = [span for span in _spans(page) if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", span)]
    return [span for span in spans if span.partition("/")[0] in tops or span.endswith(".py")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_on_a_page_exist(page: Path) -> None:
    places = [ROOT, ROOT / "src/antiphon"]
    missing = [path for path in _paths(page) if not any((at / path).exists() for at in places)]
    assert missing == []


@cache
def _defined() -> set[str]:
    found: set[str] = set()
    for folder in ("src", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text("utf-8")
            found |= set(re.findall(r"^\s*(?:class|(?:async )?def) (\w+)", text, re.MULTILINE))
            found |= set(re.findall(r"^\s*(\w+)(?:: [^=\n]+)? = ", text, re.MULTILINE))
    return found


def test_names_in_the_guide_are_defined() -> None:
    names = {span for span in _spans(GUIDE) if re.fullmatch(r"[A-Za-z]\w+", span)} - _NOT_NAMES
    assert names
    assert names - _defined() == set()


def test_guide_names_a_test_file_for_each_walk() -> None:
    walks = re.findall(r"^## Add .*?(?=^## )", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(walks) == 7
    assert all("tests/" in walk for walk in walks)
