"""Citations: marks of sources become annotations at their place, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from antiphon.protocol.citations import (
    MAX_MARK,
    CitationFilter,
    CiteAs,
    ShownSources,
    WebSource,
    unmarked,
)
from antiphon.protocol.deltas import Delta, ItemClosed, ItemOpened, TextGrew
from antiphon.protocol.items import text_of
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.referee import judge_stream
from tests.building import STOP, build

ONE = WebSource("https://www.one.example/a", "One")
TWO = WebSource("https://two.example/b?q=(x)", "Two")
LINK_ONE = "([one.example](https://www.one.example/a))"
LINK_TWO = "([two.example](https://two.example/b?q=%28x%29))"


def shown(*sources: WebSource) -> ShownSources:
    found = ShownSources()
    for source in sources or (ONE, TWO):
        found.show(source)
    return found


def filtered(pieces: Iterable[str], cite_as: CiteAs = "link") -> list[Delta]:
    marks = CitationFilter(shown(), cite_as)
    found: list[Delta] = []
    for piece in pieces:
        found += marks.feed(piece)
    return [*found, *marks.finish()]


def message_of(deltas: Iterable[Delta]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and the annotations that a client has at the end of this stream."""
    events = build([*deltas, STOP])
    judge_stream(events)
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(event)
    assert accumulator.response is not None
    (message,) = [item for item in accumulator.response.output if item["type"] == "message"]
    return text_of(message["content"]), message["content"][0]["annotations"]


@pytest.mark.parametrize(
    ("text", "expected", "cited"),
    [
        ("Sky is blue【1】.", f"Sky is blue {LINK_ONE}.", [(LINK_ONE, ONE)]),
        ("Blue 【2】 sky", f"Blue {LINK_TWO} sky", [(LINK_TWO, TWO)]),
        ("【1】", LINK_ONE, [(LINK_ONE, ONE)]),
        ("a【1】【2】", f"a {LINK_ONE} {LINK_TWO}", [(LINK_ONE, ONE), (LINK_TWO, TWO)]),
        ("a【1, 2】", f"a {LINK_ONE} {LINK_TWO}", [(LINK_ONE, ONE), (LINK_TWO, TWO)]),
        ("a【2†L3-L9】b", f"a {LINK_TWO}b", [(LINK_TWO, TWO)]),
        ("😀é【1】", f"😀é {LINK_ONE}", [(LINK_ONE, ONE)]),
    ],
)
def test_mark_becomes_a_link_that_its_annotation_covers(
    text: str, expected: str, cited: list[tuple[str, WebSource]]
) -> None:
    said, annotations = message_of(filtered([text]))
    assert said == expected
    covered = [said[note["start_index"] : note["end_index"]] for note in annotations]
    assert covered == [link for link, _ in cited]
    assert [(note["url"], note["title"]) for note in annotations] == [
        (source.url, source.title) for _, source in cited
    ]


@pytest.mark.parametrize(
    "text",
    [
        "no mark at all",
        "[1] and (1)",
        "【3】 was not shown",
        "【1, 3】 was not shown in part",
        "【0】【】【a】【 】",
        "【1",
        "【1【",
        "【1†" + "x" * MAX_MARK + "】",
        "1】",
        "【1†a【b】",
    ],
)
def test_text_that_is_no_mark_of_a_shown_source_stays(text: str) -> None:
    assert message_of(filtered([text])) == (text, [])
    assert message_of(filtered(text)) == (text, [])


def test_point_removes_the_mark_and_covers_nothing() -> None:
    text, (note,) = message_of(filtered(["ab【1】c"], "point"))
    assert (text, note["start_index"], note["end_index"]) == ("abc", 2, 2)


def test_text_without_brackets_is_never_held_back() -> None:
    marks = CitationFilter(shown())
    assert [marks.feed(piece) for piece in ("a ", "[", "1]")] == [
        [TextGrew("a ")],
        [TextGrew("[")],
        [TextGrew("1]")],
    ]


def test_the_same_page_keeps_its_mark() -> None:
    sources = ShownSources()
    assert sources.show(ONE) == "【1】"
    assert sources.show(TWO) == "【2】"
    assert sources.show(WebSource(ONE.url, "another title")) == "【1】"
    assert len(sources) == 2


def test_positions_begin_again_in_every_message() -> None:
    marks = CitationFilter(shown())
    first = [*marks.feed("one【1】"), *marks.finish()]
    second = [*marks.feed("two【1】"), *marks.finish()]
    search = {"type": "web_search_call", "action": {"type": "search"}, "status": "completed"}
    events = build([*first, ItemOpened("k", search), ItemClosed("k", search), *second, STOP])
    judge_stream(events)
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(event)
    assert accumulator.response is not None
    messages = [item for item in accumulator.response.output if item["type"] == "message"]
    for message in messages:
        (part,) = message["content"]
        (note,) = part["annotations"]
        assert part["text"][note["start_index"] : note["end_index"]] == LINK_ONE
    assert len(messages) == 2


def test_text_of_others_has_no_marks() -> None:
    assert unmarked("see 【1】") == "see [1]"
