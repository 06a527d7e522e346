"""Our structs, held against models of the protocol that are not ours."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from antiphon.protocol.codec import (
    Dialect,
    decode_event,
    decode_response,
    encode_event,
    encode_response,
    encode_sse,
)
from antiphon.protocol.events import EVENT_CLASSES, KnownEvent, StageEvent, UnknownEvent
from antiphon.protocol.response import Response
from tests.conformance.examples import EXAMPLES, responses
from tests.conformance.judges import (
    OPEN_EVENT_TYPES,
    SDK_EVENT_TYPES,
    event_problems,
    response_problems,
)

DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
# OpenAI's own: in Open Responses there are no custom tools and no hosted items.
NOT_IN_OPEN = {
    "response.custom_tool_call_input.delta",
    "response.custom_tool_call_input.done",
    "response.code_interpreter_call_code.delta",
    "response.code_interpreter_call_code.done",
    "response.mcp_call_arguments.delta",
    "response.mcp_call_arguments.done",
    *(str(stage.__struct_config__.tag) for stage in get_args(StageEvent)),
}

few = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
every_class = pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)
both_dialects = pytest.mark.parametrize("dialect", DIALECTS)
extras = st.dictionaries(
    st.sampled_from(["acme:note", "brand_new", "x"]),
    st.none() | st.integers(0, 9) | st.just({"deep": [1, {"er": None}]}),
    min_size=1,
)


def test_there_is_an_example_of_every_class() -> None:
    assert set(EXAMPLES) == set(EVENT_CLASSES.values())


@pytest.mark.requirement("RFC016-types-6")
def test_every_event_of_open_responses_has_a_class() -> None:
    known = {
        json.loads(encode_event(_smallest(name), "open-responses"))["type"] for name in EXAMPLES
    }
    assert known - NOT_IN_OPEN == OPEN_EVENT_TYPES


@pytest.mark.requirement("RFC016-types-6")
def test_every_class_is_an_event_of_the_sdk() -> None:
    assert set(EVENT_CLASSES) <= SDK_EVENT_TYPES


@pytest.mark.requirement("RFC016-types", "RFC016-types-6", "RFC016-risk-1")
@every_class
@both_dialects
@few
@given(data=st.data())
def test_the_independent_models_accept_every_event(
    cls: type[KnownEvent], dialect: Dialect, data: st.DataObject
) -> None:
    event = data.draw(EXAMPLES[cls])
    written = json.loads(encode_event(event, dialect))
    if dialect == "open-responses" and written["type"] in NOT_IN_OPEN:
        return
    assert event_problems(written, dialect) == []


@pytest.mark.requirement("RFC016-types", "RFC016-types-3", "RFC016-risk-1")
@both_dialects
@few
@given(response=responses("completed", completed_at=st.integers(0, 2**31)))
def test_the_independent_models_accept_every_response(dialect: Dialect, response: Response) -> None:
    assert response_problems(json.loads(encode_response(response, dialect)), dialect) == []


@every_class
@few
@given(data=st.data())
def test_an_event_survives_the_wire(cls: type[KnownEvent], data: st.DataObject) -> None:
    event = data.draw(EXAMPLES[cls])
    said_again = decode_event(encode_event(event))
    assert said_again == event
    assert type(said_again) is cls


@every_class
@few
@given(data=st.data())
def test_an_event_survives_the_wire_of_open_responses(
    cls: type[KnownEvent], data: st.DataObject
) -> None:
    event = data.draw(EXAMPLES[cls])
    assert decode_event(encode_event(event, "open-responses")) == _without_schema(event)


@pytest.mark.requirement("RFC016-risk-1")
@every_class
@both_dialects
@few
@given(data=st.data(), extra=extras)
def test_fields_we_do_not_know_survive(
    cls: type[KnownEvent], dialect: Dialect, data: st.DataObject, extra: dict[str, Any]
) -> None:
    written = json.loads(encode_event(data.draw(EXAMPLES[cls]), dialect)) | extra
    if "response" in written:
        written["response"] |= extra
    read = decode_event(json.dumps(written))
    assert type(read) is cls
    assert json.loads(encode_event(read, dialect)) == written


@pytest.mark.requirement("RFC016-risk-1")
@few
@given(extra=extras)
def test_items_we_do_not_know_survive(extra: dict[str, Any]) -> None:
    item = {"type": "acme:telescope", "id": "tel_1", "status": "completed"} | extra
    event = {
        "type": "response.output_item.done",
        "sequence_number": 4,
        "output_index": 0,
        "item": item,
    }
    response = {"id": "resp_1", "object": "response", "output": [item]} | extra
    assert json.loads(encode_event(decode_event(json.dumps(event)))) == event
    again = json.loads(encode_response(decode_response(json.dumps(response).encode())))
    assert {key: again[key] for key in response} == response


@pytest.mark.requirement("RFC016-risk-1")
@both_dialects
@few
@given(extra=extras)
def test_events_we_do_not_know_survive(dialect: Dialect, extra: dict[str, Any]) -> None:
    event = {"type": "acme:telescope.moved", "sequence_number": 7} | extra
    read = decode_event(json.dumps(event))
    assert isinstance(read, UnknownEvent)
    assert json.loads(encode_event(read, dialect)) == event


@every_class
@both_dialects
@few
@given(data=st.data())
def test_the_frame_names_the_type_of_its_data(
    cls: type[KnownEvent], dialect: Dialect, data: st.DataObject
) -> None:
    frame = encode_sse(data.draw(EXAMPLES[cls]), dialect)
    first, second, *rest = frame.split(b"\n")
    assert rest == [b"", b""]
    assert first == b"event: " + json.loads(second.removeprefix(b"data: "))["type"].encode()


def _smallest(cls: type[KnownEvent]) -> KnownEvent:
    found: list[KnownEvent] = []

    @settings(max_examples=1, deadline=None, derandomize=True, database=None)
    @given(EXAMPLES[cls])
    def draw(event: KnownEvent) -> None:
        found.append(event)

    draw()
    return found[0]


def _without_schema(event: KnownEvent) -> KnownEvent:
    """Return the event as Open Responses can express it: the echo of a schema is null there."""
    response = getattr(event, "response", None)
    if not isinstance(response, Response) or response.text is None:
        return event
    form = response.text["format"]
    if form["type"] != "json_schema":
        return event
    text = response.text | {"format": form | {"schema": None}}
    return msgspec.structs.replace(event, response=msgspec.structs.replace(response, text=text))
