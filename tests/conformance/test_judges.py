"""The judges notice each mistake that real servers make, with and without the document.

A clone without the OpenAPI document judges by `openresponses-types` alone. The planted events here
must be found by the package; where the document is present, the two are compared on every field of
every event.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings

from antiphon.protocol.codec import encode_event, encode_response
from antiphon.protocol.events import KnownEvent, OutputItemDone, OutputTextDelta
from antiphon.protocol.response import Reasoning, Response, Usage
from tests.conformance.examples import EXAMPLES
from tests.conformance.judges import (
    DOCUMENT,
    OPEN_EVENT_TYPES,
    WITHOUT_DOCUMENT,
    Json,
    event_problems,
    open_responses_problems,
    response_problems,
)
from tests.conformance.mistakes import mistakes
from tests.conformance.wire import read_frames

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": "{}",
}
THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "summary": []}
TEXT_PART: Json = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
MESSAGE: Json = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "content": [TEXT_PART],
}
FRAME = b'event: a\ndata: {"type":"a"}\n\n'
DONE = b"data: [DONE]\n\n"


def _body() -> Json:
    response = Response(
        id="resp_1",
        created_at=1,
        completed_at=2,
        status="completed",
        model="m",
        reasoning=Reasoning(),
        usage=Usage(),
        output=[dict(CALL)],
    )
    return dict(json.loads(encode_response(response)))


def _drop(*path: str) -> Callable[[Json], object]:
    def plant(body: Json) -> object:
        for step in path[:-1]:
            body = body[step]
        return body.pop(path[-1])

    return plant


MISTAKES: dict[str, Callable[[Json], object]] = {
    "no completed_at": _drop("completed_at"),
    "no tools": _drop("tools"),
    "no penalty": _drop("presence_penalty"),
    "no cached_tokens": _drop("usage", "input_tokens_details", "cached_tokens"),
    "a float for a time": lambda body: body.update(created_at=1.5),
    "a call without its id": lambda body: body["output"][0].pop("id"),
    "a call without a name": lambda body: body["output"][0].pop("name"),
    "an unknown item": lambda body: body["output"].append({"type": "nothing", "id": "x"}),
    "a null temperature": lambda body: body.update(temperature=None),
    "a tool without strict": lambda body: body["tools"].append({"type": "function", "name": "f"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_response_is_noticed(mistake: str) -> None:
    body = _body()
    assert response_problems(body, "open-responses") == []
    MISTAKES[mistake](body)
    assert response_problems(body, "open-responses") != []


@pytest.mark.parametrize(
    "plant",
    [
        _drop("usage", "input_tokens_details", "cache_write_tokens"),
        _drop("parallel_tool_calls"),
        lambda body: body.update(status="done"),
        lambda body: body["output"][0].pop("call_id"),
    ],
    ids=["no cache_write_tokens", "no parallel_tool_calls", "unknown status", "no call_id"],
)
def test_a_mistake_in_a_response_is_noticed_by_the_sdk(plant: Callable[[Json], object]) -> None:
    body = _body()
    assert response_problems(body, "openai") == []
    plant(body)
    assert response_problems(body, "openai") != []


def _text_delta() -> Json:
    event = OutputTextDelta(
        sequence_number=1, item_id="m", output_index=0, content_index=0, delta="x", logprobs=[]
    )
    return dict(json.loads(encode_event(event, "open-responses")))


def _item_done(item: Json) -> Json:
    event = OutputItemDone(sequence_number=1, output_index=0, item=item)
    return dict(json.loads(encode_event(event, "open-responses")))


PLANTED_EVENTS: dict[str, Json] = {
    "null for an optional text": _text_delta() | {"obfuscation": None},
    "null for an optional list": _text_delta() | {"logprobs": None},
    "null inside an item": _item_done(THOUGHT | {"encrypted_content": None}),
    "null inside a part of an item": _item_done(
        MESSAGE | {"content": [{**TEXT_PART, "logprobs": None}]}
    ),
    "no text in a part": _item_done(MESSAGE | {"content": [{"type": "output_text"}]}),
    "an unknown status": _item_done(CALL | {"status": "done"}),
    "arguments as an object": _item_done(CALL | {"arguments": {}}),
    "no index": {key: value for key, value in _text_delta().items() if key != "output_index"},
    "a fraction for an index": _text_delta() | {"content_index": 0.5},
    "null for a required field": _text_delta() | {"delta": None},
}


def _judges(problems: list[str]) -> set[str]:
    return {problem.partition(":")[0] for problem in problems}


@pytest.mark.parametrize("item", [CALL, THOUGHT, MESSAGE], ids=lambda item: item["type"])
def test_package_accepts_a_correct_event(item: Json) -> None:
    assert event_problems(_item_done(item), "open-responses") == []


@pytest.mark.parametrize("planted", PLANTED_EVENTS)
def test_package_finds_a_planted_mistake_without_the_document(planted: str) -> None:
    assert "package" in _judges(event_problems(PLANTED_EVENTS[planted], "open-responses"))


@pytest.mark.skipif(DOCUMENT is None, reason=WITHOUT_DOCUMENT)
@pytest.mark.parametrize("planted", PLANTED_EVENTS)
def test_document_finds_the_same_planted_mistake(planted: str) -> None:
    assert "document" in _judges(event_problems(PLANTED_EVENTS[planted], "open-responses"))


@pytest.mark.slow
@pytest.mark.skipif(DOCUMENT is None, reason=WITHOUT_DOCUMENT)
@pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)
def test_package_finds_every_mistake_that_the_document_finds(cls: type[KnownEvent]) -> None:
    missed: list[str] = []

    @settings(max_examples=5, database=None, phases=[Phase.generate])
    @given(EXAMPLES[cls])
    def compare(event: KnownEvent) -> None:
        body = json.loads(encode_event(event, "open-responses"))
        if body["type"] not in OPEN_EVENT_TYPES:
            return
        missed.extend(
            name
            for name, wrong in mistakes(body)
            if _judges(event_problems(wrong, "open-responses")) == {"document"}
        )

    compare()
    assert missed == []


def test_param_of_a_websocket_error_may_be_null_or_absent() -> None:
    error = {"code": "server_error", "message": "It broke."}
    for variant in (error, error | {"param": None}, error | {"param": "model"}):
        body = {"type": "error", "status": 500, "error": variant}
        assert open_responses_problems("WebSocketErrorEvent", body) == []


def test_a_number_in_quotes_is_noticed() -> None:
    event = OutputTextDelta(
        sequence_number=1, item_id="m", output_index=0, content_index=0, delta="x"
    )
    body = json.loads(encode_event(event)) | {"sequence_number": "1"}
    assert event_problems(body, "openai") != []
    assert event_problems(body, "open-responses") != []


def test_a_name_of_the_other_dialect_is_noticed() -> None:
    event = {"type": "response.reasoning.delta", "sequence_number": 1}
    assert event_problems(event, "openai") == ["sdk: there is no event 'response.reasoning.delta'"]


def test_a_proper_stream_is_read() -> None:
    assert read_frames(FRAME + FRAME + DONE) == [{"type": "a"}, {"type": "a"}]


@pytest.mark.parametrize(
    "body",
    [
        FRAME,
        FRAME + DONE + DONE,
        FRAME + DONE + FRAME,
        FRAME.replace(b"\n", b"\r\n") + DONE,
        b"id: 1\n" + FRAME + DONE,
        b": hello\n\n" + FRAME + DONE,
        b'event: b\ndata: {"type":"a"}\n\n' + DONE,
        b'data: {"type":"a"}\n\n' + DONE,
        b'event: a\ndata: {"type":\ndata: "a"}\n\n' + DONE,
        FRAME + b"data: [DONE]",
    ],
)
def test_a_byte_out_of_place_is_noticed(body: bytes) -> None:
    with pytest.raises(AssertionError):
        read_frames(body)
