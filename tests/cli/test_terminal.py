"""The screen: lines that do not mix, and nothing that a terminal would obey."""

from __future__ import annotations

import io

import pytest

from antiphon.cli.terminal import Screen, call_line, harmless, shorten
from antiphon.host.data import show_item
from antiphon.wires.host.parts import DataPart, TextPart, ThinkingPart, ToolCallPart

_LOST = "\N{REPLACEMENT CHARACTER}"


class _Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_control_characters_are_shown_on_a_terminal() -> None:
    assert harmless("a\x1b[31mb\x9b\x7f\tc\n", _Tty()) == f"a{_LOST}[31mb{_LOST}{_LOST}\tc\n"


def test_what_turns_the_order_around_is_shown_and_marks_of_direction_stay() -> None:
    assert harmless("a\u202eb\u2066c\u2069\u200f", _Tty()) == f"a{_LOST}b{_LOST}c{_LOST}\u200f"


def test_a_line_that_ends_as_in_windows_is_a_line() -> None:
    assert harmless("one\r\ntwo\rthree", _Tty()) == "one\ntwothree"


def test_what_is_not_shown_on_a_terminal_stays_as_it_is() -> None:
    assert harmless("a\x1b\r\n", io.StringIO()) == "a\x1b\r\n"


def test_what_the_stream_cannot_say_is_replaced() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert harmless("caf\N{LATIN SMALL LETTER E WITH ACUTE} \ud83d", stream) == "caf? ?"


def test_a_long_text_is_one_line_that_ends_in_dots() -> None:
    assert shorten("one\n two   three", 20) == "one two three"
    assert shorten("one two three", 8) == "one two…"


def test_a_call_is_one_line() -> None:
    call = ToolCallPart("call_1", "find", {"text": "a\nb", "limit": 3, "in": ["x"]})
    assert call_line(call) == 'find(text="a\\nb", limit=3, in=["x"])'
    assert call_line(ToolCallPart("call_1", "now", {})) == "now()"


def test_a_long_call_is_shortened() -> None:
    line = call_line(ToolCallPart("call_1", "write", {"text": "x" * 10_000}))
    assert len(line) == 200
    assert line.startswith('write(text="xxx')
    assert line.endswith("x…")


def test_text_thinking_and_calls_begin_on_lines_of_their_own(
    capfd: pytest.CaptureFixture[str],
) -> None:
    screen = Screen()
    for part in (
        ThinkingPart("hm"),
        ThinkingPart(" hm"),
        TextPart("So"),
        TextPart(": yes"),
        ThinkingPart("or\n"),
        TextPart("no"),
        ToolCallPart("call_1", "look", {}),
        TextPart("done\n"),
    ):
        screen.show(part)
    screen.end_line()
    out, err = capfd.readouterr()
    assert out == "So: yes\nno\ndone\n"
    assert err == "hm hm\nor\n→ look()\n"


def test_an_item_that_is_no_text_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.show(show_item({"type": "web_search_call", "id": "ws_1"}))
    screen.show(DataPart(b"", "image/png"))
    screen.show(ThinkingPart("", "rs_1", {"encrypted_content": "x"}))
    assert capfd.readouterr() == ("", "· web_search_call\n")


def test_a_quiet_screen_shows_no_parts(capfd: pytest.CaptureFixture[str]) -> None:
    screen = Screen(is_quiet=True)
    screen.show(TextPart("yes"))
    screen.complain("no")
    assert capfd.readouterr() == ("", "Error: no\n")
