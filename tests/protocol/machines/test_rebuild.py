"""A builder from its events: whatever was open is closed, and nothing is told twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    SummaryGrew,
    TextGrew,
)
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    ArgumentsDone,
    ContentPartAdded,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    UnknownEvent,
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.rebuild import rebuild
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Response
from tests.building import COUNTED, STOP, build, counting_mint

NOTE = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
GONE = Failure("server_restarted", "the server was restarted")

SAID: list[Delta] = [
    SummaryGrew("so"),
    ReasoningGrew("hm"),
    TextGrew("one ", ({"token": "one", "logprob": -1.0},)),
    AnnotationAdded(NOTE),
    TextGrew("two"),
    RefusalGrew("no"),
    CallOpened(0, "f", "call_f"),
    CallGrew(0, '{"a":'),
    CallOpened(1, "g", "call_g"),
    CallGrew(0, "1}"),
    CallGrew(1, "{}"),
    ItemPassed({"type": "acme:search", "hits": [1]}),
    TextGrew("end"),
]


def begun() -> Response:
    return Response(id="resp_1", model="m", usage=COUNTED.usage)


def again(events: list[Event], **options: Any) -> ResponseBuilder:
    return rebuild(begun(), events, counting_mint(), **options)


def final(events: list[Event]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    return last.response


def kinds(events: list[Event]) -> list[str]:
    return [event_type(event).removeprefix("response.") for event in events]


def up_to(events: list[Event], kind: type[Event]) -> list[Event]:
    """The events up to the first of a type, which is the last of them."""
    position = next(n for n, event in enumerate(events) if isinstance(event, kind))
    return events[: position + 1]


def running(*deltas: Delta, **options: Any) -> tuple[ResponseBuilder, list[Event]]:
    """A builder in the middle of a turn, and what it told."""
    builder = ResponseBuilder(begun(), counting_mint(), **options)
    events = builder.start()
    for delta in deltas:
        events += builder.feed(delta)
    return builder, events


@pytest.mark.parametrize("count", range(len(SAID) + 1))
@pytest.mark.parametrize("end", ["fail", "cancel"])
def test_another_builder_ends_the_stream_as_the_first_would_have(count: int, end: str) -> None:
    first, events = running(*SAID[:count])
    second = again(events)

    if end == "fail":
        assert second.fail(GONE) == first.fail(GONE)
    else:
        assert second.cancel() == first.cancel()


def test_a_log_torn_after_any_event_is_brought_to_a_right_end() -> None:
    _, events = running(*SAID)
    for cut in range(1, len(events) + 1):
        assert judge_stream(events[:cut] + again(events[:cut]).fail(GONE)) == []
        assert judge_stream(events[:cut] + again(events[:cut]).cancel()) == []


def test_text_can_go_on_in_the_same_part() -> None:
    _, events = running(TextGrew("one "))
    builder = again(events)
    events += builder.feed(TextGrew("two")) + builder.feed(STOP) + builder.finish(7)

    assert judge_stream(events) == []
    assert final(events).output_text == "one two"


def test_without_events_it_is_a_new_builder() -> None:
    builder = again([])
    assert judge_stream(builder.start() + builder.fail(GONE)) == []


def test_a_queued_response_goes_on_from_the_queue() -> None:
    events = ResponseBuilder(begun(), counting_mint()).start(is_queued=True)
    builder = again(events)
    events += builder.go_on() + builder.feed(TextGrew("x")) + builder.feed(STOP)
    assert judge_stream(events + builder.finish(7)) == []


def test_the_queued_event_is_told_if_it_is_missing() -> None:
    events = ResponseBuilder(begun(), counting_mint()).start(is_queued=True)[:1]
    events += again(events).cancel()
    assert kinds(events) == ["created", "queued", "incomplete"]
    assert judge_stream(events) == []


def test_a_text_that_was_told_whole_is_not_told_again() -> None:
    events = up_to(build([TextGrew("x"), COUNTED, STOP]), OutputTextDone)
    rest = again(events).fail(GONE)
    assert kinds(rest) == ["content_part.done", "output_item.done", "error", "failed"]


@pytest.mark.parametrize(
    ("arguments", "status"), [('{"a":1}', "completed"), ('{"a"', "incomplete"), ("", "incomplete")]
)
def test_a_call_whose_arguments_were_told_ends_as_they_show(arguments: str, status: str) -> None:
    events = up_to(build([CallOpened(0, "f", "c"), CallGrew(0, arguments)]), ArgumentsDone)
    rest = again(events).fail(GONE)
    assert kinds(rest) == ["output_item.done", "error", "failed"]
    assert final(rest).output[0]["status"] == status


def test_an_item_that_was_passed_on_is_done_as_it_was_added() -> None:
    events = up_to(
        build([ItemPassed({"type": "acme:search", "hits": [1]}), COUNTED, STOP]), OutputItemAdded
    )
    rest = again(events).fail(GONE)
    assert kinds(rest) == ["output_item.done", "error", "failed"]
    assert final(rest).output[0]["hits"] == [1]


def test_an_error_that_was_told_stands() -> None:
    events = up_to(build([TextGrew("x")]), ErrorEvent)
    for rest in (again(events).fail(GONE), again(events).cancel()):
        assert kinds(rest) == ["failed"]
        assert judge_stream(events + rest) == []
        assert final(rest).error == Failure("upstream_closed", "the model broke off")


def test_an_end_that_was_not_stored_can_be_taken_back() -> None:
    _, events = running(TextGrew("x"))
    for cut in (events, up_to(build([TextGrew("x")]), ErrorEvent)):
        builder = again(cut)
        closing = builder.close("incomplete")
        builder.fail(GONE)
        assert judge_stream(cut + closing + builder.retract(GONE)) == []


def test_only_what_is_still_open_is_sealed() -> None:
    sealed: list[str] = []

    def seal(item: Item, state: NativeState | None) -> str:
        sealed.append(item["id"])
        return f"sealed {len(sealed)}"

    deltas: list[Delta] = [ReasoningGrew("a"), TextGrew("b"), ReasoningGrew("c")]
    _, events = running(*deltas, seal=seal)
    output = final(again(events, seal=seal).fail(GONE)).output

    assert [item.get("encrypted_content") for item in output] == ["sealed 1", None, "sealed 2"]
    assert sealed == [output[0]["id"], output[2]["id"]]


def test_call_ids_that_are_taken_are_not_given_again() -> None:
    _, events = running(CallOpened(0, "f", "c"), CallGrew(0, "{}"), TextGrew("x"))
    builder = rebuild(begun(), events, lambda prefix: f"{prefix}_other")
    rest = builder.feed(CallOpened(7, "f", "c"))
    assert judge_stream(events + rest + builder.fail(GONE)) == []
    assert [event.item["call_id"] for event in rest if isinstance(event, OutputItemAdded)] == [
        "c_2"
    ]


def test_an_image_that_was_torn_off_has_failed() -> None:
    image = {"type": "image_generation_call", "status": "completed", "result": "AA"}
    _, events = running(ItemPassed(image))
    for count in range(3, len(events)):
        builder = again(events[:count])
        whole = events[:count] + builder.fail(GONE)
        assert judge_stream(whole) == []
        assert [(item["status"], item["result"]) for item in final(whole).output] == [
            ("failed", "")
        ]


def test_the_events_are_not_changed() -> None:
    _, events = running(*SAID)
    before = msgspec.json.encode(events)
    builder = again(events)
    builder.feed(TextGrew("more"))
    builder.fail(GONE)
    assert msgspec.json.encode(events) == before


def added(item: Item, index: int = 0) -> list[Event]:
    """A stream that ends with this item opened."""
    events = ResponseBuilder(begun(), counting_mint()).start()
    return [*events, OutputItemAdded(sequence_number=2, output_index=index, item=item)]


MESSAGE: Item = {
    "id": "m",
    "type": "message",
    "status": "in_progress",
    "role": "assistant",
    "content": [],
}
CALL: Item = {
    "id": "f",
    "type": "function_call",
    "status": "in_progress",
    "call_id": "c",
    "name": "f",
    "arguments": "",
}
STRANGE: Item = {"id": "x", "type": "acme:talk", "content": []}
PLACE: dict[str, Any] = {"item_id": "x", "output_index": 0}
BAD_PART: Item = {"type": "audio", "data": ""}
BARE_PART: Item = {"type": "output_text", "text": ""}

BROKEN: dict[str, list[Event]] = {
    "it has ended": build([COUNTED, STOP]),
    "a number is missing": build([TextGrew("x")])[:3] + build([TextGrew("x")])[4:5],
    "it does not begin at the beginning": build([TextGrew("x")])[1:3],
    "an unknown event": [
        *build([])[:2],
        UnknownEvent("acme:ping", {"sequence_number": 2}),
    ],
    "a message with a field that we do not know": added(MESSAGE | {"mood": "good"}),
    "a call with a field that we do not know": added(CALL | {"mood": "good"}),
    "a part of a kind that we do not know": [
        *added(MESSAGE | {"id": "x"}),
        ContentPartAdded(sequence_number=3, content_index=0, part=BAD_PART, **PLACE),
    ],
    "a part that lacks a field": [
        *added(MESSAGE | {"id": "x"}),
        ContentPartAdded(sequence_number=3, content_index=0, part=BARE_PART, **PLACE),
    ],
    "a part in an item that we do not know": [
        *added(STRANGE),
        ContentPartAdded(sequence_number=3, content_index=0, part=BAD_PART, **PLACE),
    ],
    "free-form input": [
        *added({"id": "x", "type": "custom_tool_call", "call_id": "c", "name": "f"}),
        CustomInputDelta(sequence_number=3, delta="ls", **PLACE),
    ],
    "an event that names no item": [
        *added(STRANGE),
        UnknownEvent("acme:ping", {"type": "acme:ping", "sequence_number": 3}),
    ],
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_log_that_cannot_be_gone_on_from_is_refused(what: str) -> None:
    with pytest.raises(BrokenStream) as caught:
        again(BROKEN[what])
    assert caught.value.code == "log_broken"


def test_a_part_that_is_not_what_was_told_is_refused() -> None:
    events = build([TextGrew("x", ({"token": "x", "logprob": -1.0},)), COUNTED, STOP])[:-2]
    place = next(n for n, event in enumerate(events) if isinstance(event, OutputTextDelta))
    events[place] = msgspec.structs.replace(events[place], logprobs=[])
    with pytest.raises(BrokenStream):
        again(events)


def test_done_items_are_kept_as_they_were_told() -> None:
    _, events = running(TextGrew("x"), CallOpened(0, "f", "c"))
    done = next(n for n, event in enumerate(events) if isinstance(event, OutputItemDone))
    event = events[done]
    assert isinstance(event, OutputItemDone)
    events[done] = msgspec.structs.replace(event, item=event.item | {"phase": "commentary"})
    assert final(again(events).fail(GONE)).output[0]["phase"] == "commentary"


# Calls of all families.

PATCH = '{"operation":{"type":"update_file","path":"a.py","diff":"@@"}}'
CALLS: list[Delta] = [
    CallMade("c", "text", "c0", "custom", "n"),
    CallMade("shell", '{"commands":["ls"]}', "c1", "shell"),
    TextGrew("between"),
    CallOpened(0, "f", "c2", "function", "n"),
    CallGrew(0, '{"a":'),
    CallMade("apply_patch", PATCH, "c3", "apply_patch"),
    CallMade("c", "more text", "c4", "custom"),
    CallMade("local_shell", '{"command":["ls"]}', "c5", "local_shell"),
    CallGrew(0, "1}"),
    CallMade("tool_search", '{"paths":["a"]}', "c6", "tool_search"),
    TextGrew("end"),
]


def test_a_log_of_any_calls_torn_after_any_event_is_brought_to_a_right_end() -> None:
    _, events = running(*CALLS)
    for cut in range(1, len(events) + 1):
        assert judge_stream(events[:cut] + again(events[:cut]).fail(GONE)) == []
        assert judge_stream(events[:cut] + again(events[:cut]).cancel()) == []


def test_items_that_were_done_are_not_touched_by_a_tear() -> None:
    _, events = running(*CALLS)
    for cut in range(1, len(events) + 1):
        done = [event.item for event in events[:cut] if isinstance(event, OutputItemDone)]
        output = final(again(events[:cut]).fail(GONE)).output
        assert output[: len(done)] == done


OPENINGS: list[tuple[Delta, str, Any]] = [
    (CALLS[1], "action", {"commands": [], "timeout_ms": None, "max_output_length": None}),
    (CALLS[5], "operation", {"type": "update_file", "path": "a.py", "diff": ""}),
]


@pytest.mark.parametrize(("call", "field", "told"), OPENINGS)
@pytest.mark.parametrize("before", [[], [CallOpened(0, "f", "c"), CallGrew(0, '{"a":1}')]])
def test_a_call_of_which_only_the_opening_was_told_is_never_complete(
    call: Delta, field: str, told: Any, before: list[Delta]
) -> None:
    """What it was to do is lost: nobody may run what is left of it."""
    _, events = running(*before, call)
    last = max(n for n, event in enumerate(events) if isinstance(event, OutputItemAdded))
    torn = events[: last + 1]
    whole = torn + again(torn).fail(GONE)
    assert judge_stream(whole) == []
    item = final(whole).output[-1]
    assert (item["status"], item[field]) == ("incomplete", told)


def test_a_whole_call_behind_an_open_one_stays_behind_it() -> None:
    _, events = running(CallOpened(0, "f", "c0"), CallGrew(0, "{"), CALLS[1], CallGrew(0, "}"))
    output = final(again(events).fail(GONE)).output
    assert [item["type"] for item in output] == ["function_call", "shell_call"]
    assert output[1]["status"] == "incomplete"


@pytest.mark.parametrize("said", ["text", "", "{}"])
def test_a_custom_call_whose_input_was_told_is_not_known_to_be_whole(said: str) -> None:
    events = up_to(build([CallMade("c", said, "x", "custom"), COUNTED, STOP]), CustomInputDone)
    rest = again(events).fail(GONE)
    assert kinds(rest) == ["output_item.done", "error", "failed"]
    assert final(rest).output[0] | {"id": ""} == {
        "id": "",
        "type": "custom_tool_call",
        "status": "incomplete",
        "call_id": "x",
        "name": "c",
        "input": said,
    }


def test_a_custom_call_goes_on_with_its_namespace() -> None:
    _, events = running(CallOpened(0, "c", "x", "custom", "n"), CallGrew(0, "te"))
    builder = again(events)
    rest = builder.feed(CallGrew(0, "xt")) + builder.fail(GONE)
    assert judge_stream(events + rest) == []
    (item,) = final(rest).output
    assert (item["namespace"], item["input"]) == ("n", "text")
