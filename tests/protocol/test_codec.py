"""JSON in and out: what we know is typed, what we do not know survives, in both dialects."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.protocol.codec import (
    DONE,
    Dialect,
    decode_event,
    decode_event_strictly,
    decode_events,
    decode_response,
    decode_response_strictly,
    encode_all_sse,
    encode_event,
    encode_item,
    encode_response,
    encode_sse,
    read_event,
    response_object,
)
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    EVENT_CLASSES,
    ErrorEvent,
    Event,
    OutputItemDone,
    OutputTextDelta,
    ReasoningTextDelta,
    ResponseCompleted,
    ResponseCreated,
    UnknownEvent,
)
from antiphon.protocol.response import Failure, IncompleteDetails, Response, Usage
from antiphon.protocol.sse import SseDecoder

DIALECTS: list[Dialect] = ["openai", "open-responses"]

# A value for every field that some event has.
FIELDS: dict[str, Any] = {
    "sequence_number": 7,
    "response": {"id": "resp_1", "status": "in_progress"},
    "output_index": 1,
    "item": {"id": "x", "type": "acme:thing", "deep": {"list": [1, None, "a"]}},
    "item_id": "msg_1",
    "content_index": 2,
    "summary_index": 3,
    "part": {"type": "acme:part", "more": True},
    "delta": 'a\u2028"\\\U0001f600',
    "text": "text",
    "refusal": "no",
    "arguments": "{}",
    "input": "ls",
    "annotation_index": 0,
    "annotation": {"type": "url_citation", "url": "https://a.example/"},
    "logprobs": [{"token": "a"}],
    "partial_image_index": 1,
    "partial_image_b64": "aGk=",
    "size": "1024x1024",
    "message": "broken",
    "code": "server_error",
    "param": None,
}


def delta(text: str = "hi", **fields: Any) -> OutputTextDelta:
    place: dict[str, Any] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return OutputTextDelta(sequence_number=3, delta=text, **place, **fields)


def reasoning() -> ReasoningTextDelta:
    return ReasoningTextDelta(
        sequence_number=3, item_id="rs_1", output_index=0, content_index=0, delta="hm"
    )


def object_of(event: Event, dialect: Dialect = "openai") -> dict[str, Any]:
    """The event as a reader of the wire sees it."""
    value: dict[str, Any] = msgspec.json.decode(encode_event(event, dialect))
    return value


def fields_of(kind: str) -> dict[str, Any]:
    """A JSON object for an event of this type, with all of its fields we have a value for."""
    names = EVENT_CLASSES[kind].__struct_encode_fields__
    return {"type": kind} | {name: FIELDS[name] for name in names if name in FIELDS}


@pytest.mark.requirement("RFC016-types")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", [kind for kind in EVENT_CLASSES if kind != "error"])
def test_every_event_survives_a_round_trip(kind: str, dialect: Dialect) -> None:
    event = read_event(fields_of(kind))
    assert decode_event(encode_event(event, dialect)) == event


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("kind", EVENT_CLASSES)
def test_unknown_fields_of_every_event_survive(kind: str, dialect: Dialect) -> None:
    told = fields_of(kind) | {"acme": {"a": [1]}}
    assert object_of(decode_event(msgspec.json.encode(told)), dialect)["acme"] == {"a": [1]}


@pytest.mark.parametrize("kind", EVENT_CLASSES)
def test_the_fast_and_the_slow_way_read_the_same(kind: str) -> None:
    told = fields_of(kind)
    assert decode_event(msgspec.json.encode(told)) == read_event(told)


def test_text_is_read_like_bytes() -> None:
    data = encode_event(delta("wörd"))
    assert decode_event(data.decode()) == decode_event(data)


# What we do not know.


@pytest.mark.parametrize("dialect", DIALECTS)
def test_unknown_events_come_out_as_they_came_in(dialect: Dialect) -> None:
    told = {"type": "acme:progress", "sequence_number": 4, "deep": {"list": [1, None]}}
    event = decode_event(msgspec.json.encode(told))
    assert event == UnknownEvent("acme:progress", told)
    assert object_of(event, dialect) == told


@pytest.mark.parametrize(
    ("fields", "number"),
    [({"sequence_number": 4}, 4), ({}, None), ({"sequence_number": "4"}, None)],
)
def test_an_unknown_event_may_have_a_number(fields: dict[str, Any], number: int | None) -> None:
    assert read_event({"type": "acme:x"} | fields).sequence_number == number


def test_unknown_items_keep_all_their_fields() -> None:
    item = {"id": "x", "type": "acme:thing", "nothing": None, "deep": {"list": [1, {"a": 2}]}}
    event = OutputItemDone(sequence_number=0, output_index=0, item=item)
    again = decode_event(encode_event(event))
    assert isinstance(again, OutputItemDone)
    assert again.item == item


@pytest.mark.parametrize("dialect", DIALECTS)
def test_unknown_fields_of_a_response_survive(dialect: Dialect) -> None:
    response = decode_response(b'{"id":"r","acme":{"a":[1]}}')
    assert response_object(response, dialect)["acme"] == {"a": [1]}


def test_unknown_fields_of_a_response_within_an_event_survive() -> None:
    told = {"type": "response.created", "sequence_number": 0, "response": {"id": "r", "acme": 1}}
    assert object_of(decode_event(msgspec.json.encode(told)))["response"]["acme"] == 1


def test_what_was_kept_never_goes_out_under_our_own_name() -> None:
    told = fields_of("response.output_text.delta") | {"acme": 1}
    assert b"$extra" not in encode_event(decode_event(msgspec.json.encode(told)))


# What is left out.


@pytest.mark.parametrize(
    ("field", "value"),
    [("sequence_number", -1), ("item_id", ""), ("output_index", -1), ("content_index", -1)],
)
@pytest.mark.parametrize("is_null", [True, False])
def test_a_place_that_is_missing_or_null_reads_as_nowhere(
    field: str, value: object, is_null: bool
) -> None:
    told = object_of(delta())
    del told[field]
    if is_null:
        told[field] = None
    assert getattr(decode_event(msgspec.json.encode(told)), field) == value


def test_an_item_that_is_null_reads_as_empty() -> None:
    event = decode_event(b'{"type":"response.output_item.added","output_index":0,"item":null}')
    assert object_of(event)["item"] == {}


def test_a_response_of_nothing_but_an_id_is_a_response() -> None:
    assert decode_response(b'{"id":"r"}') == Response(id="r")


def test_half_an_emoji_is_read() -> None:
    event = decode_event(b'{"type":"response.output_text.delta","delta":"\\ud83d"}')
    assert isinstance(event, OutputTextDelta)
    assert event.delta == "\ud83d"


def test_half_a_character_in_any_other_field_is_replaced() -> None:
    data = b'{"type":"error","code":"\\ud83d","message":"a\\ud83d\\ude00\\ud83d","x":["\\ude00"]}'
    event = decode_event(data)
    assert isinstance(event, ErrorEvent)
    assert (event.code, event.message) == ("\ufffd", "a\U0001f600\ufffd")
    assert encode_event(event)
    odd = b'{"id":"resp_1","status":"\\ud83d","output":[{"type":"message","id":"\\ud83d"}]}'
    assert encode_response(decode_response(odd))


# The dialects.


def test_raw_reasoning_has_a_name_in_each_dialect() -> None:
    names = [object_of(reasoning(), dialect)["type"] for dialect in DIALECTS]
    assert names == ["response.reasoning_text.delta", "response.reasoning.delta"]


@pytest.mark.requirement("RFC22-reasoning-events")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("response.reasoning.delta", "response.reasoning_text.delta"),
        ("response.reasoning_summary.delta", "response.reasoning_summary_text.delta"),
    ],
)
def test_every_name_of_reasoning_is_read(name: str, kind: str) -> None:
    assert decode_event(msgspec.json.encode(fields_of(kind) | {"type": name})) == read_event(
        fields_of(kind)
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_name_of_a_frame_is_the_type_of_its_event(dialect: Dialect) -> None:
    name, data, *rest = encode_sse(reasoning(), dialect).split(b"\n")
    assert rest == [b"", b""]
    assert name.removeprefix(b"event: ").decode() == object_of(reasoning(), dialect)["type"]
    assert data == b"data: " + encode_event(reasoning(), dialect)


def test_the_frame_of_any_text_is_one_line_of_data() -> None:
    assert encode_sse(delta("a\r\n\n\u2028b")).count(b"\n") == 3


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "events",
    [
        [],
        [delta("a")],
        [delta("a\nb"), delta("\u2028"), delta("c", logprobs=None)],
        [delta("a"), delta("b", extra={}), delta("c", extra={"acme": 1})],
        [delta("a"), reasoning(), delta("b")],
        [reasoning(), reasoning()],
        [UnknownEvent("acme", {"a": 1}), UnknownEvent("acme", {"a": 2})],
    ],
    ids=lambda events: f"{len(events)}",
)
def test_frames_written_together_are_those_written_alone(
    events: list[Event], dialect: Dialect
) -> None:
    alone = [encode_sse(event, dialect) for event in events]
    assert encode_all_sse(events, dialect) == b"".join(alone)
    assert alone == [
        b"event: %b\ndata: %b\n\n"
        % (object_of(event, dialect)["type"].encode(), encode_event(event, dialect))
        for event in events
    ]


def test_the_end_of_a_stream_is_a_frame() -> None:
    assert DONE == b"data: [DONE]\n\n"


def test_an_error_is_flat_and_nested_for_openai() -> None:
    event = ErrorEvent(sequence_number=1, message="broken", code="c", kind="server_error")
    assert object_of(event) == {
        "type": "error",
        "sequence_number": 1,
        "message": "broken",
        "code": "c",
        "param": None,
        "error": {"type": "server_error", "message": "broken", "code": "c", "param": None},
    }


def test_only_the_nested_error_carries_the_detail() -> None:
    event = ErrorEvent(sequence_number=1, message="broken", detail="broken (response r)")
    told = object_of(event)
    assert (told["message"], told["error"]["message"]) == ("broken", "broken (response r)")
    assert object_of(event, "open-responses")["error"]["message"] == "broken (response r)"


def test_a_nested_error_that_adds_to_the_flat_one_is_kept() -> None:
    event = ErrorEvent(sequence_number=1, message="m", kind="server_error", detail="m (response r)")
    assert decode_event(encode_event(event)) == event


def test_an_error_is_nested_for_open_responses() -> None:
    event = ErrorEvent(sequence_number=1, message="broken", code="c", kind="model_error")
    assert object_of(event, "open-responses") == {
        "type": "error",
        "sequence_number": 1,
        "error": {"type": "model_error", "message": "broken", "code": "c", "param": None},
    }


@pytest.mark.requirement("RFC016-types-6")
@pytest.mark.parametrize(
    "fields",
    [
        {"code": "c", "message": "m", "param": None},
        {"code": "c", "message": "m"},
        {"error": {"code": "c", "message": "m", "param": None}},
        {"error": {"code": "c", "message": "m"}},
        {"error": {"code": "c", "message": "m"}, "code": "c", "message": "m", "param": None},
    ],
)
def test_every_form_of_an_error_is_read(fields: dict[str, Any]) -> None:
    assert read_event({"type": "error", "sequence_number": 1} | fields) == ErrorEvent(
        sequence_number=1, message="m", code="c"
    )


def test_a_nested_error_keeps_its_type() -> None:
    event = read_event({"type": "error", "error": {"type": "model_error", "message": "m"}})
    assert isinstance(event, ErrorEvent)
    assert event.kind == "model_error"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_survives_a_round_trip_but_for_its_type(dialect: Dialect) -> None:
    event = ErrorEvent(sequence_number=1, message="broken", code="c", param="p")
    again = decode_event(encode_event(event, dialect))
    assert msgspec.structs.replace(again, kind=msgspec.UNSET) == event


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"error": None},
        {"error": {"message": None}},
        {"message": None},
        {"error": {"message": None, "type": None}, "message": None},
    ],
)
def test_an_error_that_says_nothing_is_an_error(fields: dict[str, Any]) -> None:
    event = read_event({"type": "error"} | fields)
    assert isinstance(event, ErrorEvent)
    assert event.message == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "error", "code": 400, "message": "m"},
        {"type": "error", "error": {"code": 400, "message": "m"}},
        {"type": "error", "error": {"code": 400, "message": "m"}, "code": None},
        {"error": {"code": 400, "message": "m"}},
        {"error": {"code": "400", "message": "m"}, "type": None},
    ],
)
def test_the_code_of_an_error_may_be_a_number(fields: dict[str, Any]) -> None:
    event = decode_event(msgspec.json.encode(fields | {"sequence_number": 1}))
    assert event == ErrorEvent(sequence_number=1, message="m", code="400")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"error": {"message": "m", "code": "c", "param": "p", "type": "t"}},
            ("m", "c", "p", "t"),
        ),
        ({"error": "m"}, ("m", None, None, msgspec.UNSET)),
        ({"object": "error", "message": "m"}, ("m", None, None, msgspec.UNSET)),
        (
            {"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
            ("m", "400", None, "BadRequestError"),
        ),
        ({"error": {"message": {"why": ["m"]}}}, ('{"why": ["m"]}', None, None, msgspec.UNSET)),
    ],
)
def test_an_error_without_an_event_around_it_is_an_error(
    fields: dict[str, Any], said: tuple[object, ...]
) -> None:
    event = decode_event(msgspec.json.encode(fields))
    assert isinstance(event, ErrorEvent)
    assert (event.message, event.code, event.param, event.kind) == said
    assert event.sequence_number == -1


def test_open_responses_sees_only_function_tools() -> None:
    tools = [{"type": "web_search"}, {"type": "function", "name": "f"}]
    response = Response(id="r", tools=tools)
    seen = [response_object(response, dialect)["tools"] for dialect in DIALECTS]
    assert seen == [tools, tools[1:]]


def test_open_responses_sees_no_schema_in_the_echo() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    response = Response(id="r", text={"format": form, "verbosity": "low"})
    echoes = [response_object(response, dialect)["text"]["format"] for dialect in DIALECTS]
    assert [echo["schema"] for echo in echoes] == [{"type": "object"}, None]


def test_speaking_a_dialect_does_not_change_the_response() -> None:
    response = Response(id="r", tools=[{"type": "web_search"}])
    encode_response(response, "open-responses")
    assert response.tools == [{"type": "web_search"}]


@pytest.mark.requirement("RFC016-types-3")
@pytest.mark.parametrize("dialect", DIALECTS)
def test_required_fields_are_there_and_optional_ones_are_left_out(dialect: Dialect) -> None:
    body = msgspec.json.decode(encode_response(Response(id="r"), dialect))
    assert {"completed_at", "usage", "error", "metadata"} <= body.keys()
    assert not {"conversation", "user", "antiphon", "$extra"} & body.keys()


def test_an_item_is_encoded_as_it_is() -> None:
    assert encode_item({"type": "x", "null": None}) == b'{"type":"x","null":null}'


# What cannot be read.


@pytest.mark.requirement("22-C1")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "invalid_json"),
        (b"<html>", "invalid_json"),
        (b'{"type":"response.created"', "invalid_json"),
        (b'{"type":"\xff"}', "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"[]", "invalid_event"),
        (b"3", "invalid_event"),
        (b"{}", "invalid_event"),
        (b'{"type":3}', "invalid_event"),
        (b'{"error":null}', "invalid_event"),
        (b'{"error":[1]}', "invalid_event"),
        (b'{"type":"response.output_text.delta"}', "invalid_event"),
        (b'{"type":"response.output_text.delta","delta":3}', "invalid_event"),
        (b'{"type":"response.created"}', "invalid_event"),
        (b'{"type":"response.created","response":[]}', "invalid_event"),
        (b'{"type":"response.created","response":{"output":"hi"}}', "invalid_event"),
        (b'{"type":"response.output_item.done","item":[]}', "invalid_event"),
    ],
)
def test_what_is_no_event_is_a_broken_stream(data: bytes, code: str) -> None:
    with pytest.raises(BrokenStream) as caught:
        decode_event(data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"id":3}',
        b'{"status":"ok"}',
        b'{"error":{"message":"no"}}',
        b'{"id":"chatcmpl-1","object":"chat.completion","usage":{"prompt_tokens":1}}',
        b'{"id":"r","output":"hi"}',
        b'{"id":"r","output":{"type":"message"}}',
    ],
)
def test_what_is_no_response_is_a_broken_stream(data: bytes) -> None:
    with pytest.raises(BrokenStream):
        decode_response(data)


def test_a_created_event_holds_a_response() -> None:
    event = decode_event(b'{"type":"response.created","sequence_number":0,"response":{"id":"r"}}')
    assert event == ResponseCreated(sequence_number=0, response=Response(id="r"))


def test_counts_that_a_server_leaves_open_are_not_given() -> None:
    usage = {"input_tokens": 5, "output_tokens": None, "input_tokens_details": None}
    body = {"id": "resp_1", "usage": usage, "output": None, "model": None, "status": None}

    response = decode_response(msgspec.json.encode(body))

    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 0)
    assert response.usage.input_tokens_details.cached_tokens == 0
    assert (response.output, response.model) == ([], "")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_counts_we_do_not_know_survive(dialect: Dialect) -> None:
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0, "image_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3, "acme": {"a": 1}},
        "total_tokens": 12,
        "cost": 0.25,
    }
    event = {
        "type": "response.completed",
        "sequence_number": 3,
        "response": {"id": "resp_1", "usage": usage},
    }

    read = decode_event(msgspec.json.encode(event))

    assert isinstance(read, ResponseCompleted)
    again = msgspec.json.decode(encode_event(read, dialect))
    assert again["response"]["usage"] == usage
    assert msgspec.json.decode(encode_response(read.response, dialect))["usage"] == usage


# What foreign servers write otherwise.

MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "hi"}],
}
WHOLE: dict[str, Any] = {"id": "r", "status": "completed", "output": [MESSAGE]}

# A field as it came, and what stands for it: nothing of the answer is lost.
ODD: list[tuple[str, Any, Any]] = [
    ("completed_at", "2026-01-01T00:00:00Z", None),
    ("created_at", "yesterday", 0),
    ("metadata", [], {}),
    ("tools", [None], []),
    ("object", "realtime.response", "response"),
    ("incomplete_details", {"reason": 3}, None),
    ("reasoning", {"effort": "low", "summary": ["a"]}, None),
    ("instructions", ["a"], None),
    ("max_output_tokens", "inf", None),
    ("service_tier", {"x": 1}, "default"),
    ("text", "plain", {"format": {"type": "text"}}),
    ("tool_choice", 3, "auto"),
    ("usage", "none", None),
    ("error", True, None),
    ("conversation", 7, msgspec.UNSET),
    ("status", 3, "completed"),
    ("id", ["r"], ""),
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("name", "value", "default"), ODD)
def test_one_odd_field_does_not_lose_an_answer(
    name: str, value: object, default: object, dialect: Dialect
) -> None:
    response = decode_response(msgspec.json.encode(WHOLE | {name: value}))

    assert (response.status, response.output_text) == ("completed", "hi")
    assert getattr(response, name) == default
    assert msgspec.json.decode(encode_response(response, dialect))[name] == value


@pytest.mark.parametrize("dialect", DIALECTS)
def test_all_odd_fields_at_once_do_not_lose_an_answer(dialect: Dialect) -> None:
    odd = {name: value for name, value, _ in ODD}
    event = {"type": "response.completed", "sequence_number": 1, "response": WHOLE | odd}

    read = decode_event(msgspec.json.encode(event))

    assert isinstance(read, ResponseCompleted)
    assert read.response.output == [MESSAGE]
    assert {name: object_of(read, dialect)["response"][name] for name in odd} == odd


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("conversation", "conv_1", {"id": "conv_1"}),
        ("incomplete_details", "max_output_tokens", IncompleteDetails("max_output_tokens")),
        ("error", "boom", Failure(None, "boom")),
        ("error", {"code": 502, "message": "down"}, Failure("502", "down")),
        ("error", {"code": "c", "message": None}, Failure("c", "")),
        ("error", "", None),
        ("background", 0, False),
        ("top_logprobs", 0.0, 0),
        ("max_output_tokens", "100", 100),
        ("id", None, ""),
        ("id", 17, "17"),
    ],
)
def test_what_nearly_fits_is_made_to_fit(name: str, value: object, meant: object) -> None:
    response = decode_response(msgspec.json.encode(WHOLE | {name: value}))
    assert getattr(response, name) == meant
    assert response.extra is msgspec.UNSET


def test_whole_numbers_may_be_written_as_fractions() -> None:
    usage = {
        "input_tokens": 10.0,
        "output_tokens": 1.5,
        "total_tokens": "12",
        "input_tokens_details": {"cached_tokens": 4.0, "cache_write_tokens": "many"},
        "output_tokens_details": [],
    }
    response = decode_response(msgspec.json.encode(WHOLE | {"usage": usage}))

    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.total_tokens) == (10, 12)
    assert response.usage.output_tokens == 0
    assert response.usage.input_tokens_details.cached_tokens == 4
    written = msgspec.json.decode(encode_response(response))["usage"]
    assert written == usage | {"total_tokens": 12}


@pytest.mark.parametrize(
    "odd",
    [
        *({name: value} for name, value, _ in ODD),
        {"usage": {"input_tokens": 10.0}},
        {"usage": {"input_tokens_details": {"cached_tokens": "1"}}},
        {"conversation": "conv_1"},
        {"error": "boom"},
        {"output": [None]},
        {"id": None},
    ],
)
def test_a_judge_forgives_nothing(odd: dict[str, Any]) -> None:
    event = {"type": "response.completed", "sequence_number": 1, "response": WHOLE | odd}
    with pytest.raises(BrokenStream):
        decode_event_strictly(msgspec.json.encode(event))
    with pytest.raises(BrokenStream):
        decode_response_strictly(msgspec.json.encode(WHOLE | odd))


@pytest.mark.parametrize(
    "told",
    [
        object_of(delta("hi")) | {"item_id": 7},
        object_of(delta("hi")) | {"logprobs": "none"},
        {"error": {"message": "m"}},
    ],
)
def test_a_judge_forgives_no_event(told: dict[str, Any]) -> None:
    with pytest.raises(BrokenStream):
        decode_event_strictly(msgspec.json.encode(told))


def test_a_judge_knows_that_there_is_more_than_we_know() -> None:
    usage = {"input_tokens": 1, "input_tokens_details": {"acme": 1}, "cost": 2}
    told = WHOLE | {"acme": 1, "usage": usage}
    event = {"type": "response.completed", "sequence_number": 1, "acme": 1, "response": told}
    read = decode_event_strictly(msgspec.json.encode(event))
    assert read == decode_event(msgspec.json.encode(event))
    assert decode_response_strictly(msgspec.json.encode(told)).output == [MESSAGE]


def test_entries_of_output_that_are_no_objects_are_dropped() -> None:
    response = decode_response(msgspec.json.encode(WHOLE | {"output": [None, MESSAGE, "x", 3]}))
    assert response.output == [MESSAGE]


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("sequence_number", 3.0, 3),
        ("sequence_number", "soon", -1),
        ("output_index", "0", 0),
        ("output_index", [], -1),
        ("item_id", 7, ""),
        ("logprobs", "none", []),
        ("obfuscation", None, msgspec.UNSET),
    ],
)
def test_one_odd_field_does_not_lose_an_event(name: str, value: object, read: object) -> None:
    event = decode_event(msgspec.json.encode(object_of(delta("hi")) | {name: value}))
    assert isinstance(event, OutputTextDelta)
    assert (event.delta, getattr(event, name)) == ("hi", read)


def test_an_odd_field_of_an_event_is_written_back() -> None:
    told = object_of(delta("hi")) | {"logprobs": "none", "item_id": 7}
    assert object_of(decode_event(msgspec.json.encode(told))) == told


def test_the_response_of_an_event_may_lack_its_id() -> None:
    event = decode_event(b'{"type":"response.created","sequence_number":0,"response":{}}')
    assert event == ResponseCreated(sequence_number=0, response=Response(id=""))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"output": [MESSAGE]}, "completed"),
        ({"output": [], "usage": {"input_tokens": 1}}, "completed"),
        ({"output": [MESSAGE], "status": None}, "completed"),
        ({"output": [MESSAGE], "incomplete_details": {"reason": "x"}}, "incomplete"),
        ({"output": [MESSAGE], "error": {"message": "m"}}, "failed"),
        ({"error": "m"}, "failed"),
        ({"output": []}, "in_progress"),
        ({"output": [MESSAGE], "status": "queued"}, "queued"),
        ({"output": [MESSAGE], "status": "in_progress"}, "in_progress"),
    ],
)
def test_a_whole_answer_without_a_status_has_the_one_it_shows(
    fields: dict[str, Any], status: str
) -> None:
    assert decode_response(msgspec.json.encode({"id": "r"} | fields)).status == status


@pytest.mark.requirement("REQ-001.1", "REQ-001.2", "REQ-001.3", "REQ-001.4")
def test_the_example_of_an_answer_that_was_not_streamed_is_whole() -> None:
    call = {
        "id": "fc_1",
        "type": "function_call",
        "name": "get_weather",
        "call_id": "call_abc",
        "arguments": '{"location":"SF"}',
    }
    text = {"id": "msg_1", "type": "message", "content": [{"type": "text", "text": "Hello"}]}
    example = {
        "id": "resp_123",
        "object": "response",
        "model": "o3",
        "usage": {"input_tokens": 62, "output_tokens": 23, "total_tokens": 85},
        "output": [text, call],
    }
    response = decode_response(msgspec.json.encode(example))

    assert (response.status, response.output_text) == ("completed", "Hello")
    assert response.output[1] == call
    assert response.usage == Usage(input_tokens=62, output_tokens=23, total_tokens=85)


GROWN = OutputTextDelta(
    sequence_number=1, item_id="msg_1", output_index=0, content_index=0, delta="a"
)


GOOD = encode_sse(GROWN)
OTHER = encode_sse(msgspec.structs.replace(GROWN, delta="b\\n"))


@pytest.mark.parametrize(
    "lines",
    [
        GOOD,
        GOOD + OTHER,
        GOOD + OTHER + GOOD,
        OTHER + b'event: acme:thing\ndata: {"type":"acme:thing"}\n\n' + GOOD,
        b"data: " + encode_event(GROWN) + b"\n\n" + GOOD,
        GOOD + b": a comment\n\n" + OTHER,
        GOOD + b"event: response.output_text.delta\ndata: \n\n" + OTHER,
        GOOD + GOOD.replace(b'"delta":"a"', b'"delta":"a","new":1') + OTHER,
        GOOD + b'event: error\ndata: {"type":"error",\ndata: "message":"m"}\n\n',
        b"",
    ],
)
def test_many_events_at_once_are_the_events_one_by_one(lines: bytes) -> None:
    events: list[Event] = []

    assert not decode_events(SseDecoder().feed_lines(lines), events)

    frames = SseDecoder().feed(lines)
    assert events == [decode_event(frame.data) for frame in frames if frame.data]


def test_what_comes_before_the_end_mark_counts() -> None:
    events: list[Event] = []
    assert decode_events(SseDecoder().feed_lines(GOOD + DONE + GOOD), events)
    assert events == [GROWN]


def test_what_comes_before_a_broken_event_is_kept() -> None:
    events: list[Event] = []
    broken = b"event: response.output_text.delta\ndata: {nonsense\n\n"
    with pytest.raises(BrokenStream):
        decode_events(SseDecoder().feed_lines(GOOD + GOOD + broken + GOOD), events)
    assert events == [GROWN, GROWN]


def test_an_event_tells_its_type() -> None:
    assert GROWN.type == "response.output_text.delta"
    assert UnknownEvent("acme:thing", {}).type == "acme:thing"
