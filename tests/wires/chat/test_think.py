"""Tags around thinking, in text."""

from __future__ import annotations

import pytest

from antiphon.protocol.deltas import ReasoningGrew
from antiphon.wires.chat.think import ThinkSplitter


def split(*pieces: str) -> tuple[str, str]:
    """Return the reasoning and the text that the pieces come to."""
    splitter = ThinkSplitter()
    deltas = [delta for piece in pieces for delta in splitter.feed(piece)] + splitter.release()
    assert all(delta.text for delta in deltas)
    reasoning = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningGrew))
    return reasoning, "".join(d.text for d in deltas if not isinstance(d, ReasoningGrew))


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("plain", "", "plain"),
        ("<think>a</think>b", "a", "b"),
        (" \n<think>\na\n</think>\n\nb", "a\n", "b"),
        ("<think></think>b", "", "b"),
        ("<think>a", "a", ""),
        ("<think>a</thin", "a</thin", ""),
        ("<think>a < b </ c</think>d", "a < b </ c", "d"),
        ("  indented", "", "  indented"),
        ("a <think>b</think>", "", "a <think>b</think>"),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("<thinking>a", "", "<thinking>a"),
        ("<thi", "", "<thi"),
        ("   ", "", "   "),
        ("", "", ""),
    ],
)
def test_every_cut_gives_the_same(text: str, reasoning: str, answer: str) -> None:
    assert split(text) == (reasoning, answer)
    assert split(*text) == (reasoning, answer)
    for cut in range(len(text)):
        assert split(text[:cut], text[cut:]) == (reasoning, answer)


def test_space_is_not_held_for_ever() -> None:
    assert ThinkSplitter().feed(" " * 1000) != []


def test_it_says_when_it_is_no_longer_needed() -> None:
    splitter = ThinkSplitter()
    assert not splitter.is_over
    splitter.feed("<think>a</think>")
    assert not splitter.is_over
    splitter.feed("b")
    assert splitter.is_over
