"""A finished response as a stream: the same items, told in the order of the specification."""

from __future__ import annotations

import pytest

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    ItemPassed,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    SummaryGrew,
    TextGrew,
)
from antiphon.protocol.events import (
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputTextDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.machines.replay import replay_response
from antiphon.protocol.response import Notes, Response, Usage
from tests.building import COUNTED, STOP, build, counting_mint

NOTE = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}


def final(events: list[Event]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    return last.response


def kinds(events: list[Event]) -> list[str]:
    return [event_type(event).removeprefix("response.") for event in events]


def told(response: Response) -> list[Event]:
    """Tell, and let the referee look at it first."""
    events = replay_response(response)
    assert judge_stream(events) == []
    assert final(events) == response
    return events


def test_an_answer_in_one_piece_is_told_as_the_builder_tells_it() -> None:
    events = build([TextGrew("Hello"), AnnotationAdded(NOTE), COUNTED, STOP])
    assert kinds(told(final(events))) == kinds(events)


def test_a_text_in_many_pieces_is_told_in_one() -> None:
    events = told(final(build([TextGrew("a"), TextGrew("b"), TextGrew("c"), COUNTED, STOP])))
    assert [e.delta for e in events if isinstance(e, OutputTextDelta)] == ["abc"]


def test_every_kind_of_item_is_told() -> None:
    deltas: list[Delta] = [
        SummaryGrew("so"),
        ReasoningGrew("hm"),
        TextGrew("one", ({"token": "one", "logprob": -1.0},)),
        RefusalGrew("no"),
        TextGrew("two"),
        CallOpened(0, "f", "call_f"),
        CallGrew(0, '{"a":1}'),
        CallOpened(1, "g", "call_g"),
        ItemPassed({"type": "image_generation_call", "status": "completed", "result": "AA"}),
        ItemPassed({"type": "acme:search", "status": "completed", "hits": [1]}),
        COUNTED,
        STOP,
    ]
    events = build(deltas)
    again = told(final(events))
    assert [e.item for e in again if isinstance(e, OutputItemAdded)][-1]["hits"] == [1]
    # The calls stood side by side, and are told one after the other.
    assert sorted(kinds(again)) == sorted(kinds(events))


def test_sealed_content_is_told_when_the_item_is_done() -> None:
    events = told(
        final(build([ReasoningGrew("why"), COUNTED, STOP], seal=lambda item, state: "sealed"))
    )
    added = next(e.item for e in events if isinstance(e, OutputItemAdded))
    assert "encrypted_content" not in added
    assert final(events).output[0]["encrypted_content"] == "sealed"


def test_a_failed_response_is_told_with_its_error() -> None:
    events = told(final(build([TextGrew("half"), CallOpened(0, "f", "c"), CallGrew(0, "{")])))
    assert kinds(events)[-2:] == ["error", "failed"]
    assert isinstance(events[-2], ErrorEvent)
    assert events[-2].code == "upstream_closed"


def test_a_failed_response_without_a_reason_is_told_all_the_same() -> None:
    events = replay_response(Response(id="r", status="failed", usage=Usage()))
    assert kinds(events) == ["created", "in_progress", "error", "failed"]


def test_a_response_that_was_cut_short_is_told_as_incomplete() -> None:
    events = told(final(build([TextGrew("cut"), COUNTED, Stopped("length")])))
    assert kinds(events)[-1] == "incomplete"


def test_a_cancelled_response_is_told_as_cancelled() -> None:
    builder = ResponseBuilder(Response(id="r", usage=Usage()), counting_mint())
    builder.start()
    builder.feed(CallOpened(0, "f", "c"))
    events = told(final(builder.cancel()))
    assert kinds(events)[-1] == "incomplete"
    assert final(events).status == "cancelled"


def test_what_only_the_end_knew_is_not_told_at_the_beginning() -> None:
    builder = ResponseBuilder(Response(id="r"), counting_mint())
    builder.start()
    builder.feed(Degraded("verbosity"))
    builder.feed(STOP)
    builder.note_estimate(Usage(total_tokens=3))
    first = told(final(builder.finish(7)))[0]

    assert isinstance(first, ResponseCreated)
    assert first.response.usage is None
    assert first.response.completed_at is None
    assert first.response.antiphon == Notes(degraded=("verbosity",))


@pytest.mark.parametrize("status", ["queued", "in_progress", "strange"])
def test_a_response_that_has_not_ended_cannot_be_told(status: str) -> None:
    with pytest.raises(ValueError, match="has not ended"):
        replay_response(Response(id="r", status=status))


@pytest.mark.parametrize(
    "item",
    [
        {"id": "m", "type": "message", "role": "assistant", "content": "a string"},
        {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "audio"}]},
        {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text"}]},
        {"id": "m", "type": "message", "role": "assistant", "content": ["no part"]},
        {"type": "message", "role": "assistant", "content": []},
        {"id": "f", "type": "function_call", "call_id": "c", "name": "f"},
        {"id": "c", "type": "custom_tool_call", "call_id": "c", "name": "f"},
        {"id": "s", "type": "shell_call", "call_id": "c", "action": "ls"},
        {"id": "t", "type": "tool_search_call", "call_id": None, "arguments": "text"},
        {"type": "apply_patch_call", "call_id": "c", "operation": {}},
        {"id": "x"},
    ],
)
def test_an_item_of_another_shape_is_told_whole(item: Item) -> None:
    done = Response(id="r", status="completed", completed_at=1, output=[item], usage=Usage())
    events = replay_response(done)
    assert kinds(events)[2:-1] == ["output_item.added", "output_item.done"]
    assert final(events) == done


def test_reasoning_without_a_status_stays_without() -> None:
    item: Item = {"id": "rs", "type": "reasoning", "summary": [], "content": None}
    done = Response(id="r", status="completed", completed_at=1, output=[item], usage=Usage())
    (added,) = [e.item for e in told(done) if isinstance(e, OutputItemAdded)]
    assert added == {"id": "rs", "type": "reasoning", "summary": []}


def test_the_stream_shares_nothing_with_the_response() -> None:
    response = final(build([TextGrew("x"), COUNTED, STOP]))
    final(replay_response(response)).output[0]["content"][0]["text"] = "changed"
    assert response.output_text == "x"


@pytest.mark.parametrize(
    "call",
    [
        CallMade("c", "text", "x", "custom", "n"),
        CallMade("c", "", "x", "custom"),
        CallMade("g", "{}", "x", "function", "n"),
        CallMade("shell", '{"commands":["ls"]}', "x", "shell"),
        CallMade("local_shell", '{"command":["ls"]}', "x", "local_shell"),
        CallMade(
            "apply_patch",
            '{"operation":{"type":"create_file","path":"a","diff":"+x"}}',
            "x",
            "apply_patch",
        ),
        CallMade("tool_search", '{"paths":["a"]}', "x", "tool_search"),
    ],
)
def test_a_call_of_any_family_is_told_as_the_builder_tells_it(call: CallMade) -> None:
    events = build([call, TextGrew("x"), COUNTED, STOP])
    # Only what the response has counted is not known yet when it begins.
    assert told(final(events))[2:-1] == events[2:-1]
