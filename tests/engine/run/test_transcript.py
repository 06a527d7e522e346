"""What an answer holds, put before the model that is asked again."""

from __future__ import annotations

from typing import Any, Final

import pytest

from antiphon.engine.run.call_checker import Rejected
from antiphon.engine.run.transcript import Transcript, mark_of
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.deltas import (
    CallGrew,
    CallMade,
    CallOpened,
    NativeState,
    ReasoningGrew,
    TextGrew,
)
from antiphon.protocol.native_state import state_of

COUNT: Final = {"type": "function", "name": "count", "parameters": {"type": "object"}}
SHELL: Final = {"type": "shell"}


def rejected(tool: dict[str, Any], said: str, call_id: str | None = None) -> Rejected:
    toolbox, _ = gather_tools([tool])
    return Rejected(toolbox.offers[0], call_id, said, "It is bad.")


def test_nothing_said_is_nothing_to_show() -> None:
    assert Transcript().items() == []


def test_thoughts_and_text_come_before_the_calls() -> None:
    transcript = Transcript()
    for delta in (TextGrew("a"), ReasoningGrew("hm"), ReasoningGrew("m"), TextGrew("b")):
        transcript.note(delta)

    thought, text = transcript.items()

    assert thought["content"] == [{"type": "reasoning_text", "text": "hmm"}]
    assert text["content"] == transcript.text == "ab"


def test_native_state_ends_its_thought_and_goes_back_with_it() -> None:
    transcript = Transcript()
    first, second = NativeState("messages", b"1"), NativeState("messages", b"2")
    for delta in (ReasoningGrew("a"), ReasoningGrew("b"), first, second, ReasoningGrew("c")):
        transcript.note(delta)

    items = transcript.items()

    assert [item.get("content") for item in items] == [
        [{"type": "reasoning_text", "text": "ab"}],
        None,
        [{"type": "reasoning_text", "text": "c"}],
    ]
    assert [state_of(item) for item in items] == [first, second, None]


def test_native_state_of_a_call_stands_between_the_text_and_the_calls() -> None:
    transcript = Transcript()
    state = NativeState("gemini", b"s", "next")
    for delta in (TextGrew("a"), state, CallMade("count", "{}", "x", alias="count")):
        transcript.note(delta)

    kinds = [item["type"] for item in transcript.items()]

    assert kinds == ["message", "reasoning", "function_call", "function_call_output"]
    assert state_of(transcript.items()[1]) == state


def test_all_calls_come_before_all_that_is_said_of_them() -> None:
    transcript = Transcript()
    transcript.note(CallMade("count", "{}", "a", alias="count"))

    kinds = [item["type"] for item in transcript.items([rejected(COUNT, '{"n":1}', "b")])]

    assert kinds == ["function_call"] * 2 + ["function_call_output"] * 2


def test_arguments_are_those_of_their_own_call_even_if_a_key_is_used_twice() -> None:
    transcript = Transcript()
    for text in ("1", "2"):
        transcript.note(CallOpened(0, "count", alias="count"))
        transcript.note(CallGrew(0, text))
    transcript.note(CallGrew(7, "of no call"))

    assert transcript.calls_made() == {mark_of("count", "1"), mark_of("count", "2")}


def test_ids_that_the_model_gave_twice_or_not_at_all_are_made() -> None:
    transcript = Transcript()
    for call_id in ("a", "a", None, "call_3"):
        transcript.note(CallMade("count", "{}", call_id, alias="count"))
    wrong = [rejected(COUNT, "{}", "a")]

    ids = [item["call_id"] for item in transcript.items(wrong)]

    assert len(set(ids)) == 5
    assert ids[:5] == ids[5:]
    assert {"a", "call_3"} < set(ids)


@pytest.mark.parametrize("text", ['{"n":', '"n"', "[1]"])
def test_arguments_that_no_server_could_read_are_quoted(text: str) -> None:
    call, complaint = Transcript().items([rejected(COUNT, text)])

    assert call["arguments"] == ""
    assert text in complaint["output"]
    assert complaint["output"].endswith("It is wrong: It is bad. Call again.")


def test_an_object_that_a_call_can_hold_is_held() -> None:
    call, complaint = Transcript().items([rejected(SHELL, '{"commands":["ls"]}')])

    assert call["action"]["commands"] == ["ls"]
    assert "ls" not in complaint["output"]


def test_two_calls_are_the_same_however_their_json_is_written() -> None:
    assert mark_of("f", '{"a":1,"b":2}') == mark_of("f", '{ "b": 2, "a": 1 }')
    assert mark_of("f", "2 + 2") != mark_of("f", "2 + 3")
    assert mark_of("f", "{}") != mark_of("g", "{}")
