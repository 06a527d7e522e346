"""Citations: marks of sources become annotations at their place, and nothing else does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from antiphon.protocol.citations import (
    MAX_MARK,
    Citable,
    CitationFilter,
    Cited,
    FileSource,
    Found,
    Marks,
    Pattern,
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


def shown(*sources: Citable) -> ShownSources:
    found = ShownSources()
    for source in sources or (ONE, TWO):
        found.show(source)
    return found


def filtered(pieces: Iterable[str], *sources: Citable) -> list[Delta]:
    return passed(pieces, Marks(shown(*sources)))


def passed(pieces: Iterable[str], *patterns: Pattern) -> list[Delta]:
    marks = CitationFilter(*patterns)
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
    text, (note,) = message_of(filtered(["ab【1】c"], WebSource(ONE.url, "One", "point")))
    assert (text, note["start_index"], note["end_index"]) == ("abc", 2, 2)


def test_pages_and_files_are_cited_in_one_text() -> None:
    file = FileSource("file_1", "notes.txt")
    text, notes = message_of(filtered(["a【1】 b【2】 c【3】d"], ONE, file, TWO))
    assert text == f"a {LINK_ONE} b c {LINK_TWO}d"
    assert [note["type"] for note in notes] == ["url_citation", "file_citation", "url_citation"]
    cited = notes[1]
    assert cited["index"] == text.index(" c")
    assert cited == {
        "type": "file_citation",
        "file_id": "file_1",
        "filename": "notes.txt",
        "index": cited["index"],
    }


@pytest.mark.parametrize(
    "code",
    [
        "`a【1】`",
        "``a ` 【1】``",
        "```\na【1】\n```\n",
        "```py\na【1】\n``\n【2】\n````\n",
        "~~~\n```\n【1】\n~~~\n",
        "- ```\n  【1】\n  ```\n",
        "> ```\n> 【1】\n> ```\n",
        "```\n【1】",
        "`a\n【1】`",
        "```a【1】``` ",
        "```\n``` 【1】\n```\n",
        "a `b 【1】",
        "`\\` `【1】`",
    ],
)
def test_marks_in_code_stay_text(code: str) -> None:
    for pieces in ([code], list(code)):
        assert message_of(filtered(pieces)) == (code, [])
    assert message_of(filtered([f"a\n{code}"])) == (f"a\n{code}", [])


@pytest.mark.parametrize(
    "before",
    [
        "`a`",
        "```\na\n```\n",
        "```a``` ",
        "\\`a ",
        "a `b\n\n",
        "~~~\n`\n~~~\n",
        "~~a~~ ",
        "``a`b`` ",
        "`\\` ",
        "\\\\`a` ",
        "`\n```\n```\n",
    ],
)
def test_marks_after_code_are_cited(before: str) -> None:
    for pieces in ([before, "x【1】"], list(f"{before}x【1】")):
        text, notes = message_of(filtered(pieces))
        assert text == f"{before}x {LINK_ONE}"
        assert len(notes) == 1


class Paths:
    """Paths in a text, which stays as it is."""

    begin = ":"
    longest = 40
    _whole = re.compile(r":/data/(\w+\.\w+)(?=[\s)])")
    _at_end = re.compile(r":/data/(\w+\.\w+)")

    def find(self, text: str, at: int, before: str, *, is_whole: bool) -> Found | None:
        found = (self._at_end if is_whole else self._whole).match(text, at)
        if found is None or not before.endswith("box"):
            return None
        note = {"type": "container_file_citation", "filename": found[1]}
        return Found(found.end(), [Cited(found[0], note, len(found[0]) + 3, is_word=False)])

    def may_grow(self, text: str, at: int, before: str) -> bool:
        return before.endswith("box") and re.fullmatch(r"[:/\w.]+", text[at:]) is not None


@pytest.mark.parametrize(
    "text", ["see [a](box:/data/a.txt), 【1】", "`box:/data/a` box:/data/a.txt"]
)
def test_another_pattern_annotates_the_text_as_it_stands(text: str) -> None:
    for pieces in ([text], list(text), [text[:12], text[12:]]):
        said, notes = message_of(passed(pieces, Marks(shown()), Paths()))
        assert said == text.replace("【1】", LINK_ONE)
        path = notes[0]
        assert said[path["start_index"] : path["end_index"]] == "box:/data/a.txt"
        assert len(notes) == 1 + ("【1】" in text)


def test_text_without_brackets_is_never_held_back() -> None:
    marks = CitationFilter(Marks(shown()))
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
    marks = CitationFilter(Marks(shown()))
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
