"""The builder: what opens, what closes, and what is never lost."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter

from antiphon.protocol.codec import encode_event
from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    ItemClosed,
    ItemOpened,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Repaired,
    Stopped,
    SummaryGrew,
    TextGrew,
    TierUsed,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import (
    ArgumentsDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDone,
    ReasoningTextDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    SummaryTextDelta,
    event_type,
)
from antiphon.protocol.families import FAMILIES, Kind
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Notes, Response, Usage
from tests.building import COUNTED, STOP, build, counting_mint

Lifecycle = ResponseCreated | ResponseQueued | ResponseInProgress


def final(events: list[Event]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    return last.response


def kinds(events: list[Event]) -> list[str]:
    return [event_type(event).removeprefix("response.") for event in events]


def statuses(events: list[Event]) -> list[str]:
    return [event.response.status for event in events if isinstance(event, Lifecycle)]


def accepted(*deltas: Delta, **options: object) -> list[Event]:
    """Build, and let the referee look at it first."""
    events = build(deltas, **options)  # type: ignore[arg-type] # known options
    assert judge_stream(events) == []
    return events


@pytest.mark.requirement("003-comparison-5", "003-output-1", "003-streaming-1", "003-streaming-3")
def test_a_plain_answer_is_told_in_the_order_of_the_specification() -> None:
    events = accepted(TextGrew("Hello "), TextGrew("there"), COUNTED, STOP)

    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert final(events).output_text == "Hello there"
    assert [event.sequence_number for event in events] == list(range(10))


def test_deltas_fed_together_are_told_like_each_alone() -> None:
    text: list[Delta] = [TextGrew("a"), TextGrew("b"), TextGrew("")]
    deltas = [*text, CallOpened(0, "f", "c"), COUNTED, STOP]
    builder = ResponseBuilder(Response(id="resp_1", model="m"), counting_mint())
    alone = ResponseBuilder(Response(id="resp_1", model="m"), counting_mint())
    each = [event for delta in deltas for event in alone.feed(delta)]
    assert builder.feed_all(deltas) == each
    assert builder.finish(1) == alone.finish(1)


def test_what_was_told_before_a_delta_that_is_refused_is_not_lost() -> None:
    builder = ResponseBuilder(Response(id="resp_1", model="m"), counting_mint())
    events = builder.start()
    opened = CallOpened(0, "f", "c")
    with pytest.raises(BackendError):
        builder.feed_all([COUNTED, TextGrew("a"), opened, opened])
    events += builder.fail(Failure("server_error", "broken"))
    assert judge_stream(events) == []
    assert [item["type"] for item in final(events).output] == ["message", "function_call"]


def test_empty_text_opens_nothing() -> None:
    assert final(accepted(TextGrew(""), COUNTED, STOP)).output == []


@pytest.mark.requirement("003-comparison-3", "003-output-2")
def test_reasoning_text_and_calls_are_items_of_their_own_in_order() -> None:
    response = final(
        accepted(
            ReasoningGrew("hm"),
            TextGrew("Let me look."),
            CallOpened(0, "look", "call_a"),
            CallGrew(0, '{"at":1}'),
            COUNTED,
            STOP,
        )
    )

    assert [item["type"] for item in response.output] == ["reasoning", "message", "function_call"]
    assert response.output[2]["arguments"] == '{"at":1}'


@pytest.mark.requirement("003-streaming-4")
def test_interleaved_calls_keep_their_arguments_apart_and_close_in_order() -> None:
    events = accepted(
        CallOpened(0, "a", "call_a"),
        CallGrew(0, '{"x"'),
        CallOpened(1, "b", "call_b"),
        CallGrew(1, '{"y":'),
        CallGrew(0, ":1}"),
        CallGrew(1, "2}"),
        COUNTED,
        STOP,
    )

    done = [event for event in events if isinstance(event, ArgumentsDone)]
    assert [(event.output_index, event.arguments) for event in done] == [
        (0, '{"x":1}'),
        (1, '{"y":2}'),
    ]


def test_text_after_a_whole_call_closes_the_call_first() -> None:
    response = final(
        accepted(CallOpened(0, "a", "call_a"), CallGrew(0, "{}"), TextGrew("done"), COUNTED, STOP)
    )

    assert [item["type"] for item in response.output] == ["function_call", "message"]


def test_text_in_the_middle_of_arguments_waits_for_their_tail() -> None:
    response = final(
        accepted(
            CallOpened(0, "a", "call_a"),
            CallGrew(0, '{"x":'),
            TextGrew("meanwhile"),
            CallGrew(0, "1}"),
            TextGrew(" and after"),
            COUNTED,
            STOP,
        )
    )

    assert response.output[0]["arguments"] == '{"x":1}'
    assert response.output_text == "meanwhile and after"


def test_text_held_behind_arguments_that_never_end_is_told_at_the_end() -> None:
    response = final(
        accepted(
            CallOpened(0, "a", "call_a"), CallGrew(0, '{"x":'), TextGrew("tail"), COUNTED, STOP
        )
    )

    assert response.output[0]["arguments"] == '{"x":'
    assert response.output_text == "tail"


def test_a_new_call_beside_unfinished_ones_keeps_text_waiting_and_loses_no_tail() -> None:
    response = final(
        accepted(
            CallOpened(0, "a", "call_a"),
            CallGrew(0, '{"x":'),
            TextGrew("between"),
            CallOpened(1, "b", "call_b"),
            CallGrew(1, "{}"),
            CallGrew(0, "1}"),
            COUNTED,
            STOP,
        )
    )

    assert [item.get("arguments") for item in response.output] == ['{"x":1}', "{}", None]
    assert response.output_text == "between"


def test_a_call_that_the_backend_closes_is_done_at_once() -> None:
    events = accepted(CallOpened(0, "a", "call_a"), CallGrew(0, "{}"), CallClosed(0), COUNTED, STOP)

    assert kinds(events).index("output_item.done") == kinds(events).index("completed") - 1


def test_a_closed_call_waits_for_the_one_before_it() -> None:
    events = accepted(
        CallOpened(0, "a", "call_a"),
        CallOpened(1, "b", "call_b"),
        CallGrew(1, "{}"),
        CallClosed(1),
        CallGrew(0, "{}"),
        CallClosed(0),
        COUNTED,
        STOP,
    )

    done = [event.output_index for event in events if isinstance(event, OutputItemDone)]
    assert done == [0, 1]


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    response = final(accepted(CallOpened(0, "a", "call_a"), COUNTED, STOP))

    assert response.output[0]["arguments"] == "{}"


@pytest.mark.requirement("003-ids-4")
@pytest.mark.parametrize("wished", [None, ""])
def test_a_call_without_an_id_gets_one(wished: str | None) -> None:
    response = final(
        accepted(CallOpened(0, "a", "call_a"), CallOpened(1, "b", wished), COUNTED, STOP)
    )

    first, second = (item["call_id"] for item in response.output)
    assert first == "call_a"
    assert second.startswith("call_")
    assert not response.antiphon


@pytest.mark.requirement("003-ids-4")
def test_a_call_id_that_is_given_twice_is_derived_and_reported() -> None:
    opened = [CallOpened(key, "a", "call_a") for key in range(3)]
    response = final(accepted(*opened, COUNTED, STOP))

    assert [item["call_id"] for item in response.output] == ["call_a", "call_a_2", "call_a_3"]
    assert response.antiphon
    assert response.antiphon.degraded == (
        "call_id: the upstream's 'call_a' is taken; it is 'call_a_2' here",
        "call_id: the upstream's 'call_a' is taken; it is 'call_a_3' here",
    )


@pytest.mark.requirement("003-ids-4")
def test_a_derived_call_id_has_at_most_64_characters() -> None:
    long = "x" * 64
    opened = [CallOpened(key, "a", wished) for key, wished in enumerate([long, long, long + "y"])]
    response = final(accepted(*opened, COUNTED, STOP))

    assert [item["call_id"] for item in response.output] == [
        long,
        long[:62] + "_2",
        long[:62] + "_3",
    ]
    assert response.antiphon
    assert len(response.antiphon.degraded) == 2


def test_an_image_is_told_with_the_events_of_an_image() -> None:
    image = {"type": "image_generation_call", "status": "completed", "result": "AA"}
    events = accepted(TextGrew("Here:"), ItemPassed(image), TextGrew("Nice?"), COUNTED, STOP)

    told = [event for event in events if getattr(event, "output_index", None) == 1]
    assert [event_type(event).removeprefix("response.") for event in told] == [
        "output_item.added",
        "image_generation_call.in_progress",
        "image_generation_call.generating",
        "image_generation_call.completed",
        "output_item.done",
    ]
    added, done = told[0], told[-1]
    assert isinstance(added, OutputItemAdded)
    assert isinstance(done, OutputItemDone)
    assert (added.item["status"], added.item["result"]) == ("in_progress", None)
    assert (done.item["status"], done.item["result"]) == ("completed", "AA")
    assert done.item["id"].startswith("ig_")
    assert [item["type"] for item in final(events).output] == ["message", image["type"], "message"]


def test_arguments_for_a_call_that_is_not_open_fail_the_response() -> None:
    events = accepted(CallGrew(0, '{"x":1}'), STOP)

    assert final(events).status == "failed"


def test_white_space_after_a_call_has_closed_is_nothing() -> None:
    response = final(
        accepted(
            CallOpened(0, "a", "call_a"),
            CallGrew(0, "{}"),
            TextGrew("x"),
            CallGrew(0, "\n"),
            COUNTED,
            STOP,
        )
    )

    assert response.status == "completed"


def test_a_call_opened_twice_under_one_key_fails_the_response() -> None:
    events = accepted(CallOpened(0, "a"), CallOpened(0, "a"), STOP)

    assert final(events).error == Failure(
        "upstream_invalid_response", "the model opened call 0 twice"
    )


@pytest.mark.requirement("003-ignored-3")
def test_reasoning_goes_to_the_summary_channel_when_asked() -> None:
    events = accepted(ReasoningGrew("hm"), COUNTED, STOP, reasoning_as="summary")

    assert any(isinstance(event, SummaryTextDelta) for event in events)
    assert not any(isinstance(event, ReasoningTextDelta) for event in events)
    assert final(events).output[0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert "content" not in final(events).output[0]


def test_a_summary_beside_raw_reasoning_is_an_item_of_its_own() -> None:
    first, second = final(
        accepted(SummaryGrew("short"), ReasoningGrew("long"), COUNTED, STOP)
    ).output

    assert first["summary"][0]["text"] == "short"
    assert "content" not in first
    assert second["content"][0]["text"] == "long"
    assert second["summary"] == []


def test_a_refusal_after_text_is_the_next_part_of_the_message() -> None:
    item = final(accepted(TextGrew("Well, "), RefusalGrew("no."), COUNTED, STOP)).output[0]

    assert [part["type"] for part in item["content"]] == ["output_text", "refusal"]


def test_annotations_stand_on_the_text_they_came_with() -> None:
    note = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
    item = final(accepted(TextGrew("x"), AnnotationAdded(note), COUNTED, STOP)).output[0]

    assert item["content"][0]["annotations"] == [note]


def test_logprobs_are_on_the_delta_and_on_the_whole() -> None:
    token = {"token": "x", "logprob": -0.1, "bytes": [120], "top_logprobs": []}
    events = accepted(TextGrew("x", (token,)), COUNTED, STOP)

    done = next(event for event in events if isinstance(event, OutputTextDone))
    assert done.logprobs == [token]
    assert final(events).output[0]["content"][0]["logprobs"] == [token]


def test_an_item_nobody_understands_is_passed_on_whole() -> None:
    item = {"type": "acme:thing", "id": "t_1", "status": "completed", "deep": {"a": [1]}}
    response = final(accepted(TextGrew("x"), ItemPassed(item), COUNTED, STOP))

    assert response.output[1] == item


@pytest.mark.parametrize("name", [True, ["x"], "t_1"])
def test_an_id_that_is_invalid_or_taken_is_replaced_and_that_is_reported(name: Any) -> None:
    first = {"type": "acme:thing", "id": "t_1"}
    second = {"type": "acme:thing", "id": name}
    response = final(accepted(ItemPassed(first), ItemPassed(second), COUNTED, STOP))

    ids = [item["id"] for item in response.output]
    assert ids[0] == "t_1"
    assert isinstance(ids[1], str) and ids[1] != "t_1"
    assert isinstance(response.antiphon, Notes)
    assert response.antiphon.degraded == ("acme:thing: its id is invalid or taken",)


@pytest.mark.parametrize(
    ("stop", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_an_answer_cut_short_is_incomplete_and_so_is_its_last_item(stop: str, reason: str) -> None:
    response = final(accepted(TextGrew("half"), COUNTED, Stopped(stop)))  # type: ignore[arg-type] # both are reasons

    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == reason
    assert response.output[-1]["status"] == "incomplete"
    assert response.completed_at is None


def test_a_stream_without_an_end_fails_and_keeps_what_there_was() -> None:
    events = accepted(TextGrew("half"), CallOpened(0, "a", "call_a"), CallGrew(0, '{"x'))

    response = final(events)
    assert kinds(events)[-2:] == ["error", "failed"]
    assert response.output_text == "half"
    assert response.output[1]["status"] == "incomplete"


def test_a_terminal_event_that_was_not_sent_can_be_taken_back() -> None:
    builder = ResponseBuilder(Response(id="resp_1", usage=Usage(total_tokens=1)), counting_mint())
    events = builder.start() + builder.feed(TextGrew("x")) + builder.feed(STOP) + builder.close()
    builder.finish(7)
    events += builder.retract(Failure("store_unavailable", "the disk is full"))

    assert judge_stream(events) == []
    assert final(events).status == "failed"
    assert final(events).completed_at is None


def test_a_cancelled_turn_keeps_what_there_was() -> None:
    builder = ResponseBuilder(Response(id="resp_1", usage=COUNTED.usage), counting_mint())
    events = builder.start() + builder.feed(TextGrew("half")) + builder.cancel()

    assert judge_stream(events) == []
    assert kinds(events)[-4:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]
    assert final(events).status == "cancelled"
    assert final(events).incomplete_details is None
    assert final(events).output[0]["status"] == "incomplete"


def test_a_cancelled_end_that_was_not_sent_can_be_taken_back() -> None:
    builder = ResponseBuilder(Response(id="resp_1", usage=COUNTED.usage), counting_mint())
    events = builder.start() + builder.feed(TextGrew("half")) + builder.close("incomplete")
    builder.cancel()
    events += builder.retract(Failure("store_unavailable", "the disk is full"))

    assert judge_stream(events) == []
    assert final(events).incomplete_details is None


def test_a_failure_that_was_not_sent_can_be_taken_back() -> None:
    builder = ResponseBuilder(Response(id="resp_1", usage=COUNTED.usage), counting_mint())
    events = builder.start()
    builder.fail(Failure("upstream_closed", "the model broke off"))
    events += builder.retract(Failure("store_unavailable", "the disk is full"))

    assert judge_stream(events) == []
    assert final(events).error == Failure("store_unavailable", "the disk is full")


def test_a_queued_response_waits_before_it_goes_on() -> None:
    builder = ResponseBuilder(Response(id="resp_1", usage=COUNTED.usage), counting_mint())
    waiting = builder.start(is_queued=True)
    running = builder.go_on()
    rest = builder.feed(TextGrew("x")) + builder.feed(STOP) + builder.finish(7)

    assert kinds(waiting) == ["created", "queued"]
    assert statuses(waiting) == ["queued", "queued"]
    assert kinds(running) == ["in_progress"]
    assert statuses(running) == ["in_progress"]
    assert judge_stream(waiting + running + rest) == []


def test_a_queued_response_can_be_cancelled_before_it_runs() -> None:
    builder = ResponseBuilder(Response(id="resp_1", usage=Usage()), counting_mint())
    events = builder.start(is_queued=True) + builder.cancel()

    assert judge_stream(events) == []
    assert kinds(events) == ["created", "queued", "incomplete"]


@pytest.mark.parametrize("channel", ["content", "summary"])
def test_reasoning_is_sealed_when_it_is_done(channel: str) -> None:
    shown: list[Item] = []

    def seal(item: Item, state: NativeState | None) -> str:
        shown.append(item)
        return f"sealed {item['id']}"

    events = accepted(
        ReasoningGrew("why"), TextGrew("x"), COUNTED, STOP, reasoning_as=channel, seal=seal
    )
    added = [event.item for event in events if isinstance(event, OutputItemAdded)]
    done = [event.item for event in events if isinstance(event, OutputItemDone)]

    assert [item.get("encrypted_content") for item in added] == [None, None]
    assert [item.get("encrypted_content") for item in done] == ["sealed rs_0", None]
    assert final(events).output == done
    assert shown == [{k: v for k, v in done[0].items() if k != "encrypted_content"}]


def test_the_seal_may_have_nothing_to_say() -> None:
    events = accepted(ReasoningGrew("why"), COUNTED, STOP, seal=lambda item, state: "")

    assert "encrypted_content" not in final(events).output[0]


def test_an_item_that_is_passed_on_is_not_sealed_again() -> None:
    theirs = {"type": "acme:thought", "encrypted_content": "theirs"}
    events = accepted(ItemPassed(theirs), COUNTED, STOP, seal=lambda item, state: "ours")

    assert final(events).output[0]["encrypted_content"] == "theirs"


@pytest.mark.requirement("003-ignored-1")
def test_what_is_noted_stands_in_the_last_response() -> None:
    response = final(
        accepted(Degraded("verbosity"), Degraded("verbosity"), TierUsed("flex"), COUNTED, STOP)
    )

    assert response.antiphon
    assert response.antiphon.degraded == ("verbosity",)
    assert response.service_tier == "flex"


def test_a_response_is_not_completed_before_it_was_created() -> None:
    builder = ResponseBuilder(Response(id="resp_1", created_at=100), counting_mint())
    events = builder.start() + builder.feed(STOP) + builder.finish(at=40)

    assert final(events).completed_at == 100


def test_an_error_event_carries_the_failure() -> None:
    events = accepted(TextGrew("x"))

    error = events[-2]
    assert isinstance(error, ErrorEvent)
    assert error.code == "upstream_closed"


def test_of_several_calls_at_a_cut_only_the_last_ones_are_incomplete() -> None:
    response = final(
        accepted(
            CallOpened(0, "a", "call_a"),
            CallGrew(0, "{}"),
            CallOpened(1, "b", "call_b"),
            CallGrew(1, '{"x":'),
            CallOpened(2, "c", "call_c"),
            CallGrew(2, "{}"),
            COUNTED,
            Stopped("length"),
        )
    )

    assert [item["status"] for item in response.output] == ["completed", "incomplete", "incomplete"]


def test_text_behind_a_call_without_arguments_is_told() -> None:
    response = final(accepted(CallOpened(0, "a", "call_a"), TextGrew("x"), COUNTED, STOP))

    assert [item["type"] for item in response.output] == ["function_call", "message"]


def test_arguments_nested_beyond_reason_are_not_whole_and_break_nothing() -> None:
    deep = "[" * 100_000
    response = final(
        accepted(CallOpened(0, "a", "call_a"), CallGrew(0, deep), TextGrew("x"), COUNTED, STOP)
    )

    assert response.output[0]["arguments"] == deep
    assert response.output_text == "x"


# Calls of all families.

SAID: dict[Kind, str] = {
    "function": '{"a":1}',
    "custom": "*** Begin Patch",
    "shell": '{"commands":["ls"],"timeout_ms":5}',
    "local_shell": '{"command":["ls"],"working_directory":"/x"}',
    "apply_patch": '{"operation":{"type":"update_file","path":"a.py","diff":"@@"}}',
    "tool_search": '{"paths":["a"]}',
    "computer": '{"action":{"type":"click","button":"left","x":1,"y":2}}',
}
HELD: dict[Kind, Any] = {
    "function": '{"a":1}',
    "custom": "*** Begin Patch",
    "shell": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None},
    "local_shell": {"type": "exec", "command": ["ls"], "env": {}, "working_directory": "/x"},
    "apply_patch": {"type": "update_file", "path": "a.py", "diff": "@@"},
    "tool_search": {"paths": ["a"]},
    "computer": {"type": "click", "button": "left", "x": 1, "y": 2},
}


def made(kind: Kind, call_id: str = "c", namespace: str | None = None) -> CallMade:
    return CallMade("t", SAID[kind], call_id, kind, namespace)


@pytest.mark.parametrize("kind", SAID)
def test_a_call_of_any_family_is_told_from_its_opening_to_its_end(kind: Kind) -> None:
    events = accepted(made(kind), COUNTED, STOP)
    family = FAMILIES[kind]
    (item,) = final(events).output
    assert (item["type"], item["call_id"], item["status"]) == (family.call, "c", "completed")
    assert item[family.payload] == HELD[kind]
    grows = {
        "function": ["function_call_arguments.delta", "function_call_arguments.done"],
        "custom": ["custom_tool_call_input.delta", "custom_tool_call_input.done"],
    }
    assert kinds(events)[2:-1] == [
        "output_item.added",
        *grows.get(kind, []),
        "output_item.done",
    ]


@pytest.mark.parametrize("kind", SAID)
def test_the_official_types_take_every_event_of_a_call(kind: Kind) -> None:
    events = accepted(TextGrew("x"), made(kind, namespace="n"), COUNTED, STOP)
    known: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in events[2:-1]:  # a response of the tests lacks fields that a real one has
        assert known.validate_json(encode_event(event)).type == event_type(event)
    items: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)
    for item in final(events).output:
        assert items.validate_python(item).type == item["type"]


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_namespace_stands_on_the_call_that_has_one(kind: Kind) -> None:
    inside, outside = accepted(made(kind, "1", "n"), made(kind, "2"), COUNTED, STOP)[
        -1
    ].response.output  # type: ignore[union-attr]  # the end
    assert inside["namespace"] == "n"
    assert "namespace" not in outside


def test_a_patch_opens_with_its_file_and_a_shell_with_nothing() -> None:
    events = accepted(made("apply_patch", "1"), made("shell", "2"), COUNTED, STOP)
    patch, shell = [event.item for event in events if isinstance(event, OutputItemAdded)]
    assert patch["operation"] == {"type": "update_file", "path": "a.py", "diff": ""}
    assert shell["action"]["commands"] == []


def test_a_custom_call_without_input_has_an_empty_one() -> None:
    (item,) = final(accepted(CallMade("t", "", "c", "custom"), COUNTED, STOP)).output
    assert item["input"] == ""


def test_a_made_function_without_arguments_gets_an_empty_object() -> None:
    (item,) = final(accepted(CallMade("t", "", "c"), COUNTED, STOP)).output
    assert item["arguments"] == "{}"


def test_a_call_that_is_made_waits_for_those_that_are_open_before_it() -> None:
    events = accepted(
        CallOpened(0, "f", "c0"),
        CallGrew(0, '{"a":'),
        made("shell", "c1"),
        made("custom", "c2"),
        CallGrew(0, "1}"),
        TextGrew("after"),
        COUNTED,
        STOP,
    )
    done = [event.item["type"] for event in events if isinstance(event, OutputItemDone)]
    assert done == ["function_call", "shell_call", "custom_tool_call", "message"]


@pytest.mark.parametrize("kind", SAID)
def test_a_call_that_is_made_is_done_at_once(kind: Kind) -> None:
    builder = ResponseBuilder(Response(id="r"), counting_mint())
    builder.start()
    assert isinstance(builder.feed(made(kind))[-1], OutputItemDone)


def test_a_call_that_is_made_closes_the_text_before_it() -> None:
    events = accepted(TextGrew("x"), made("custom"), TextGrew("y"), COUNTED, STOP)
    assert [item["type"] for item in final(events).output] == [
        "message",
        "custom_tool_call",
        "message",
    ]


def test_a_call_id_that_is_taken_is_not_given_to_another_family() -> None:
    output = final(accepted(made("shell"), made("custom"), COUNTED, STOP)).output
    assert output[0]["call_id"] != output[1]["call_id"]


def test_a_call_that_can_be_none_of_its_family_fails_the_response() -> None:
    events = accepted(CallMade("shell", "{}", "c", "shell"))
    assert final(events).status == "failed"
    assert final(events).output == []


def test_a_custom_call_that_looks_like_json_goes_on_all_the_same() -> None:
    events = accepted(
        CallOpened(0, "t", "c", "custom"),
        CallGrew(0, "1"),
        TextGrew("x"),
        CallGrew(0, "2"),
        CallClosed(0),
        COUNTED,
        STOP,
    )
    assert [item.get("input") for item in final(events).output] == ["12", None]


def test_calls_behind_one_that_was_cut_are_incomplete_too() -> None:
    events = accepted(
        CallOpened(0, "f", "c0"),
        CallGrew(0, '{"a":'),
        made("shell", "c1"),
        COUNTED,
        Stopped("length"),
    )
    assert [item["status"] for item in final(events).output] == ["incomplete", "incomplete"]


def test_what_was_repaired_stands_in_the_notes() -> None:
    events = accepted(Repaired("a"), Repaired("b"), COUNTED, STOP)
    assert final(events).antiphon == Notes(repaired=("a", "b"))


def test_half_a_call_is_incomplete_also_where_prose_was_told_beside_it() -> None:
    cut: list[Delta] = [
        CallOpened(0, "f", "call_1"),
        CallGrew(0, '{"a"'),
        TextGrew("so"),
        Stopped("length"),
    ]

    last = build(cut)[-1]

    assert isinstance(last, ResponseIncomplete)
    assert [(item["type"], item["status"]) for item in last.response.output] == [
        ("function_call", "incomplete"),
        ("message", "incomplete"),
    ]


# Several rounds of a model in one response.


def rounds(*rounds: list[Delta]) -> list[Event]:
    """The stream of a response that a model writes in several rounds."""
    builder = ResponseBuilder(Response(id="resp_1", usage=COUNTED.usage), counting_mint())
    events = builder.start()
    for number, deltas in enumerate(rounds):
        events += builder.next_round() if number else []
        events += builder.feed_all(deltas)
    events += builder.feed(STOP) + builder.finish(7)
    assert judge_stream(events) == []
    return events


def test_rounds_may_use_the_same_keys_for_their_calls() -> None:
    events = rounds(
        [CallOpened(0, "f", "call_f"), CallGrew(0, '{"a":')],
        [CallOpened(0, "g", "call_g"), CallGrew(0, "{}")],
    )
    calls = [(item["name"], item["arguments"]) for item in final(events).output]
    assert calls == [("f", '{"a":'), ("g", "{}")]


def test_each_round_writes_messages_of_its_own() -> None:
    output = final(rounds([TextGrew("one")], [TextGrew("two")])).output
    assert [item["content"][0]["text"] for item in output] == ["one", "two"]


def test_a_hosted_item_may_run_between_two_rounds() -> None:
    item: Item = {"type": "web_search_call", "status": "completed", "action": {}}
    events = rounds(
        [ItemOpened("s", item), CallOpened(0, "f", "call_f"), TextGrew("first")],
        [CallOpened(0, "g", "call_g"), TextGrew("second"), ItemClosed("s", item)],
    )
    output = final(events).output
    kinds = [one["type"] for one in output]
    assert kinds == ["web_search_call", "function_call", "function_call", "message", "message"]
    assert [one["content"][0]["text"] for one in output[3:]] == ["first", "second"]
