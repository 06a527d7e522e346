"""The answer of an editor's model as deltas."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from antiphon.protocol.deltas import (
    CallMade,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import ContextOverflow
from antiphon.wires.host.answers import read_answer
from antiphon.wires.host.faults import fault_of
from antiphon.wires.host.messages import ErrorCode, Fault
from antiphon.wires.host.stream import HostStream
from tests.wires.host.answers import CLOSED, Json, done, failed, lines, parts, read, text


def think(value: str, thought_id: str | None = None, **metadata: Any) -> Json:
    return {"type": "thinking", "value": value, "id": thought_id, "metadata": metadata}


def call(**fields: Any) -> Json:
    return {"type": "tool_call", "call_id": "c1", "name": "look", "input": {}} | fields


def data(content: bytes, mime: str) -> Json:
    return {"type": "data", "mime": mime, "data": base64.b64encode(content).decode()}


def test_text_and_a_call_and_the_end() -> None:
    answer = lines(parts(text("Look"), text("ing.")), parts(call(input={"a": [1, None]})), done())
    deltas, reader = read(answer)
    made = CallMade("look", '{"a":[1,null]}', "c1")
    assert deltas == [TextGrew("Look"), TextGrew("ing."), made, Stopped("stop")]
    assert reader.is_done and reader.fault is None


def test_state_of_a_thought_follows_its_last_piece() -> None:
    deltas, _ = read(lines(parts(think("Hm", "t1"), think("…", sig="x"), text("Yes.")), done()))
    assert deltas[:2] == [ReasoningGrew("Hm"), ReasoningGrew("…")]
    state = deltas[2]
    assert isinstance(state, NativeState) and (state.wire, state.account) == ("host", "me")
    assert json.loads(state.data) == {"model": "m", "id": "t1", "metadata": {"sig": "x"}}


def test_another_id_is_another_thought() -> None:
    deltas, _ = read(lines(parts(think("One", "t1"), think("Two", "t2"), text("x")), done()))
    kinds = [type(delta) for delta in deltas[:4]]
    assert kinds == [ReasoningGrew, NativeState, ReasoningGrew, NativeState]
    assert deltas[2] == ReasoningGrew("Two", "item")


def test_a_thought_without_anything_to_return_has_no_state() -> None:
    deltas, _ = read(lines(parts(think("Hm")), done()))
    assert deltas == [ReasoningGrew("Hm"), Stopped("stop")]


def test_an_image_is_an_item_and_text_data_is_text() -> None:
    deltas, _ = read(
        lines(parts(data(b"png", "image/png"), data(b"hi", "text/plain; charset=utf-8")), done())
    )
    image = deltas[0]
    assert isinstance(image, ItemPassed)
    assert image.item["result"] == base64.b64encode(b"png").decode()
    assert deltas[1] == TextGrew("hi")


def test_marks_of_the_editor_are_no_content_and_other_data_is_reported() -> None:
    marks = [data(b"1", "stateful_marker"), data(b"1", "cache_control")]
    other = data(b"1", "application/x-thing")
    deltas, _ = read(lines(parts(*marks, other, other, text("x")), done()))
    notes = [delta.what for delta in deltas if isinstance(delta, Reported)]
    assert notes == ["content (data, application/x-thing): a part that is left out"]


@pytest.mark.parametrize("is_part", [True, False])
def test_usage_comes_before_the_end(is_part: bool) -> None:
    counted = {"prompt_tokens": 7, "completion_tokens": 2} | {
        "prompt_tokens_details": {"cached_tokens": 3}
    }
    usage = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9, "cached_tokens": 3}
    first = parts(data(json.dumps(counted).encode(), "usage")) if is_part else parts(text("x"))
    deltas, _ = read(lines(first, done() if is_part else done(usage=usage)))
    known = deltas[-2]
    assert isinstance(known, UsageKnown)
    assert (known.usage.input_tokens, known.usage.total_tokens) == (7, 9)
    assert known.usage.input_tokens_details.cached_tokens == 3


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9, "is_estimate": True},
        {"input_tokens": -7, "output_tokens": 2, "total_tokens": 9},
        {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
    ],
)
def test_what_was_not_counted_is_not_usage(usage: Json | None) -> None:
    deltas, _ = read(lines(parts(text("x")), done(usage=usage)))
    assert deltas == [TextGrew("x"), Stopped("stop")]


@pytest.mark.parametrize(
    ("reason", "stop", "is_noted"),
    [
        ("max_output_tokens", "length", False),
        ("content_filter", "content_filter", False),
        ("tired", "length", True),
        (None, "length", True),
    ],
)
def test_reasons_of_an_early_end(reason: str | None, stop: Any, is_noted: bool) -> None:
    deltas, _ = read(lines(done(status="incomplete", incomplete_reason=reason)))
    assert deltas[-1] == Stopped(stop)
    assert any(isinstance(delta, Reported) for delta in deltas) is is_noted


def test_refusal_and_losses_of_the_extension() -> None:
    deltas, _ = read(lines(done(refusal="I cannot.", degraded=["a: lost", "a: lost"])))
    assert deltas == [RefusalGrew("I cannot."), Reported("a: lost"), Stopped("stop")]


def test_an_answer_that_is_cut_keeps_what_came() -> None:
    deltas, reader = read(lines(parts(text("Half"), think("hm", "t1"))))
    assert deltas[:2] == [TextGrew("Half"), ReasoningGrew("hm")]
    assert isinstance(deltas[2], NativeState)
    assert reader.fault is CLOSED and not reader.is_done


def test_nothing_is_read_after_the_end() -> None:
    deltas, reader = read(lines(done(), parts(text("late")), failed("internal")))
    assert deltas == [Stopped("stop")] and reader.fault is None


@pytest.mark.parametrize("has_spoken", [True, False])
def test_a_block_in_mid_answer_is_a_filter_and_an_error_before(has_spoken: bool) -> None:
    before = [parts(text("Well"))] if has_spoken else []
    deltas, reader = read(lines(*before, failed("blocked", "Off topic.")))
    if has_spoken:
        assert deltas[-1] == Stopped("content_filter") and reader.fault is None
    else:
        assert reader.fault is not None and reader.fault.code == "content_policy"


@pytest.mark.parametrize(
    "message",
    [
        parts({"type": "tool_call", "call_id": "c", "name": "", "input": {}}),
        parts({"type": "tool_call", "call_id": "c", "name": "x", "input": "no object"}),
        parts({"type": "text"}),
        parts({"value": "no type"}),
        {"type": "parts", "id": 1, "parts": "none"},
        {"type": "counted", "id": 1, "tokens": [1]},
        {"type": "poem", "id": 1},
        {"type": "done", "id": 1, "usage": "much"},
    ],
)
def test_what_is_not_of_the_protocol_is_a_fault_after_what_came(message: Json) -> None:
    deltas, reader = read(lines(parts(text("Half")), message, done()))
    assert deltas == [TextGrew("Half")]
    assert reader.fault is not None and reader.fault.code == "upstream_invalid_response"


@pytest.mark.parametrize("beside", [b"", b'{"type":"smell"},'])
def test_numbers_of_arguments_are_not_rounded(beside: bytes) -> None:
    line = b'{"type":"parts","id":1,"parts":[%b{"type":"tool_call","call_id":"c","name":"x",'
    deltas, _ = read(line % beside + b'"input":{"n": 123456789012345678901234567890.10}}]}\n')
    made = [delta.said for delta in deltas if isinstance(delta, CallMade)]
    assert made == ['{"n":123456789012345678901234567890.10}']


def test_an_unknown_part_is_named_and_the_others_are_read() -> None:
    deltas, reader = read(
        lines(parts(text("a"), {"type": "smell", "of": "rose"}, text("b")), done())
    )
    assert [delta.text for delta in deltas if isinstance(delta, TextGrew)] == ["a", "b"]
    assert any(isinstance(delta, Reported) and "smell" in delta.what for delta in deltas)
    assert reader.fault is None


def test_an_answer_without_end_is_a_fault() -> None:
    reader = HostStream(max_output=10)
    message = read_answer(lines(parts(text("x" * 6)))[:-1])
    assert reader.feed(message) == [TextGrew("x" * 6)]
    assert reader.feed(message) == []
    assert reader.fault is not None and "does not end" in reader.fault.message


@pytest.mark.parametrize("code", ErrorCode.__args__)  # type: ignore[attr-defined]  # a Literal
def test_every_code_has_an_error(code: ErrorCode) -> None:
    error = fault_of(Fault(code=code, message="No.", action="Wait.", retry_after=3))
    assert error.message == "the editor: No; Wait"
    assert isinstance(error, ContextOverflow) is (code == "context_too_long")
    assert error.is_slip is (code == "malformed_call")
    assert error.status >= 400 and error.code
