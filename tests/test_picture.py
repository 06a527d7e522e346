"""The picture of the rooms shows the imports that the code has."""

from __future__ import annotations

import re

import pytest

from tests.picture import PAGE, ROOMS, diagram, picture_in, reduced


def test_picture_in_the_design_page_shows_the_real_imports() -> None:
    assert picture_in(PAGE.read_text("utf-8")) == diagram(), "python -m tests.picture --write"


def test_design_page_lists_every_room() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == ROOMS


def test_arrow_that_a_longer_way_implies_is_left_out() -> None:
    graph = {"server": {"engine", "store"}, "engine": {"store"}, "store": set[str]()}
    assert reduced(graph) == {"server": {"engine"}, "engine": {"store"}, "store": set()}


def test_rooms_that_import_each_other_are_refused() -> None:
    with pytest.raises(AssertionError, match="the rooms import each other"):
        reduced({"engine": {"store"}, "store": {"engine"}})
