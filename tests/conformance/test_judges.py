"""The judges are awake: each mistake that real servers make is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from antiphon.protocol.codec import encode_event, encode_response
from antiphon.protocol.events import OutputItemDone, OutputTextDelta
from antiphon.protocol.response import Reasoning, Response, Usage
from tests.conformance.judges import SPEC, Json, event_problems, response_problems
from tests.conformance.wire import read_frames

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "status": "completed",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": "{}",
}
THOUGHT: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}
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


@pytest.mark.skipif(not SPEC.exists(), reason="the OpenAPI file is not beside the project")
def test_null_for_what_may_only_be_absent_is_noticed() -> None:
    event = OutputItemDone(sequence_number=1, output_index=0, item=THOUGHT)
    found = event_problems(json.loads(encode_event(event)), "open-responses")
    assert [problem.split(":")[0] for problem in found] == ["schema"]


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
