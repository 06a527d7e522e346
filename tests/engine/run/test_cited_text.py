"""Citations in deltas: beginnings stay with their text, and other deltas end it."""

from __future__ import annotations

from antiphon.engine.run.cited_text import CitedText
from antiphon.protocol.citations import Marks, ShownSources, WebSource
from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallMade,
    Delta,
    ReasoningGrew,
    Reported,
    TextGrew,
)


def cited() -> CitedText:
    sources = ShownSources()
    sources.show(WebSource("https://a.example", "A", "point"))
    return CitedText([Marks(sources)])


def taken(text: CitedText, *deltas: Delta) -> list[Delta]:
    found: list[Delta] = []
    for delta in deltas:
        found += text.take(delta)
    return [*found, *text.finish()]


def test_a_beginning_that_is_held_back_stays_with_its_text() -> None:
    first = TextGrew("【", begins="item", phase="commentary")
    assert taken(cited(), TextGrew("a"), first, TextGrew("x")) == [
        TextGrew("a"),
        TextGrew("【x", begins="item", phase="commentary"),
    ]


def test_a_text_that_begins_ends_the_one_before() -> None:
    found = taken(cited(), TextGrew("a【"), TextGrew("1】", begins="item"))
    assert found == [TextGrew("a"), TextGrew("【"), TextGrew("1】", begins="item")]


def test_what_is_no_text_ends_it_and_a_report_does_not() -> None:
    call = CallMade("f", "{}", "c")
    assert taken(cited(), TextGrew("a【"), call) == [TextGrew("a"), TextGrew("【"), call]
    thought = ReasoningGrew("hm")
    assert taken(cited(), TextGrew("`a"), thought, TextGrew("b【1】"))[2:] == [
        TextGrew("b"),
        AnnotationAdded({"type": "url_citation", "url": "https://a.example", "title": "A"}, 0),
    ]
    found = taken(cited(), TextGrew("a【"), Reported("note"), TextGrew("1】"))
    assert found[:2] == [TextGrew("a"), Reported("note")]
    assert isinstance(found[2], AnnotationAdded)


def test_text_may_pass_unseen_until_a_source_was_shown() -> None:
    sources = ShownSources()
    text = CitedText([Marks(sources)])
    sources.show(WebSource("https://a.example"))
    before = text.looks_for  # it changes between rounds only
    text.begin_round()
    after = text.looks_for
    assert before is None
    assert after is not None
    assert [bool(after.search(one)) for one in ("a", "a【")] == [False, True]
