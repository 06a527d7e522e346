"""The outcome: what is read from the final response."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.host.outcome import Outcome, notes_of, parts_of, spoken_text, thought_text
from antiphon.protocol.response import Notes, Response

REFUSAL = {"type": "refusal", "refusal": "no"}
TEXT = {"type": "output_text", "text": "yes", "annotations": [{"url": "u"}, 5]}


def message(content: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": content}


@pytest.mark.requirement("RFC22-refusal")
def test_the_refusals_of_all_messages_are_joined() -> None:
    output = [message([REFUSAL, TEXT]), {"type": "function_call"}, message([REFUSAL])]
    assert Outcome(Response(id="r", output=output)).refusal == "nono"


def test_what_was_not_honoured_is_listed() -> None:
    assert Outcome(Response(id="r", antiphon=Notes(degraded=("seed",)))).degraded == ("seed",)
    assert Outcome(Response(id="r")).degraded == ()


def test_an_outcome_can_be_logged_as_json() -> None:
    logged = Outcome(Response(id="r", output=[message([TEXT])])).to_dict()
    assert json.loads(json.dumps(logged))["output"] == [message([TEXT])]
    assert logged["id"] == "r"


def test_text_and_refusals_are_spoken_in_order() -> None:
    assert spoken_text(message([REFUSAL, TEXT])) == "noyes"
    assert spoken_text({"type": "reasoning", "content": [TEXT]}) == ""


def test_a_thought_inside_a_message_is_not_spoken() -> None:
    thought = {"type": "reasoning_text", "text": "hm"}
    assert spoken_text(message([thought, TEXT, thought])) == "yes"
    assert spoken_text(message("plain")) == "plain"


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ([{"text": "a"}, {"text": ""}, {"text": "b"}], "a\n\nb"),
        ([{"text": "\ud83d"}, 5], "\ufffd"),
        ([], ""),
        ("plain", "plain"),
        (None, ""),
    ],
)
def test_the_parts_of_a_summary_have_a_blank_line_between_them(summary: Any, said: str) -> None:
    assert thought_text({"type": "reasoning", "summary": summary}, "summary") == said


def test_the_parts_of_raw_reasoning_are_one_text() -> None:
    item = {"type": "reasoning", "content": [{"text": "a"}, {"text": "b"}]}
    assert thought_text(item, "content") == "ab"


@pytest.mark.parametrize("content", [None, "text", 5, [5, None]])
def test_content_of_an_odd_shape_has_no_parts(content: Any) -> None:
    assert parts_of(message(content)) == []


def test_notes_are_those_of_all_parts() -> None:
    odd = {"type": "output_text", "annotations": "none"}
    assert notes_of(message([TEXT, odd, REFUSAL, TEXT])) == [{"url": "u"}, {"url": "u"}]
