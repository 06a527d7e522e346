"""The reader of Responses streams: the habits of every server, and what none may cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemClosed,
    ItemOpened,
    ItemProgressed,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    Stopped,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.items import Item
from antiphon.wires.responses.exchange import ResponsesExchange
from antiphon.wires.responses.profiles import PROFILES
from antiphon.wires.responses.stream import ResponsesStream
from tests.building import plan_with
from tests.wires.responses.upstream import (
    USAGE,
    Json,
    answer,
    built,
    ended,
    message,
    read,
    sse,
    texted,
)

LOOK: Final[Json] = {"type": "function", "name": "look", "parameters": {"type": "object"}}
HELLO: Final = [*texted(["Hel", "lo"]), ended([message("Hello")])]
CALL: Final[Item] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"a": 1}',
    "status": "completed",
}
THOUGHT: Final[Item] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
    "encrypted_content": "cipher",
}
SEARCH: Final[Item] = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}


def split_read(data: bytes, size: int) -> list[Delta]:
    """Return the deltas of a stream that arrives in pieces of this size."""
    stream = ResponsesStream(PROFILES["openai"], plan_with().toolbox, account="team")
    deltas: list[Delta] = []
    for begin in range(0, len(data), size):
        deltas += stream.feed(data[begin : begin + size])
    return [*deltas, *stream.end()]


def without(events: Sequence[Json], *kinds: str) -> list[Json]:
    return [event for event in events if event["type"].removeprefix("response.") not in kinds]


def stripped(events: Sequence[Json], *fields: str) -> list[Json]:
    return [{name: event[name] for name in event if name not in fields} for event in events]


def added(item: Item, index: int) -> Json:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: Item, index: int) -> Json:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def called(index: int = 0) -> list[Json]:
    place = {"output_index": index, "item_id": "fc_1"}
    begun = {**CALL, "arguments": "", "status": "in_progress"}
    deltas = [
        {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        for piece in ('{"a"', ": 1}")
    ]
    last = {"type": "response.function_call_arguments.done", **place, "arguments": '{"a": 1}'}
    return [added(begun, index), *deltas, last, done(CALL, index)]


def text_of(events: Sequence[Json], **settings: Any) -> str:
    """Return the text of the one message that the events make."""
    response = built(read(sse(events), **settings))
    (item,) = response.output
    return str(item["content"][0]["text"])


# A stream without habits.


def test_a_plain_stream_is_its_text_usage_and_stop() -> None:
    deltas = read(sse(HELLO))
    assert [type(delta) for delta in deltas] == [TextGrew, TextGrew, UsageKnown, Stopped]
    usage = built(deltas).usage
    assert usage is not None
    assert usage.input_tokens_details.cached_tokens == 3
    assert usage.input_tokens_details.cache_write_tokens == 1
    assert usage.total_tokens == USAGE["total_tokens"]


def test_lifecycle_events_are_not_yet_an_answer() -> None:
    stream = ResponsesStream(PROFILES["openai"], plan_with().toolbox)
    created = {"type": "response.created", "response": {"id": "r", "output": []}}
    assert stream.feed(sse([created])) == []
    assert not stream.has_begun
    stream.feed(sse(texted(["x"])[:1]))
    assert stream.has_begun


@given(st.integers(1, 40))
def test_any_split_of_the_bytes_gives_the_same_deltas(size: int) -> None:
    events = [
        *texted(["Grüß", " Gott"]),
        *called(1),
        added({**SEARCH, "status": "in_progress"}, 2),
        done(SEARCH, 2),
        ended([message("Grüß Gott"), CALL, SEARCH]),
    ]
    assert split_read(sse(events), size) == read(sse(events))


def test_the_end_mark_of_other_apis_is_no_harm() -> None:
    assert read(sse(HELLO) + b"data: [DONE]\n\n") == read(sse(HELLO))


# Which item an event is about.


def test_indexes_may_be_missing() -> None:
    fields = ("output_index", "content_index", "sequence_number")
    assert text_of(stripped(HELLO, *fields), profile="llamacpp") == "Hello"


def test_ids_may_change_with_every_event() -> None:
    rotated = [
        {**event, **({"item_id": f"id_{number}"} if "item_id" in event else {})}
        for number, event in enumerate(HELLO)
    ]
    assert text_of(rotated) == "Hello"


def test_an_item_may_end_under_another_id() -> None:
    events = [*HELLO[:-2], done(message("Hello") | {"id": "msg_other"}, 0), HELLO[-1]]
    assert text_of(events) == "Hello"


def test_indexes_may_all_be_zero() -> None:
    thought = {**THOUGHT, "encrypted_content": None}
    events = [
        added({**thought, "summary": []}, 0),
        done(thought, 0),
        *texted(["Hello"], index=0),
        ended([message("Hello")]),
    ]
    response = built(read(sse(events)))
    assert [item["type"] for item in response.output] == ["reasoning", "message"]
    assert response.output[1]["content"][0]["text"] == "Hello"


def test_a_wrong_content_index_does_not_lose_text() -> None:
    events = [{**event, "content_index": 3} if "delta" in event else event for event in HELLO]
    response = built(read(sse(events)))
    assert "".join(part["text"] for part in response.output[0]["content"]) == "Hello"


# What may be missing.


@pytest.mark.parametrize(
    "kinds",
    [
        ["output_item.added"],
        ["content_part.added"],
        ["output_text.delta"],
        ["output_text.delta", "output_text.done"],
        ["output_text.delta", "output_text.done", "content_part.done"],
        ["output_text.done"],
        ["output_item.done"],
        ["output_item.added", "output_item.done"],
        ["output_text.done", "content_part.done", "output_item.done"],
    ],
)
def test_events_may_be_missing(kinds: list[str]) -> None:
    assert text_of(without(HELLO, *kinds)) == "Hello"


def test_an_answer_may_be_in_the_terminal_event_alone() -> None:
    assert text_of([HELLO[-1]]) == "Hello"


def test_a_terminal_event_without_output_takes_nothing_away() -> None:
    assert text_of([*HELLO[:-1], ended([])]) == "Hello"


def test_the_tail_that_no_delta_had_is_added() -> None:
    trimmed = [event for event in HELLO if event.get("delta") != "lo"]
    deltas = read(sse(trimmed))
    assert [delta.text for delta in deltas if isinstance(delta, TextGrew)] == ["Hel", "lo"]


def test_a_text_that_ends_as_another_one_is_kept_and_reported() -> None:
    events = [
        {**event, "delta": "Hal"} if event.get("delta") == "Hel" else event for event in HELLO
    ]
    deltas = read(sse(events))
    assert built(deltas).output[0]["content"][0]["text"] == "Hallo"
    assert any(isinstance(delta, Reported) for delta in deltas)


def test_an_end_that_comes_twice_is_one_end() -> None:
    assert text_of([*HELLO[:-1], HELLO[-2], HELLO[-1]]) == "Hello"


# Messages.


def test_two_messages_in_a_row_stay_two_with_their_phases() -> None:
    first, second = texted(["Hm."], 0, "msg_1"), texted(["Hello"], 1, "msg_2")
    for event, phase in ((first[0], "commentary"), (second[0], "final_answer")):
        event["item"] = {**event["item"], "phase": phase}
    output = built(read(sse([*first, *second, ended([])]))).output
    assert [item["phase"] for item in output] == ["commentary", "final_answer"]
    assert [item["content"][0]["text"] for item in output] == ["Hm.", "Hello"]


def test_parts_of_a_summary_stay_parts() -> None:
    events: list[Json] = [added({**THOUGHT, "summary": []}, 0)]
    for index, text in enumerate(("One.", "Two.")):
        place = {"output_index": 0, "item_id": "rs_1", "summary_index": index}
        events.append({"type": "response.reasoning_summary_text.delta", **place, "delta": text})
    events += [done(THOUGHT, 0), *texted(["Hello"], 1), ended([])]
    deltas = read(sse(events))
    assert deltas[:3] == [
        SummaryGrew("One.", "item"),
        SummaryGrew("Two.", "part"),
        NativeState("responses", b"cipher", account="team"),
    ]
    summary = built(deltas).output[0]["summary"]
    assert [part["text"] for part in summary] == ["One.", "Two."]


@pytest.mark.parametrize("name", ["reasoning_text", "reasoning"])
def test_raw_reasoning_has_two_names(name: str) -> None:
    place = {"output_index": 0, "item_id": "rs_1", "content_index": 0}
    events = [
        added({"type": "reasoning", "id": "rs_1", "summary": []}, 0),
        {"type": f"response.{name}.delta", **place, "delta": "hm"},
        *texted(["Hello"], 1),
        ended([]),
    ]
    assert read(sse(events))[0] == ReasoningGrew("hm", "item")


def test_a_refusal_is_one() -> None:
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    part = {"type": "refusal", "refusal": "No."}
    events = [
        added(message("") | {"content": []}, 0),
        {"type": "response.refusal.delta", **place, "delta": "No"},
        {"type": "response.refusal.done", **place, "refusal": "No."},
        done(message("") | {"content": [part]}, 0),
        ended([]),
    ]
    assert built(read(sse(events))).output[0]["content"] == [part]


def test_annotations_may_stand_in_the_finished_part_alone() -> None:
    note = {"type": "url_citation", "url": "http://x", "start_index": 0, "end_index": 1}
    whole = message("Hello")
    whole["content"][0]["annotations"] = [note]
    deltas = read(sse([*HELLO[:-2], done(whole, 0), ended([whole])]))
    assert [delta for delta in deltas if isinstance(delta, AnnotationAdded)] == [
        AnnotationAdded(note)
    ]


def test_an_annotation_that_comes_twice_is_one() -> None:
    note = {"type": "url_citation", "url": "http://x"}
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0, "annotation_index": 0}
    event = {"type": "response.output_text.annotation.added", **place, "annotation": note}
    whole = message("Hello")
    whole["content"][0]["annotations"] = [note]
    deltas = read(sse([*HELLO[:4], event, *HELLO[4:-2], done(whole, 0), HELLO[-1]]))
    assert deltas.count(AnnotationAdded(note)) == 1


def test_logprobs_travel_with_their_text() -> None:
    events = [
        {**event, "logprobs": [{"token": event["delta"], "logprob": -1.0}]}
        if "delta" in event
        else event
        for event in HELLO
    ]
    part = built(read(sse(events))).output[0]["content"][0]
    assert [entry["token"] for entry in part["logprobs"]] == ["Hel", "lo"]


# Reasoning that only its provider can read.


def test_the_cipher_of_the_finished_item_is_kept() -> None:
    again = {**THOUGHT, "encrypted_content": "encrypted again"}
    events = [added({**THOUGHT, "summary": []}, 0), done(THOUGHT, 0), *texted(["x"], 1)]
    response = built(read(sse([*events, ended([again, message("x")])])))
    assert response.output[0]["encrypted_content"] == "cipher"


def test_reasoning_may_end_after_the_message_that_follows_it() -> None:
    place = {"output_index": 0, "item_id": "rs_1", "content_index": 0}
    thought = {"type": "reasoning", "id": "rs_tmp", "summary": [], "encrypted_content": "cipher"}
    events = [
        added({"type": "reasoning", "id": "rs_1", "summary": []}, 0),
        {"type": "response.reasoning_text.delta", **place, "delta": "hm"},
        *texted(["Hello"], 1),
        done(thought, 0),
        ended([]),
    ]
    deltas = read(sse(events), profile="openrouter")
    assert NativeState("responses", b"cipher", "previous", "team") in deltas
    types = [item["type"] for item in built(deltas).output]
    assert types == ["reasoning", "message", "reasoning"]


def test_plain_text_in_the_place_of_a_cipher_is_reasoning() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "hm"}
    deltas = read(sse([done(thought, 0), *texted(["x"], 1), ended([])]), profile="ollama")
    assert deltas[0] == ReasoningGrew("hm", "item")
    assert not any(isinstance(delta, NativeState) for delta in deltas)


# Calls.


def test_a_call_opens_grows_and_closes() -> None:
    deltas, fault = answer(sse([*called(), ended([CALL])]), tools=[LOOK])
    assert fault is None
    assert deltas[:4] == [
        CallOpened(0, "look", "call_1", "function", None, "look"),
        CallGrew(0, '{"a"'),
        CallGrew(0, ": 1}"),
        CallClosed(0),
    ]


@pytest.mark.parametrize(
    "kinds",
    [
        ["function_call_arguments.delta"],
        ["function_call_arguments.delta", "function_call_arguments.done"],
        ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done"],
        ["output_item.done"],
    ],
)
def test_arguments_may_come_at_the_end_alone(kinds: list[str]) -> None:
    events = without([*called(), ended([CALL])], *kinds)
    (item,) = built(answer(sse(events), tools=[LOOK])[0]).output
    assert item["arguments"] == '{"a": 1}'


def test_a_call_without_arguments_has_no_delta() -> None:
    call = {**CALL, "arguments": "{}"}
    events = [added({**call, "arguments": ""}, 0), done(call, 0), ended([call])]
    (item,) = built(answer(sse(events), tools=[LOOK])[0]).output
    assert item["arguments"] == "{}"


def test_calls_that_grow_at_once_stay_apart() -> None:
    first, second = called(0), called(1)
    for event in second:
        event["item_id"] = "fc_2"
        if "item" in event:
            event["item"] = {**event["item"], "id": "fc_2", "call_id": "call_2"}
    events = [first[0], second[0], second[1], first[1], first[2], second[2], first[4], second[4]]
    output = built(answer(sse([*events, ended([])]), tools=[LOOK])[0]).output
    assert [(item["call_id"], item["arguments"]) for item in output] == [
        ("call_1", '{"a": 1}'),
        ("call_2", '{"a": 1}'),
    ]


def test_a_tool_of_a_kind_that_was_lowered_is_lifted_back() -> None:
    tool = {"type": "custom", "name": "patch"}
    call = {**CALL, "name": "patch", "arguments": '{"input": "*** Begin"}'}
    events = sse([added(call, 0), done(call, 0), ended([call])])
    deltas, _ = answer(events, tools=[tool], profile="llamacpp")
    assert deltas[0] == CallMade("patch", "*** Begin", "call_1", "custom", None, "patch")


def test_a_custom_call_that_the_server_knows_comes_as_one() -> None:
    tool = {"type": "custom", "name": "patch"}
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "patch"}
    place = {"output_index": 0, "item_id": "ctc_1"}
    events = [
        added({**call, "input": ""}, 0),
        {"type": "response.custom_tool_call_input.delta", **place, "delta": "*** Be"},
        {"type": "response.custom_tool_call_input.done", **place, "input": "*** Begin"},
        done({**call, "input": "*** Begin"}, 0),
        ended([]),
    ]
    (item,) = built(answer(sse(events), tools=[tool])[0]).output
    assert (item["type"], item["input"]) == ("custom_tool_call", "*** Begin")


def test_a_call_in_a_namespace_keeps_it() -> None:
    tool = {"type": "namespace", "name": "files", "tools": [LOOK]}
    call = {**CALL, "namespace": "files"}
    deltas, _ = answer(sse([done(call, 0), ended([call])]), tools=[tool])
    assert deltas[0] == CallOpened(0, "look", "call_1", "function", "files", "files__look")


def test_a_shell_call_comes_whole() -> None:
    call: Item = {"type": "shell_call", "id": "sh_1", "call_id": "c", "status": "completed"}
    call["action"] = {"commands": ["ls"], "timeout_ms": None, "max_output_length": None}
    deltas, _ = answer(sse([done(call, 0), ended([call])]), tools=[{"type": "shell"}])
    (item,) = built(deltas).output
    assert (item["type"], item["action"]["commands"]) == ("shell_call", ["ls"])


# Items that the server runs itself, or that we do not know.


def test_steps_of_a_search_are_passed_on() -> None:
    place = {"output_index": 0, "item_id": "ws_1"}
    names = ["in_progress", "searching", "completed"]
    events = [
        added({**SEARCH, "status": "in_progress"}, 0),
        *({"type": f"response.web_search_call.{name}", **place} for name in names),
        done(SEARCH, 0),
        *texted(["Hello"], 1),
        ended([]),
    ]
    deltas = read(sse(events))
    assert [type(delta) for delta in deltas[:5]] == [ItemOpened, *[ItemProgressed] * 3, ItemClosed]
    assert built(deltas).output[0] == {**SEARCH, "id": built(deltas).output[0]["id"]}


def test_items_may_end_in_any_order() -> None:
    items = [{**SEARCH, "id": f"ws_{number}", "number": number} for number in range(4)]
    begun = [added({**item, "status": "in_progress"}, index) for index, item in enumerate(items)]
    ends = [done(items[index], index) for index in (3, 1, 0, 2)]
    output = built(read(sse([*begun, *ends, *texted(["x"], 4), ended([])]))).output
    assert [item.get("number") for item in output] == [0, 1, 2, 3, None]


def test_an_item_that_never_ends_is_taken_from_the_terminal_event() -> None:
    tools: list[Json] = [
        {"name": "t", "input_schema": {}, "description": None, "annotations": None}
    ]
    listing = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": tools}
    events = [added({**listing, "tools": []}, 0), *texted(["Hello"], 1)]
    output = built(read(sse([*events, ended([listing, message("Hello")])]))).output
    assert [item["type"] for item in output] == ["mcp_list_tools", "message"]
    assert output[0]["tools"] == tools


def test_an_item_without_any_end_is_ended_and_reported() -> None:
    events = [added({**SEARCH, "status": "in_progress"}, 0), *texted(["Hello"], 1), ended([])]
    deltas = read(sse(events))
    assert [item["type"] for item in built(deltas).output] == ["web_search_call", "message"]
    assert Reported("web_search_call: the upstream never ended it") in deltas


def test_an_item_that_is_done_while_it_runs_has_ended() -> None:
    item = {"type": "program", "id": "p_1", "status": "in_progress", "code": "1"}
    (output,) = built(read(sse([added(item, 0), done(item, 0), ended([item])]))).output
    assert (output["type"], output["status"]) == ("program", "completed")


def test_an_unknown_item_with_its_own_events_is_passed_on() -> None:
    item = {"type": "vendor:thing", "id": "v_1", "status": "completed"}
    event = {"type": "response.vendor_thing.delta", "output_index": 0, "item_id": "v_1", "x": 1}
    deltas = read(sse([added(item, 0), event, done(item, 0), ended([item])]))
    assert deltas[1] == ItemProgressed("0", "response.vendor_thing.delta", {"x": 1})
    assert built(deltas).output[0]["type"] == "vendor:thing"


def test_an_unknown_event_about_nothing_is_reported_once() -> None:
    event = {"type": "response.weather", "temperature": 3}
    deltas = read(sse([event, event, {"type": "keepalive"}, *HELLO]))
    reports = [delta for delta in deltas if isinstance(delta, Reported)]
    assert reports == [Reported("event response.weather: it cannot be passed on")]


def test_code_that_ends_as_another_one_is_kept_and_reported() -> None:
    item = {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "outputs": []}
    item |= {"container_id": "c", "code": "other"}
    place = {"output_index": 0, "item_id": "ci_1"}
    delta = {"type": "response.code_interpreter_call_code.delta", **place, "delta": "print()"}
    begun = added({**item, "status": "in_progress", "code": ""}, 0)
    deltas = read(sse([begun, delta, done(item, 0), *texted(["x"], 1), ended([])]))
    assert built(deltas).output[0]["code"] == "print()"
    assert any(isinstance(one, Reported) for one in deltas)


def test_an_approval_keeps_the_id_that_its_answer_names() -> None:
    item = {"type": "mcp_approval_request", "id": "mcpr_up", "name": "t", "arguments": "{}"}
    item["server_label"] = "s"
    begun = {**item, "arguments": ""}
    (output,) = built(read(sse([added(begun, 0), done(item, 0), ended([item])]))).output
    assert output == item


# Ends.


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_output_tokens", "length"), ("content_filter", "content_filter"), ("moon", "length")],
)
def test_an_incomplete_answer_is_one_with_its_usage(reason: str, stop: Any) -> None:
    end = ended([], "incomplete", incomplete_details={"reason": reason})
    deltas, fault = answer(sse([*HELLO[:-1], end]))
    assert fault is None
    assert deltas[-1] == Stopped(stop)
    assert any(isinstance(delta, UsageKnown) for delta in deltas)
    assert any(isinstance(delta, Reported) for delta in deltas) == (reason == "moon")


@pytest.mark.parametrize(
    ("profile", "stop"), [("llamacpp", "length"), ("generic", "length"), ("openai", "stop")]
)
def test_completed_at_the_limit_of_tokens_is_cut(profile: str, stop: Any) -> None:
    deltas, _ = answer(sse(HELLO), profile=profile, limit=USAGE["output_tokens"])
    assert deltas[-1] == Stopped(stop)


ERROR: Final = {"code": "server_error", "message": "It broke."}


@pytest.mark.parametrize(
    "end",
    [
        [{"type": "error", "code": "server_error", "message": "It broke."}],
        [{"type": "error", "error": ERROR}],
        [{"error": ERROR, "type": "error"}, ended([], "failed", error=ERROR)],
        [ended([], "failed", error=ERROR)],
        [ended([], "completed", error=ERROR)],
    ],
    ids=["flat", "nested", "both", "failed", "completed"],
)
def test_every_way_to_fail_is_a_fault_after_what_was_said(end: list[Json]) -> None:
    deltas, fault = answer(sse([*HELLO[:-1], *end]))
    assert fault is not None
    assert "It broke." in fault.message
    assert [delta.text for delta in deltas if isinstance(delta, TextGrew)] == ["Hel", "lo"]
    assert not any(isinstance(delta, Stopped) for delta in deltas)


def test_a_failed_answer_tells_what_it_cost() -> None:
    deltas, _ = answer(sse([ended([], "failed", error=ERROR)]))
    assert any(isinstance(delta, UsageKnown) for delta in deltas)


@pytest.mark.parametrize("kind", ["failed", "incomplete"])
def test_an_end_without_a_reason_is_told_apart(kind: str) -> None:
    status = "cancelled" if kind == "incomplete" else "failed"
    end = ended([], kind)
    end["response"]["status"] = status
    _, fault = answer(sse([*HELLO[:-1], end]))
    assert fault is not None
    assert status in fault.message


@pytest.mark.parametrize(
    ("code", "status"),
    [("rate_limit_exceeded", 429), ("server_is_overloaded", 503), ("server_error", 502)],
)
def test_a_fault_has_the_status_of_its_code(code: str, status: int) -> None:
    _, fault = answer(sse([{"type": "error", "code": code, "message": "x"}]))
    assert fault is not None
    assert fault.status == status


def test_a_stream_without_a_terminal_event_is_a_fault() -> None:
    deltas, fault = answer(sse(HELLO[:-1]))
    assert fault is not None
    assert fault.code == "upstream_closed"
    assert any(isinstance(delta, TextGrew) for delta in deltas)


@pytest.mark.parametrize("last", [sse([ended([])]), b"data: {nonsense\n\n"], ids=["end", "fault"])
def test_text_after_the_end_is_not_part_of_the_answer(last: bytes) -> None:
    exchange = ResponsesExchange(plan_with(), PROFILES["generic"])
    for data in (sse(HELLO[:4]), last):
        exchange.feed(data)
    assert exchange.is_done or exchange.fault is not None
    assert exchange.feed(sse(HELLO[3:4])) == []


def test_a_terminal_event_may_lack_its_blank_line() -> None:
    assert read(sse(HELLO).rstrip(b"\n"))[-1] == Stopped("stop")


def test_bytes_that_are_no_events_are_a_fault_after_what_was_said() -> None:
    deltas, fault = answer(sse(HELLO[:4]) + b"data: {nonsense\n\n")
    assert fault is not None
    assert fault.code == "upstream_invalid_response"
    assert [delta.text for delta in deltas if isinstance(delta, TextGrew)] == ["Hel", "lo"]


def test_the_tier_that_was_used_is_reported() -> None:
    assert TierUsed("flex") in read(sse([*HELLO[:-1], ended([], service_tier="flex")]))


# Answers that are not streamed.


def whole(response: Json, **fields: Any) -> tuple[list[Delta], Any]:
    exchange = ResponsesExchange(plan_with(**fields), PROFILES["openai"], frozenset(), "team")
    return [*exchange.whole(json.dumps(response).encode())], exchange.fault


def test_a_whole_answer_is_what_its_stream_would_be() -> None:
    response = ended([THOUGHT, message("Hello"), CALL, SEARCH])["response"]
    deltas, fault = whole(response, tools=[LOOK])
    assert fault is None
    output = built(deltas).output
    types = [item["type"] for item in output]
    assert types == ["reasoning", "message", "function_call", "web_search_call"]
    assert [part["text"] for part in output[0]["summary"]] == ["One.", "Two."]
    assert output[2]["call_id"] == "call_1"


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ({"error": {"message": "x", "code": "server_error"}}, "upstream_error"),
        (ended([], "failed", error=ERROR)["response"], "upstream_error"),
        (ended([], "in_progress")["response"], "upstream_invalid_response"),
        ([], "upstream_invalid_response"),
        ({"object": "chat.completion", "id": "x"}, "upstream_invalid_response"),
    ],
)
def test_a_whole_answer_that_is_none_is_a_fault(response: Any, code: str) -> None:
    _, fault = whole(response)
    assert fault.code == code


@pytest.mark.parametrize("kind", ["response.output_text.delta", "response.refusal.delta"])
def test_a_character_that_was_cut_in_two_is_put_together(kind: str) -> None:
    place = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    pieces = [{"type": kind, **place, "delta": text} for text in ("a\ud83d", "\ude00b")]
    deltas, fault = answer(sse([*pieces, ended([])]))
    assert fault is None
    assert "".join(one.text for one in deltas if isinstance(one, TextGrew | RefusalGrew)) == "a😀b"


def test_half_a_character_that_stays_alone_is_replaced() -> None:
    whole = message("a\ud83d")
    added = {"type": "response.output_item.added", "output_index": 0, "item": message("")}
    piece = {"type": "response.output_text.delta", "output_index": 0, "content_index": 0}
    response = built(read(sse([added, {**piece, "delta": "a\ud83d"}, ended([whole])])))
    assert response.output[0]["content"][0]["text"] == "a\ufffd"


def test_arguments_that_were_cut_in_a_character_are_put_together() -> None:
    item = CALL | {"arguments": ""}
    place = {"output_index": 0, "item_id": "fc_1"}
    pieces = ['{"a": "\ud83d', '\ude00"}']
    grown = [
        {"type": "response.function_call_arguments.delta", **place, "delta": p} for p in pieces
    ]
    whole = CALL | {"arguments": '{"a": "😀"}'}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    deltas, _ = answer(sse([added, *grown, ended([whole])]), tools=[LOOK])
    assert "".join(one.arguments for one in deltas if isinstance(one, CallGrew)) == '{"a": "😀"}'


@pytest.mark.parametrize("place", ["item", "step", "annotation", "error"])
def test_half_a_character_anywhere_else_is_replaced(place: str) -> None:
    search: Item = {"type": "web_search_call", "id": "ws_1", "status": "completed", "q": "\ud83d"}
    step = {"type": "response.web_search_call.new", "output_index": 0, "delta": "\ud83d"}
    noted = message("a")
    noted["content"][0]["annotations"] = [{"type": "url_citation", "url": "\ud83d"}]
    streams: dict[str, list[Json]] = {
        "item": [ended([search])],
        "step": [
            {"type": "response.output_item.added", "output_index": 0, "item": search},
            step,
            ended([search]),
        ],
        "annotation": [ended([noted])],
        "error": [{"type": "error", "message": "no \ud83d", "code": "\ud83d"}],
    }
    deltas, fault = answer(sse(streams[place]))
    said = f"{deltas} {fault.message if fault else ''} {fault.code if fault else ''}"
    assert said.encode()  # half a character cannot be encoded
    assert "\\ud83d" not in said


def test_annotations_that_are_no_list_are_ignored() -> None:
    odd = message("a")
    odd["content"][0]["annotations"] = 5
    assert read(sse([ended([odd])]))[0] == TextGrew("a", begins="item")


def test_an_item_whose_type_is_empty_is_reported() -> None:
    deltas = read(sse([ended([{"type": "", "id": "x"}])]))
    assert deltas[0] == Reported("an item without a type: it cannot be passed on")


def test_bytes_after_the_end_change_nothing_however_they_are_split() -> None:
    data, rest = sse(HELLO), b"data: {nonsense\n\n"
    deltas, fault = answer(data + rest)
    assert fault is None
    assert deltas == answer(data)[0]


def test_an_image_that_is_no_text_is_a_failed_one() -> None:
    image: Item = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": 5,
    }
    [item] = built(read(sse([ended([image])]))).output
    assert (item["status"], item["result"]) == ("failed", "")
