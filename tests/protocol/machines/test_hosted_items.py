"""Hosted and foreign items: the stages of each type, in the right order, whatever is reported."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter

from antiphon.protocol.codec import decode_event, encode_event
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Delta,
    ItemClosed,
    ItemOpened,
    ItemPassed,
    ItemProgressed,
    NativeState,
    ReasoningGrew,
    TextGrew,
)
from antiphon.protocol.events import (
    CodeDelta,
    Event,
    McpArgumentsDelta,
    OutputItemAdded,
    OutputItemDone,
    PartialImage,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    UnknownEvent,
    event_type,
)
from antiphon.protocol.items import Item
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.log import pack_events, unpack_events
from antiphon.protocol.machines.rebuild import rebuild
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.machines.replay import replay_response
from antiphon.protocol.response import Failure, Response
from tests.building import COUNTED, STOP, build, counting_mint

GONE: Final = Failure("server_restarted", "the server was restarted")
WEB: Item = {
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "u"}]},
}
FILES: Item = {
    "type": "file_search_call",
    "status": "completed",
    "queries": ["q"],
    "results": [{"file_id": "f", "filename": "n", "score": 0.5, "text": "t", "attributes": {}}],
}
CODE: Item = {
    "type": "code_interpreter_call",
    "status": "completed",
    "container_id": "cntr_1",
    "code": "print(1)",
    "outputs": [{"type": "logs", "logs": "1"}],
}
IMAGE: Item = {"type": "image_generation_call", "status": "completed", "result": "aGk="}
MCP: Item = {
    "type": "mcp_call",
    "status": "completed",
    "server_label": "s",
    "name": "n",
    "arguments": '{"a":1}',
    "output": "found",
}
LIST: Item = {
    "type": "mcp_list_tools",
    "server_label": "s",
    "tools": [{"name": "n", "input_schema": {}}],
}
REQUEST: Item = {
    "type": "mcp_approval_request",
    "server_label": "s",
    "name": "n",
    "arguments": "{}",
}
SHELL: Item = {
    "type": "shell_call",
    "status": "completed",
    "call_id": "c",
    "action": {"commands": ["ls", "pwd"], "timeout_ms": None, "max_output_length": 9},
    "environment": {"type": "container_reference", "container_id": "cntr_1"},
}
PRINTED: Item = {
    "type": "shell_call_output",
    "status": "completed",
    "call_id": "c",
    "max_output_length": 9,
    "output": [
        {"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "", "outcome": {"type": "timeout"}},
    ],
}
_COMMANDS: Final = [f"shell_call_command.{step}" for step in ("added", "delta", "done")]
ERROR: Final = {"type": "http_error", "code": 500, "message": "no answer"}
SEQUENCES: Final[dict[str, tuple[Item, list[str]]]] = {
    "web search": (
        WEB,
        [
            "web_search_call.in_progress",
            "web_search_call.searching",
            "web_search_call.completed",
        ],
    ),
    "file search": (
        FILES,
        [
            "file_search_call.in_progress",
            "file_search_call.searching",
            "file_search_call.completed",
        ],
    ),
    "code": (
        CODE,
        [
            "code_interpreter_call.in_progress",
            "code_interpreter_call_code.delta",
            "code_interpreter_call_code.done",
            "code_interpreter_call.interpreting",
            "code_interpreter_call.completed",
        ],
    ),
    "image": (
        IMAGE,
        [
            "image_generation_call.in_progress",
            "image_generation_call.generating",
            "image_generation_call.completed",
        ],
    ),
    "mcp call": (
        MCP,
        [
            "mcp_call.in_progress",
            "mcp_call_arguments.delta",
            "mcp_call_arguments.done",
            "mcp_call.completed",
        ],
    ),
    "failed mcp call": (
        {**MCP, "status": "failed", "output": None, "error": ERROR},
        [
            "mcp_call.in_progress",
            "mcp_call_arguments.delta",
            "mcp_call_arguments.done",
            "mcp_call.failed",
        ],
    ),
    "mcp tools": (LIST, ["mcp_list_tools.in_progress", "mcp_list_tools.completed"]),
    "no mcp tools": (
        {**LIST, "tools": [], "error": "no such server"},
        ["mcp_list_tools.in_progress", "mcp_list_tools.failed"],
    ),
    "approval": (REQUEST, []),
    "shell": (SHELL, [*_COMMANDS, *_COMMANDS]),
    "shell output": (
        PRINTED,
        [
            "shell_call_output_content.delta",
            "shell_call_output_content.delta",
            "shell_call_output_content.done",
            "shell_call_output_content.done",
        ],
    ),
    "foreign": ({"type": "acme:search", "status": "completed", "hits": [1]}, []),
}
EVENTS: Final[TypeAdapter[Any]] = TypeAdapter(ResponseStreamEvent)
ITEMS: Final[TypeAdapter[Any]] = TypeAdapter(ResponseOutputItem)


def stage(name: str, **fields: Any) -> ItemProgressed:
    return ItemProgressed("k", f"response.{name}", fields)


def hosted(item: Item, *steps: Delta) -> list[Delta]:
    """An item from its opening to its end, with these deltas between."""
    return [ItemOpened("k", item), *steps, ItemClosed("k", item)]


def final(events: list[Event]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    return last.response


def accepted(*deltas: Delta) -> list[Event]:
    """Build a stream that all machines, the log and a replay agree on."""
    events = build([*deltas, COUNTED, STOP])
    response = final(events)
    assert judge_stream(events) == []
    assert unpack_events(pack_events(events), response) == events
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(decode_event(encode_event(event)))
    assert accumulator.deviations == []
    assert accumulator.finish() == response
    again = replay_response(response)
    assert judge_stream(again) == []
    assert final(again) == response
    return events


def inside(events: list[Event]) -> list[str]:
    """The names of the events between the first item's opening and its end."""
    names = [event_type(event).removeprefix("response.") for event in events]
    return names[names.index("output_item.added") + 1 : names.index("output_item.done")]


@pytest.mark.parametrize("what", SEQUENCES)
def test_each_type_has_the_events_of_the_reference(what: str) -> None:
    item, names = SEQUENCES[what]
    events = accepted(*hosted(item))
    assert inside(events) == names
    (done,) = final(events).output
    assert {**done, "id": None} == {**item, "id": None}


@pytest.mark.parametrize("what", SEQUENCES)
def test_a_whole_item_has_the_same_events(what: str) -> None:
    item, _ = SEQUENCES[what]
    assert accepted(ItemPassed(item)) == accepted(*hosted(item))


@pytest.mark.parametrize("what", [what for what in SEQUENCES if what != "foreign"])
def test_the_official_types_know_every_event_and_item(what: str) -> None:
    for event in accepted(*hosted(SEQUENCES[what][0])):
        value = json.loads(encode_event(event))
        read = EVENTS.validate_python(value)
        assert read.type == value["type"]
        # What the types do not declare would be in `model_extra`.
        assert type(event).__name__.startswith("Response") or not read.model_extra
        if isinstance(event, OutputItemAdded | OutputItemDone):
            assert ITEMS.validate_python(event.item).type == event.item["type"]


def test_an_opening_item_shows_nothing_that_is_not_known_yet() -> None:
    opened = [
        event.item
        for item in (FILES, CODE, IMAGE, MCP, LIST)
        for event in accepted(*hosted(item))
        if isinstance(event, OutputItemAdded)
    ]
    files, code, image, mcp, tools = opened
    assert (files["status"], files["queries"], "results" in files) == ("in_progress", ["q"], False)
    assert (code["code"], code["outputs"]) == ("", None)
    assert image["result"] is None
    assert (mcp["arguments"], "output" in mcp, "error" in mcp) == ("", False, False)
    assert tools["tools"] == []


def test_reported_stages_come_when_they_are_reported_and_only_once() -> None:
    deltas = [
        stage("web_search_call.searching"),
        stage("web_search_call.in_progress"),
        stage("web_search_call.searching"),
        stage("web_search_call.completed"),
    ]
    assert inside(accepted(*hosted(WEB, *deltas))) == SEQUENCES["web search"][1]


def test_a_text_is_completed_by_the_final_item() -> None:
    deltas = [stage("code_interpreter_call_code.delta", delta="pri")]
    events = accepted(*hosted(CODE, *deltas))
    assert [e.delta for e in events if isinstance(e, CodeDelta)] == ["pri", "nt(1)"]
    deltas = [stage("mcp_call_arguments.done", arguments='{"a":1}')]
    events = accepted(*hosted(MCP, *deltas))
    assert [e.delta for e in events if isinstance(e, McpArgumentsDelta)] == ['{"a":1}']


def test_previews_of_an_image_are_counted_by_the_builder() -> None:
    shown = stage(
        "image_generation_call.partial_image", partial_image_b64="AA", size="1x1", mood="blue"
    )
    events = accepted(*hosted(IMAGE, shown, shown))
    previews = [event for event in events if isinstance(event, PartialImage)]
    assert [event.partial_image_index for event in previews] == [0, 1]
    assert [(event.size, event.extra) for event in previews] == [("1x1", {"mood": "blue"})] * 2


def test_an_event_that_nobody_knows_keeps_its_fields() -> None:
    item: Item = {"type": "acme:search", "status": "completed"}
    events = accepted(*hosted(item, ItemProgressed("k", "acme:looked", {"hits": 3})))
    (event,) = [event for event in events if isinstance(event, UnknownEvent)]
    assert (event.type, event.fields["hits"]) == ("acme:looked", 3)
    assert event.fields["item_id"] == final(events).output[0]["id"]


def test_an_item_keeps_the_id_that_it_was_given() -> None:
    events = accepted(*hosted({**REQUEST, "id": "mcpr_theirs"}))
    assert final(events).output[0]["id"] == "mcpr_theirs"


def test_items_that_run_side_by_side_end_in_their_order() -> None:
    events = accepted(
        ItemOpened("a", WEB), ItemOpened("b", MCP), ItemClosed("b", MCP), ItemClosed("a", WEB)
    )
    done = [event.item["type"] for event in events if isinstance(event, OutputItemDone)]
    assert done == ["web_search_call", "mcp_call"]
    # Nothing counts as completed before its result is in the stream.
    names = [event_type(event) for event in events]
    assert names.index("response.mcp_call.completed") > names.index("response.output_item.done")


def test_text_waits_until_an_open_item_is_closed() -> None:
    events = accepted(
        ItemOpened("k", WEB),
        TextGrew("after"),
        CallOpened(0, "f", "c"),
        CallGrew(0, "{}"),
        ItemClosed("k", WEB),
    )
    kinds = [item["type"] for item in final(events).output]
    assert kinds == ["web_search_call", "function_call", "message"]


@pytest.mark.parametrize(
    ("item", "status"),
    [(WEB, "incomplete"), (CODE, "incomplete"), (MCP, "incomplete"), (IMAGE, "failed")],
)
def test_an_item_that_was_cut_off_says_so(item: Item, status: str) -> None:
    builder = ResponseBuilder(Response(id="r", usage=COUNTED.usage), counting_mint())
    events = builder.start() + builder.feed(ItemOpened("k", item)) + builder.cancel()
    assert judge_stream(events) == []
    (left,) = final(events).output
    assert left["status"] == status
    assert "output" not in left or item is not MCP


def test_a_list_of_tools_that_was_cut_off_has_an_error() -> None:
    events = build([ItemOpened("k", LIST)])
    assert judge_stream(events) == []
    assert final(events).output[0]["tools"] == []
    assert "ended before" in final(events).output[0]["error"]


def test_a_cut_off_item_leaves_the_calls_beside_it_whole() -> None:
    deltas: list[Delta] = [ItemOpened("k", WEB), CallOpened(0, "f", "c"), CallGrew(0, "{}")]
    builder = ResponseBuilder(Response(id="r", usage=COUNTED.usage), counting_mint())
    events = builder.start() + builder.feed_all([*deltas, TextGrew("x")]) + builder.cancel()
    assert judge_stream(events) == []
    statuses = [item["status"] for item in final(events).output]
    assert statuses == ["incomplete", "completed", "incomplete"]


INVALID: Final[dict[str, list[Delta]]] = {
    "opened twice": [ItemOpened("k", WEB), ItemOpened("k", WEB)],
    "progress of nothing": [stage("web_search_call.searching")],
    "the end of nothing": [ItemClosed("k", WEB)],
    "never closed": [ItemOpened("k", WEB)],
    "closed as another type": [ItemOpened("k", WEB), ItemClosed("k", FILES)],
    "closed in progress": [ItemOpened("k", WEB), ItemClosed("k", {**WEB, "status": "searching"})],
    "foreign and in progress": hosted({"type": "acme:x", "status": "in_progress"}),
    "an image that is incomplete": hosted({**IMAGE, "status": "incomplete"}),
    "the event of another type": hosted(WEB, stage("file_search_call.searching")),
    "an event of the response": hosted(WEB, stage("completed")),
    "progress after the end": [
        ItemOpened("j", WEB),
        *hosted(FILES),
        stage("file_search_call.searching"),
    ],
    "closed twice": [ItemOpened("j", WEB), *hosted(FILES), ItemClosed("k", FILES)],
    "another text than was streamed": hosted(
        CODE, stage("code_interpreter_call_code.delta", delta="exit()")
    ),
    "more text than the last": hosted(CODE, stage("code_interpreter_call_code.done", code="pri")),
    "text after the last": hosted(
        CODE,
        stage("code_interpreter_call.interpreting"),
        stage("code_interpreter_call_code.delta", delta="p"),
    ),
    "a delta without text": hosted(MCP, stage("mcp_call_arguments.delta", delta=None)),
    "arguments that are no text": hosted({**MCP, "arguments": {"a": 1}}),
    "a preview without an image": hosted(IMAGE, stage("image_generation_call.partial_image")),
    "a request that changes": [
        ItemOpened("k", REQUEST),
        ItemClosed("k", {**REQUEST, "arguments": '{"all":true}'}),
    ],
}


@pytest.mark.parametrize("what", INVALID)
def test_what_cannot_be_told_truly_fails_the_response(what: str) -> None:
    events = build([*INVALID[what], COUNTED, STOP])
    assert judge_stream(events) == []
    error = final(events).error
    assert error is not None and error.code == "upstream_invalid_response"


@pytest.mark.parametrize("what", SEQUENCES)
def test_a_log_cut_after_any_event_of_an_item_is_brought_to_an_end(what: str) -> None:
    item, _ = SEQUENCES[what]
    preview = stage("image_generation_call.partial_image", partial_image_b64="AA")
    events = accepted(*hosted(item, *[preview] * (item is IMAGE)), TextGrew("x"))
    for cut in range(1, len(events)):
        builder = rebuild(Response(id="resp_1", usage=COUNTED.usage), events[:cut], counting_mint())
        whole = events[:cut] + builder.fail(GONE)
        assert judge_stream(whole) == []
        left = [one["status"] for one in final(whole).output if "status" in one]
        assert "in_progress" not in left


# State that only its provider can read.


def sealed(*deltas: Delta) -> list[Item]:
    """The output of a turn whose seal shows what it was given."""

    def seal(item: Item, state: NativeState | None) -> str:
        return json.dumps([item["summary"], state and [state.wire, state.data.decode()]])

    events = build([*deltas, COUNTED, STOP], seal=seal)
    assert judge_stream(events) == []
    return final(events).output


def test_state_is_sealed_in_the_reasoning_item_that_it_ends() -> None:
    first, second, _ = sealed(
        ReasoningGrew("one"),
        NativeState("messages", b"signature"),
        ReasoningGrew("two"),
        TextGrew("answer"),
    )
    assert first["content"][0]["text"] == "one"
    assert json.loads(first["encrypted_content"])[1] == ["messages", "signature"]
    assert second["content"][0]["text"] == "two"
    assert json.loads(second["encrypted_content"])[1] is None


@pytest.mark.parametrize("attach", [None, "next", "previous"])
def test_state_without_reasoning_is_an_item_of_its_own(attach: Any) -> None:
    output = sealed(TextGrew("a"), NativeState("gemini", b"s", attach), CallOpened(0, "f", "c"))
    assert [item["type"] for item in output] == ["message", "reasoning", "function_call"]
    assert output[1]["summary"] == []
    assert json.loads(output[1]["encrypted_content"])[1] == ["gemini", "s"]


def test_state_that_belongs_to_its_neighbour_does_not_end_a_thought() -> None:
    output = sealed(ReasoningGrew("hm"), NativeState("gemini", b"s", "next"), TextGrew("x"))
    states = [json.loads(item["encrypted_content"])[1] for item in output[:2]]
    assert states == [None, ["gemini", "s"]]


def test_state_without_a_seal_leaves_no_item() -> None:
    events = accepted(ReasoningGrew("a"), NativeState("m", b"s"), NativeState("m", b"t"))
    (item,) = final(events).output
    assert "encrypted_content" not in item
