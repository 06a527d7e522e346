"""Citations in any split of the text equal those of the whole text, which a regex finds.

The oracle knows the whole text and shares no code with the filter. Planted bugs show that these
checks notice mistakes.
"""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from antiphon.protocol import citations, code_spans
from antiphon.protocol.deltas import Delta
from tests.properties.planting import plant
from tests.protocol.test_citations import LINK_ONE, LINK_TWO, ONE, TWO, message_of

_LINKS: Final = {1: LINK_ONE, 2: LINK_TWO}
_URLS: Final = {1: ONE.url, 2: TWO.url}
# Text in which marks, half marks and near marks are frequent.
_TEXTS: Final = st.lists(
    st.sampled_from(
        [*"【】129,;† \naé😀`~\\>-", "【1】", "【2†x】", "【3】", "x" * 50]
        + ["```", "\n```", "````", "~~~\n", "`a`", "\n\n"]
        + ["【1†" + "y" * count + "】" for count in (91, 92, 93)]
    ),
    max_size=18,
).map("".join)


@st.composite
def _splits(draw: st.DrawFn) -> tuple[str, list[str]]:
    text = draw(_TEXTS)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=12)))
    edges = [0, *cuts, len(text)]
    return text, [text[a:b] for a, b in itertools.pairwise(edges)]


def _expected(text: str) -> tuple[str, list[dict[str, Any]]]:
    said, notes, at = "", [], 0
    for mark in re.finditer(r"【\s*\d{1,6}(\s*[,;]\s*\d{1,6})*\s*(†[^【】]*)?】", text):
        numbers = [int(n) for n in re.findall(r"\d+", mark[0].partition("†")[0])]
        if len(mark[0]) > 96 or not _LINKS.keys() >= set(numbers):
            continue
        said, at = said + text[at : mark.start()], mark.start()
        if _ends_in_code(said):
            continue
        for number in numbers:
            if said and not said[-1].isspace():
                said += " "
            said += _LINKS[number]
            begin = len(said) - len(_LINKS[number])
            notes.append({"url": _URLS[number], "start_index": begin, "end_index": len(said)})
        at = mark.end()
    return said + text[at:], notes


def _ends_in_code(text: str) -> bool:
    """Return whether the end of a Markdown text is in code, line by line."""
    fence = run = ""
    *lines, last = text.split("\n")
    for line in lines:
        if fence:
            closing = re.fullmatch(r"[ \t>]*(`{3,}|~{3,})[ \t\r>]*", line)
            fence = "" if closing and closing[1].startswith(fence) else fence
        elif fence := _fence_of(line):
            run = ""
        else:
            run = _open_run(line, run) if line.strip(" \t\r>") else ""
    return bool(fence or _fence_of(last) or _open_run(last, run))


def _fence_of(line: str) -> str:
    prefix = r"(?:[ \t>]|[-*+][ \t]|\d{1,9}[.)][ \t])*"
    found = re.fullmatch(prefix + r"(?:(`{3,})[^`]*|(~{3,}).*)", line)
    return (found[1] or found[2]) if found else ""


def _open_run(line: str, run: str) -> str:
    for slashes, ticks in re.findall(r"(\\*)(`+)", line):
        found = ticks[1:] if len(slashes) % 2 and not run else ticks
        if found:
            run = found if not run else "" if found == run else run
    return run


def _found(module: types.ModuleType, pieces: Sequence[str]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text and the citations that this module makes of the pieces."""
    sources = module.ShownSources()
    for source in (ONE, TWO):
        sources.show(module.WebSource(source.url, source.title))
    marks = module.CitationFilter(module.Marks(sources))
    deltas: list[Delta] = []
    for piece in pieces:
        deltas += marks.feed(piece)
        assert len(marks._held) < 96, "more is held back than a mark can be"
    deltas += marks.finish()
    if not deltas:
        return "", []
    text, notes = message_of(deltas)
    fields = ("url", "start_index", "end_index")
    return text, [{name: note[name] for name in fields} for note in notes]


@settings(max_examples=400, deadline=None)
@given(_splits())
@example(("a【1】b", ["a【", "1", "】b"]))
@example(("【【1】", ["【", "【1】"]))
def test_any_split_gives_the_text_and_the_places_of_the_whole(case: tuple[str, list[str]]) -> None:
    text, pieces = case
    assert _found(citations, pieces) == _expected(text)


_CASES: Final = (
    "a【1】b",
    "【2】",
    "a 【1】【2】.",
    "x【3】y",
    "x【1,3】y",
    "x【1, 2】y",
    "a【1†L1】b",
    "【1†" + "y" * 92 + "】",
    "【1†" + "y" * 93 + "】",
    "【【1】】",
    "【1",
    "a【1】b【",
    "a\n【1】",
    "【1†" + "z" * 200,
    "`a【1】`b【2】",
    "``a`【1】``【2】",
    "a\n```\n【1】\n```\n【2】",
    "```\n【1】\n````\n【2】",
    "````\n```\n【1】\n````\n【2】",
    "```\na ```\n【1】",
    "```\n``` a\n【1】",
    "~~~a`\n【1】\n~~~\n【2】",
    "- ```\n【1】\n```\n【2】",
    "```a``` 【1】",
    "`a\n【1】\n\n【2】",
    "`a\n```\n```\n【1】",
    "\\`a 【1】",
    "\\\\`a 【1】",
    "`\\` 【1】",
    "~~~\n```\n~~~\n【1】",
    "a ``` b\n【1】",
    "【1】```\n【2】",
    "a ```b\n\n【1】",
    "~~a\n【1】",
    "```\n  ```  \n【1】",
)
_BUGS: Final[dict[str, tuple[str, str]]] = {
    "nothing is held back": ("self._held = text[at:]", "self._held = ''"),
    "what is held is lost at the end": ("if self._held else []", "if False else []"),
    "held text is not looked at again": ("self._read(self._held + text,", "self._read(text,"),
    "a half mark is never given up": ("len(text) - at < pattern.longest and", ""),
    "marks may be of any length": ("_MARK.match(text, at, at + MAX_MARK)", "_MARK.match(text, at)"),
    "long marks are cut off too early": ("MAX_MARK: Final = 96", "MAX_MARK: Final = 95"),
    "unknown sources are dropped": (
        "if len(sources) < len(found):",
        "if not sources:",
    ),
    "an unknown source is invented": (
        "return self._by_number.get(number)",
        "return self._by_number.get(number) or self._by_number[1]",
    ),
    "numbers begin at 0": ("len(self._by_number) + 1", "len(self._by_number)"),
    "the mark stays beside the link": ("begin, at = place.end, ", "begin, at = at, "),
    "text before a mark is lost": (
        "            self._say(found, text[begin:at])\n            begin, pattern",
        "            begin, pattern",
    ),
    "the rest is lost": (
        "        self._say(found, text[begin:at])\n        self._held",
        "        self._held",
    ),
    "the annotation covers too much": ("covers=len(link)", "covers=len(link) + 1"),
    "the annotation is a point": ("covers=len(link)", "covers=0"),
    "the annotation comes before its link": (
        "            self._say(found, one.text)\n            found.append(AnnotationAdded("
        "one.annotation, covers=one.covers))",
        "            found.append(AnnotationAdded(one.annotation, covers=one.covers))\n"
        "            self._say(found, one.text)",
    ),
    "links stick to words": ("not self._before[-1].isspace()", "False"),
    "spaces are forgotten": ("self._before = (self._before + text)[-MAX_BEFORE:]", "pass"),
    "only the first source of a mark counts": ("for one in cited:", "for one in cited[:1]:"),
    "notes after a dagger are no marks": (r"\s*(?:†[^【】]*)?】", r"\s*】"),
    "a bracket ends the search": (
        "            else:\n                at = self._next(text, at + 1)",
        "            else:\n                at = len(text)",
    ),
    "a mark in a row is skipped": (
        "self._next(text, place.end)",
        "self._next(text, place.end + 1)",
    ),
    "marks in code are cited": ("if self._code.is_inside:", "if False:"),
    "code is not followed": ("            self._code.note(text)", "            pass"),
    "code goes on for ever": ('            self._run = ""\n', "            pass\n"),
    "any run ends inline code": ("elif run == self._run:", "else:"),
    "a block ends with inline code": ("if self._fence:", "if False:"),
    "a shorter run ends a block": ("piece.startswith(self._fence)", 'piece[0] in "`~"'),
    "other runs end a block": (
        "piece.startswith(self._fence)",
        "len(piece) >= len(self._fence)",
    ),
    "a longer run does not end a block": ("piece.startswith(self._fence)", "piece == self._fence"),
    "a block ends inside a line": (
        " and not self._line.strip(_NOTHING):\n            self._is_closing",
        ":\n            self._is_closing",
    ),
    "words after a run end a block": (
        "        elif piece.strip(_NOTHING):\n            self._is_closing = False\n",
        "",
    ),
    "spaces keep a block open": ("elif piece.strip(_NOTHING):", "else:"),
    "blocks begin inside a line": ("and _PREFIX.fullmatch(self._line)", ""),
    "blocks begin at the margin only": ("_PREFIX.fullmatch(self._line)", "not self._line"),
    "a run with runs after it opens a block": (
        'if run and run[0] == self._opening[0] == "`":',
        "if False:",
    ),
    "tildes open no block": ('elif piece[0] in "`~":', 'elif piece[0] == "`":'),
    "two tildes are a block": ("_FENCE: Final = 3", "_FENCE: Final = 2"),
    "backslashes mean nothing": ("if self._is_escaped and not self._run", "if False"),
    "backslashes count in code": ("if self._is_escaped and not self._run", "if self._is_escaped"),
    "two backslashes escape": (" and len(piece) % 2 == 1", ""),
    "a paragraph does not end code": ("elif not self._line.strip(_NOTHING):", "elif False:"),
    "a line ends code": ("elif not self._line.strip(_NOTHING):", "else:"),
    "a block in a paragraph keeps its run": (
        'self._fence, self._run = self._opening, ""',
        "self._fence = self._opening",
    ),
    "links are not escaped": ("self.url.translate(_IN_LINK)", "self.url"),
}


@pytest.mark.parametrize("bug", _BUGS)
def test_a_planted_bug_is_noticed(bug: str) -> None:
    old, new = _BUGS[bug]
    planted = plant([code_spans, citations], old, new)
    for text in _CASES:
        for pieces in ([text], list(text), [text[:2], text[2:]]):
            if _differs(planted, text, pieces):
                return
    pytest.fail("no check noticed it")


def _differs(module: types.ModuleType, text: str, pieces: Sequence[str]) -> bool:
    try:
        return _found(module, pieces) != _expected(text)
    except Exception:  # noqa: BLE001 - a bug may raise anything
        return True


def test_without_a_bug_every_case_is_as_expected() -> None:
    for text in _CASES:
        for pieces in ([text], list(text), [text[:2], text[2:]]):
            assert not _differs(citations, text, pieces)
