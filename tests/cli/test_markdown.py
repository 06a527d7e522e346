"""Markdown on a terminal: what is styled, where lines break, and that nothing is lost."""

from __future__ import annotations

import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.markdown import Markdown

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def _bold(*words: str) -> str:
    return " ".join(click.style(word, bold=True) for word in words)


def _code(text: str) -> str:
    return click.style(text, fg="cyan")


def _dim(text: str) -> str:
    return click.style(text, dim=True)


def _render(*pieces: str, columns: int = 80) -> str:
    markdown = Markdown(lambda: columns)
    return "".join([*(markdown.feed(piece) for piece in pieces), markdown.end()])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# A title\ntext", f"{_bold('A', 'title')}\ntext"),
        ("a **very bold** word", f"a {_bold('very', 'bold')} word"),
        ("call `f(x)` now", f"call {_code('f(x)')} now"),
        ("``a`b``", _code("a`b")),
        ("> quoted\n", f"{_dim('> ')}quoted\n"),
        ("***\n", _dim("***") + "\n"),
        ("- one\n2. two\n", "- one\n2. two\n"),
        ("| a | b |\n", "| a | b |\n"),
    ],
)
def test_headings_spans_and_quotes_are_styled(text: str, shown: str) -> None:
    assert _render(text) == shown


@pytest.mark.parametrize(
    "text", ["2 ** 3 ** 4", "a * b", "an `open tick", "an **open mark\nclosed** later", "#no title"]
)
def test_markers_that_mean_nothing_stay_text(text: str) -> None:
    assert _render(text) == text


def test_a_block_of_code_is_set_apart_and_never_wrapped() -> None:
    text = "```python\nif x:  # **not bold** and far longer than the line\n    pass\n```\nafter"
    assert _render(text, columns=20).split("\n") == [
        _dim("```python"),
        _code("if x:  # **not bold** and far longer than the line"),
        _code("    pass"),
        _dim("```"),
        "after",
    ]


def test_a_fence_is_closed_only_by_one_of_its_kind() -> None:
    lines = _render("````\n```\n~~~~\n````\n**b**").split("\n")
    assert lines[1:3] == [_code("```"), _code("~~~~")]
    assert lines[4] == _bold("b")


def test_lines_break_between_words_and_items_are_indented() -> None:
    assert _render("one two three four", columns=10) == "one two\nthree\nfour"
    assert _render("- one two three", columns=12) == "- one two\n  three"
    assert _render("a verylongwordindeed b", columns=10) == "a\nverylongwordindeed\nb"


def test_a_script_without_spaces_breaks_between_characters() -> None:
    assert _render("日本語日本語", columns=9) == "日本語日\n本語"


def test_words_are_shown_as_soon_as_they_are_whole() -> None:
    markdown = Markdown(lambda: 80)
    assert [markdown.feed(piece) for piece in ("Hel", "lo wor", "ld **b", "old** x")] == [
        "",
        "Hello",
        " world",
        f" {_bold('bold')}",
    ]
    assert markdown.end() == " x"


def test_a_text_that_is_over_leaves_nothing_to_the_next() -> None:
    markdown = Markdown(lambda: 80)
    markdown.feed("```\ncode")
    markdown.end()
    assert markdown.feed("text ") + markdown.end() == "text "


@given(st.text(alphabet="ab *`#->|1.~_\n\t日", max_size=60), st.data())
def test_how_a_text_arrives_does_not_change_how_it_looks(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, cut = _render(text, columns=12), _render(*pieces, columns=12)
    assert cut == whole


@given(st.text(alphabet="ab *`#->|1.~_\n日", max_size=60))
def test_no_character_of_a_text_is_lost(text: str) -> None:
    """Only the markers of headings and of closed spans are left out."""
    shown = _STYLE.sub("", _render(text, columns=12))
    removed = re.compile(r"[\s*`#>]")
    assert removed.sub("", shown) == removed.sub("", text)


def test_a_long_line_of_markers_takes_no_time_to_speak_of() -> None:
    text = "**a`" * 20_000
    assert _render(text).count("a") == 20_000
