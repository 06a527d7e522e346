"""The text of an answer: thinking, calls, text, and the tokens that go with it."""

from __future__ import annotations

from typing import Any

from antiphon.protocol.deltas import CallClosed, CallGrew, CallOpened, Delta, TextGrew
from antiphon.wires.chat.text import AnswerText

CALL = '<tool_call>{"name": "shell", "arguments": {}}</tool_call>'


def read(*pieces: str, names: tuple[str, ...] = ("shell",)) -> list[Delta]:
    """Return what the pieces come to, each one a token with a name of its own."""
    text = AnswerText(names, think_tags=True)
    said: list[Delta] = []
    for piece in pieces:
        text.note_tokens([token(piece)])
        said += text.feed(piece)
    return said + text.release(is_cut=False)


def token(text: str) -> dict[str, Any]:
    return {"token": text}


def is_call(delta: Delta) -> bool:
    return isinstance(delta, CallOpened | CallGrew | CallClosed)


def test_tokens_go_with_their_text() -> None:
    assert read("a", "b") == [TextGrew("a", (token("a"),)), TextGrew("b", (token("b"),))]


def test_tokens_of_thinking_are_dropped() -> None:
    *_, text = read("<think>", "a", "</think>b")
    assert text == TextGrew("b", (token("</think>b"),))


def test_tokens_of_a_call_are_dropped_and_so_are_those_of_its_end() -> None:
    *calls, text = read(*CALL.partition("{"), "</tool_call>", "b")
    assert len(calls) == 3 and all(map(is_call, calls))
    assert text == TextGrew("b", (token("b"),))


def test_tokens_of_what_was_held_go_with_it_once_it_is_text() -> None:
    assert read("{", '"a"') == [TextGrew('{"a"', (token("{"), token('"a"')))]


def test_a_call_in_a_thought_is_thought() -> None:
    said = read(f"<think>{CALL}</think>b")
    assert not any(map(is_call, said))


def test_a_call_after_a_thought_is_found() -> None:
    assert sum(map(is_call, read(f"<think>a</think>\n\n{CALL}"))) == 3


def test_without_names_nothing_is_looked_for() -> None:
    assert read(CALL, names=()) == [TextGrew(CALL, (token(CALL),))]


def test_nothing_is_looked_for_once_the_server_has_sent_a_call() -> None:
    text = AnswerText(("shell",), think_tags=True)
    bare = '{"name": "shell", "arguments": {}}'
    assert text.feed(f"a\n{bare}") == [TextGrew("a")]
    assert text.stop_finding() == [TextGrew(f"\n{bare}")]
    assert text.stop_finding() == []
    assert text.feed(CALL) == [TextGrew(CALL)]
    assert text.release(is_cut=False) == []
