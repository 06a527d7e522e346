"""The log: what is packed comes back, is small, and damage is seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.protocol.codec import decode_response, encode_event, encode_sse
from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallOpened,
    Degraded,
    Delta,
    ItemPassed,
    ReasoningGrew,
    RefusalGrew,
    SummaryGrew,
    TextGrew,
    TierUsed,
)
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputTextDelta,
    ReasoningTextDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseQueued,
    UnknownEvent,
)
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.log import has_error_event, pack_events, packed_at, unpack_events
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Notes, Response, Usage
from tests.building import COUNTED, STOP, build, counting_mint

LOGS = Path(__file__).parent / "logs"
NOTE = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
LOGPROBS = ({"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []},)

SAID: list[Delta] = [
    SummaryGrew("so"),
    ReasoningGrew("hm"),
    ReasoningGrew("m"),
    TextGrew("one "),
    TextGrew("two", LOGPROBS),
    TextGrew(" \U0001f600\u2028\x00"),
    AnnotationAdded(NOTE),
    RefusalGrew("no"),
    RefusalGrew("pe"),
    CallOpened(0, "f", "call_f"),
    CallOpened(1, "g", "call_g"),
    CallGrew(0, "{"),
    CallGrew(1, "{"),
    CallGrew(1, "}"),
    CallGrew(0, "}"),
    ItemPassed({"type": "acme:search", "hits": [1, {"two": 2.5}], "big": 2**70}),
    TierUsed("flex"),
    COUNTED,
]


def terminal(events: list[Event]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    return last.response


def text_delta(number: int, text: str, **fields: object) -> OutputTextDelta:
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    return OutputTextDelta(sequence_number=number, delta=text, **(place | fields))  # type: ignore[arg-type] # the fields of the event


def records(events: list[Event]) -> list[list[object]]:
    _, packed = json.loads(pack_events(events))
    assert isinstance(packed, list)
    return packed


@pytest.mark.parametrize("deltas", [[*SAID, STOP], SAID, []], ids=["whole", "broken", "nothing"])
def test_what_is_packed_comes_back(deltas: list[Delta]) -> None:
    events = build(deltas)
    assert unpack_events(pack_events(events), terminal(events)) == events


def test_a_log_in_batches_is_the_same_log() -> None:
    events = build([*SAID, STOP])
    for size in (1, 2, 7):
        batches = [pack_events(events[n : n + size]) for n in range(0, len(events), size)]
        told = [event for body in batches for event in unpack_events(body, terminal(events))]
        assert told == events


def test_a_queued_and_cancelled_stream_comes_back_with_every_status() -> None:
    builder = ResponseBuilder(Response(id="r", usage=Usage()), counting_mint())
    events = builder.start(is_queued=True) + builder.go_on() + builder.feed(TextGrew("x"))
    events += builder.cancel()
    assert unpack_events(pack_events(events), terminal(events)) == events


def test_what_was_noted_later_is_not_in_earlier_events() -> None:
    response = Response(id="r", antiphon=Notes(degraded=("early",)), metadata={"a": "b"})
    builder = ResponseBuilder(response, counting_mint())
    events = builder.start()
    for delta in (Degraded("late"), TierUsed("flex"), COUNTED, STOP):
        events += builder.feed(delta)
    events += builder.finish(7)
    first, *_, last = unpack_events(pack_events(events), terminal(events))

    assert isinstance(first, ResponseCreated)
    assert isinstance(last, ResponseCompleted)
    assert first.response.antiphon == Notes(degraded=("early",))
    assert (first.response.service_tier, first.response.usage) == ("default", None)
    assert last.response.antiphon == Notes(degraded=("early", "late"))
    assert first.response.metadata == last.response.metadata == {"a": "b"}


def test_the_log_of_an_unfinished_response_can_be_read() -> None:
    events = build([TextGrew("x"), COUNTED, STOP])[:-1]
    stored = Response(id="resp_1", model="m", usage=COUNTED.usage)
    assert unpack_events(pack_events(events), stored) == events


def test_the_output_is_not_shared_with_the_stored_response() -> None:
    events = build([TextGrew("x"), COUNTED, STOP])
    stored = terminal(events)
    told = terminal(unpack_events(pack_events(events), stored))
    told.output[0]["status"] = "changed"
    assert stored.output[0]["status"] == "completed"


def test_the_deltas_of_one_text_are_one_record() -> None:
    events: list[Event] = [text_delta(3, "a"), text_delta(4, "b"), text_delta(5, "c")]
    assert records(events) == [["run", "text", 3, "m", 0, 0, ["a", "b", "c"]]]


@pytest.mark.parametrize(
    "second",
    [
        text_delta(9, "b"),
        text_delta(4, "b", item_id="n"),
        text_delta(4, "b", output_index=1),
        text_delta(4, "b", content_index=1),
        text_delta(4, "b", obfuscation="x"),
        text_delta(4, "b", extra={"theirs": 1}),
        text_delta(4, "b", logprobs=None),
        text_delta(4, "b", logprobs=[{"token": "b"}]),
        CustomInputDelta(sequence_number=4, item_id="m", output_index=0, delta="b"),
        ReasoningTextDelta(
            sequence_number=4, item_id="m", output_index=0, content_index=0, delta="b"
        ),
    ],
)
def test_a_delta_that_differs_in_more_than_its_text_comes_back_as_it_was(second: Event) -> None:
    events: list[Event] = [text_delta(3, "a"), second, second, text_delta(5, "c")]
    assert unpack_events(pack_events(events), Response()) == events


def test_events_that_only_others_send_come_back_too() -> None:
    queued = ResponseQueued(sequence_number=1, response=Response(id="r"), extra={"theirs": 1})
    events: list[Event] = [
        UnknownEvent("acme:ping", {"sequence_number": 0, "list": [1, {}]}),
        queued,
        CustomInputDone(sequence_number=2, item_id="c", output_index=0, input="ls"),
    ]
    assert unpack_events(pack_events(events), Response(id="another")) == events


def test_an_empty_log_has_no_events() -> None:
    assert unpack_events(pack_events([]), Response()) == []


def test_a_log_takes_a_fifth_of_the_stream_at_most() -> None:
    events = build([*(TextGrew(f"word {n} ") for n in range(500)), COUNTED, STOP])
    wire = sum(len(encode_sse(event)) for event in events)
    packed = sum(len(pack_events(events[n : n + 16])) for n in range(0, len(events), 16))
    assert packed < wire / 5


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"\xff\xfe",
        b"{}",
        b"[]",
        b"[1]",
        b"[2,[]]",
        b'["1",[]]',
        b"[1,[[]]]",
        b'[1,[["else",1]]]',
        b'[1,[["run","text",0,"m",0,0,"abc"]]]',
        b'[1,[["run","shout",0,"m",0,0,["abc"]]]]',
        b'[1,[["run","text",0,"m",0,0]]]',
        b'[1,[["noted",0,"m",0,0,["a","b"],[[]]]]]',
        b'[1,[["state","created",0,{"mood":"good"}]]]',
        b'[1,[["state","exploded",0,{}]]]',
        b'[1,[["event",{"type":"response.strange","sequence_number":0}]]]',
        b'[1,[["event",{"type":"error","sequence_number":0,"message":"x","newer":1}]]]',
        b"[1," + b"[" * 100_000,
        b'[1,[["unknown","x",{"a":' + b"[" * 100_000,
    ],
)
def test_damage_is_a_broken_stream(body: bytes) -> None:
    with pytest.raises(BrokenStream) as caught:
        unpack_events(body, Response())
    assert caught.value.code == "log_broken"


def test_a_log_cut_anywhere_is_a_broken_stream() -> None:
    body = pack_events(build([TextGrew("hé"), CallOpened(0, "f"), COUNTED, STOP]))
    for end in range(len(body)):
        with pytest.raises(BrokenStream):
            unpack_events(body[:end], Response())


def test_an_item_keeps_whatever_it_holds() -> None:
    item: Item = {
        "type": "x",
        "id": "i",
        "null": None,
        "float": 1.0,
        "int": 1,
        "deep": [[{"a": []}]],
    }
    event = OutputItemAdded(sequence_number=0, output_index=0, item=item)
    (told,) = unpack_events(pack_events([event]), Response())
    assert msgspec.json.encode(told) == msgspec.json.encode(event)


def test_a_failure_comes_back_with_its_error() -> None:
    events = build([TextGrew("x")])
    assert terminal(unpack_events(pack_events(events), terminal(events))).error == Failure(
        "upstream_closed", "the model broke off"
    )


def test_a_log_from_before_the_nested_error_opens() -> None:
    error = {"type": "error", "sequence_number": 2, "message": "m", "code": "c", "param": None}
    old = [1, [["event", error | {"kind": "server_error"}]]]
    (event,) = unpack_events(json.dumps(old).encode(), Response(id="r"))
    assert event == ErrorEvent(sequence_number=2, message="m", code="c", kind="server_error")
    assert json.loads(encode_event(event))["error"]["message"] == "m"


def test_a_cancelled_response_in_a_log_of_an_older_version_has_no_reason() -> None:
    changes = {"status": "cancelled", "incomplete_details": {"reason": "cancelled"}}
    old = [1, [["state", "incomplete", 2, changes]]]
    (event,) = unpack_events(json.dumps(old).encode(), Response(id="r"))
    assert isinstance(event, ResponseIncomplete)
    assert event.response.status == "cancelled"
    assert event.response.incomplete_details is None


@pytest.mark.parametrize("logprobs", [[], None, [{"token": "a", "logprob": -0.5}]])
def test_a_delta_that_comes_alone_keeps_its_logprobs(logprobs: Any) -> None:
    alone = OutputTextDelta(
        sequence_number=4,
        item_id="m",
        output_index=0,
        content_index=1,
        delta="a",
        logprobs=logprobs,
    )
    assert unpack_events(pack_events([alone]), Response(id="r", model="m")) == [alone]


# Whether a stream has an `error` event.


def test_the_beginning_of_a_log_says_whether_there_is_an_error_event() -> None:
    begun = ResponseBuilder(Response(id="resp_1"), counting_mint()).start()
    assert has_error_event(pack_events(begun))
    assert not has_error_event(pack_events(begun, has_error_event=False))
    assert unpack_events(pack_events(begun, has_error_event=False), Response(id="resp_1")) == begun


def test_only_the_beginning_of_a_log_is_marked() -> None:
    later = ResponseBuilder(Response(id="resp_1"), counting_mint()).start()[1:]
    assert pack_events(later, has_error_event=False) == pack_events(later)


def test_a_log_of_an_older_version_has_an_error_event() -> None:
    assert has_error_event(b"[1,[]]")


# The time of a batch.


@pytest.mark.parametrize("size", [1, 3, 100], ids=["alone", "few", "whole"])
def test_each_batch_keeps_its_time_beside_its_events(size: int) -> None:
    events = build([*SAID, STOP])
    batches = [events[n : n + size] for n in range(0, len(events), size)]
    bodies = [pack_events(batch, at=7 * n) for n, batch in enumerate(batches)]

    assert [packed_at(body) for body in bodies] == [7 * n for n in range(len(batches))]
    told = [event for body in bodies for event in unpack_events(body, terminal(events))]
    assert told == events


def test_a_beginning_with_a_time_still_says_whether_there_is_an_error_event() -> None:
    begun = ResponseBuilder(Response(id="resp_1"), counting_mint()).start()
    for has_event in (True, False):
        body = pack_events(begun, has_error_event=has_event, at=12)
        assert (has_error_event(body), packed_at(body)) == (has_event, 12)


def test_a_stored_log_without_times_is_read_as_it_was_written() -> None:
    stored = json.loads((LOGS / "version_1.json").read_bytes())
    response = decode_response(json.dumps(stored["response"]).encode())
    bodies = [body.encode() for body in stored["batches"]]

    told = [event for body in bodies for event in unpack_events(body, response)]
    assert [json.loads(encode_event(event)) for event in told] == stored["events"]
    assert judge_stream(told) == []
    assert {packed_at(body) for body in bodies} == {0}
    assert not has_error_event(bodies[0])
