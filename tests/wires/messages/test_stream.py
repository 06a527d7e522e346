"""The reader of Messages answers, on synthetic twins and on streams of real services."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallOpened,
    Delta,
    ItemClosed,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Reported,
    Stopped,
    SummaryGrew,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.items import Item
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.wires.messages.answer import native_blocks
from antiphon.wires.messages.events import read_event
from antiphon.wires.messages.stream import MessagesStream
from tests.building import build
from tests.wires.messages.answers import TWINS, event, message, recordings, stream
from tests.wires.messages.judge import read_stream, split

ALL = [pytest.param(stream(whole), id=name) for name, whole in TWINS.items()]
Seen = list[Delta]


def read(pieces: Sequence[bytes], **settings: Any) -> tuple[MessagesStream, Seen]:
    reader = MessagesStream(account="me", **settings)
    seen: Seen = []
    for piece in pieces:
        seen += reader.feed(piece)
    seen += reader.end()
    return reader, seen


def seal(item: Item, state: NativeState | None) -> str:
    return "" if state is None else state.data.decode()


def built(seen: Seen) -> Response:
    """Return the response of these deltas; the referee must find nothing wrong with its stream."""
    events = build(seen, seal=seal)
    assert judge_stream(events) == []
    response: Response = events[-1].response  # type: ignore[union-attr]  # the last one has it
    return response


def joined(seen: Seen) -> Seen:
    """Return the deltas with neighbours of one kind joined: pieces differ with the packets."""
    whole: Seen = []
    for delta in seen:
        last = whole[-1] if whole else None
        if isinstance(delta, TextGrew) and isinstance(last, TextGrew):
            whole[-1] = TextGrew(last.text + delta.text)
        else:
            whole.append(delta)
    return whole


# Against Anthropic's own accumulator.


@pytest.mark.parametrize("data", [*ALL, *recordings()])
def test_text_thinking_and_calls_are_those_that_the_sdk_reads(data: bytes) -> None:
    reader, seen = read([data])
    expected = read_stream([data])

    assert reader.fault is None
    blocks = expected["content"]
    texts = [one.text for one in seen if isinstance(one, TextGrew)]
    thoughts = [one.text for one in seen if isinstance(one, SummaryGrew)]
    assert "".join(texts) == "".join(one["text"] for one in blocks if one["type"] == "text")
    thinking = (one["thinking"] for one in blocks if one["type"] == "thinking")
    assert "".join(thoughts) == "".join(thinking)
    assert inputs_in(seen) == [one["input"] for one in blocks if one["type"] == "tool_use"]


@pytest.mark.parametrize("data", [*ALL, *recordings()])
def test_blocks_that_must_go_back_are_those_that_the_sdk_reads(data: bytes) -> None:
    _, seen = read([data])
    blocks = [plain(one) for one in read_stream([data], beta=True)["content"]]

    states = [msgspec.json.decode(one.data) for one in seen if isinstance(one, NativeState)]
    passed = [one.item for one in seen if isinstance(one, ItemPassed | ItemClosed)]
    native = [block for item in passed for block in native_blocks(item) or ()]
    known = ("text", "tool_use", "thinking", "redacted_thinking")
    assert states == [one for one in blocks if one["type"] in known[2:]]
    assert [plain(one) for one in native] == [one for one in blocks if one["type"] not in known]


@pytest.mark.parametrize("data", [*ALL, *recordings()])
def test_the_stream_that_is_built_breaks_no_rule(data: bytes) -> None:
    response = built(read([data])[1])

    assert response.status in ("completed", "incomplete")


@pytest.mark.parametrize("data", [*ALL, *recordings()])
def test_usage_adds_up_to_what_the_server_counted(data: bytes) -> None:
    response = built(read([data])[1])
    lines = (line for line in data.split(b"\n") if line.startswith(b"data: "))
    reports = [read_event(line[6:]).usage for line in lines]
    last = [one for one in reports if one][-1]
    steps = last.get("iterations") or [last]
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    total = sum(step.get(name) or 0 for step in steps for name in (*names, "output_tokens"))

    usage = response.usage
    assert usage is not None
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens == total
    assert usage.input_tokens_details.cached_tokens <= usage.input_tokens
    assert usage.output_tokens_details.reasoning_tokens <= usage.output_tokens


@pytest.mark.parametrize("name", TWINS)
def test_a_whole_answer_gives_the_same_response_as_a_streamed_one(name: str) -> None:
    whole = MessagesStream(account="me", keeps_blocks=True)
    seen = [*whole.whole(msgspec.json.encode(TWINS[name]))]
    _, streamed = read([stream(TWINS[name])], keeps_blocks=True)

    assert whole.fault is None
    assert built(seen).output == built(streamed).output
    assert built(seen).usage == built(streamed).usage
    assert seen[-1] == streamed[-1]


@given(st.sampled_from(sorted(TWINS)), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_any_split_of_the_bytes_gives_the_same_deltas(name: str, sizes: list[int]) -> None:
    data = stream(TWINS[name])

    _, whole = read([data])
    _, pieces = read(split(data, sizes))

    assert joined(pieces) == joined(whole)


# What becomes of what.


def test_citations_name_the_page_and_the_words_of_their_block() -> None:
    _, seen = read([stream(TWINS["search"])])
    notes = [one.annotation for one in seen if isinstance(one, AnnotationAdded)]

    page = {"title": "Rain", "url": "https://weather.example/rain"}
    cited = {"anthropic:citation": TWINS["search"]["content"][3]["citations"][0]}
    first = {"type": "url_citation", "start_index": 9, "end_index": 17, **page, **cited}
    assert notes[0] == first
    assert notes[2] == {**first, "start_index": 0, "end_index": 12}


def test_a_cited_document_is_named_and_its_passage_kept() -> None:
    _, seen = read([stream(TWINS["documents"])])

    note = {"type": "file_citation", "file_id": "", "filename": "paper.pdf", "index": 17}
    cited = TWINS["documents"]["content"][0]["citations"][0]
    assert AnnotationAdded({**note, "anthropic:citation": cited}) in seen


def test_a_signature_ends_the_thought_and_carries_the_whole_block() -> None:
    _, seen = read([stream(TWINS["thinking"])])
    state = next(one for one in seen if isinstance(one, NativeState))

    block = {"type": "thinking", "thinking": "They ask “why”.", "signature": "c2ln"}
    assert (state.wire, state.account) == ("messages", "me")
    assert msgspec.json.decode(state.data) == block


def test_thinking_without_a_signature_is_no_state() -> None:
    block = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    _, seen = read([stream(message(block, {"type": "text", "text": "x"}))], is_summary=False)

    assert not any(isinstance(one, NativeState) for one in seen)
    assert ReasoningGrew("Hm.") in seen


def test_redacted_thinking_keeps_the_bytes_that_came() -> None:
    raw = b'{"type": "redacted_thinking",  "data":"b3BhcXVl"}'
    start = b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
    data = start + b'"content_block":' + raw + b"}\n\n" + event("content_block_stop", index=0)

    reader = MessagesStream(account="me")
    seen = reader.feed(data)

    assert list(seen) == [NativeState("messages", raw, account="me")]


def test_a_call_without_input_is_one_with_an_empty_object() -> None:
    _, seen = read([stream(TWINS["calls"])])

    calls = [one for one in seen if isinstance(one, CallOpened | CallGrew | CallClosed)]
    assert [type(one) for one in calls[-3:]] == [CallOpened, CallGrew, CallClosed]
    assert calls[-2] == CallGrew(calls[-3].key, "{}")


def test_input_that_comes_with_the_start_of_a_call_is_read() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}
    data = event("content_block_start", index=0, content_block=block)

    seen = MessagesStream().feed(data + event("content_block_stop", index=0))

    assert CallGrew(1, '{"at":"sky"}') in seen


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "stop"),
        ("tool_use", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons(stop: str, reason: str) -> None:
    _, seen = read([stream(message({"type": "text", "text": "x"}, stop=stop))])

    assert seen[-1] == Stopped(reason)  # type: ignore[arg-type]  # it is one of them


def test_an_unknown_stop_reason_is_reported() -> None:
    _, seen = read([stream(message({"type": "text", "text": "x"}, stop="something_new"))])

    assert any(isinstance(one, Reported) and "something_new" in one.what for one in seen)


def test_the_stop_sequence_that_matched_is_reported() -> None:
    whole = message({"type": "text", "text": "x"}, stop="stop_sequence", stop_sequence="END")

    assert any(
        isinstance(one, Reported) and "'END'" in one.what for one in read([stream(whole)])[1]
    )


def test_a_refusal_without_text_is_told_in_its_own_words() -> None:
    _, seen = read([stream(TWINS["refusal"])])

    assert seen[-2:] == [RefusalGrew("I will not."), Stopped("stop")]


def test_a_refusal_after_text_is_a_content_filter() -> None:
    _, seen = read([stream(message({"type": "text", "text": "First,"}, stop="refusal"))])

    assert seen[-1] == Stopped("content_filter")


def test_a_pause_carries_all_blocks_as_they_must_go_back() -> None:
    _, seen = read([stream(TWINS["pause"])], keeps_blocks=True)
    stop = seen[-1]

    assert isinstance(stop, Stopped) and stop.resume is not None
    assert msgspec.json.decode(stop.resume.data) == TWINS["pause"]["content"]


# Usage.


def test_later_totals_replace_earlier_ones() -> None:
    start = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}
    late = {"input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 9}
    data = event("message_start", message={"id": "msg_1", "usage": start})
    data += event("content_block_start", index=0, content_block={"type": "text", "text": "x"})
    data += event("content_block_stop", index=0)
    data += event("message_delta", delta={"stop_reason": "end_turn"}, usage=late)

    _, seen = read([data + event("message_stop")])
    usage = [one.usage for one in seen if isinstance(one, UsageKnown)][-1]

    assert usage.input_tokens == 5 + 4 + 2
    assert usage.input_tokens_details.cached_tokens == 4
    assert usage.input_tokens_details.cache_write_tokens == 2
    assert (usage.output_tokens, usage.total_tokens) == (9, 20)


def test_a_null_leaves_what_was_counted_before() -> None:
    data = event("message_start", message={"id": "msg_1", "usage": {"input_tokens": 8}})
    late = {"input_tokens": None, "output_tokens": 2}
    data += event("message_delta", delta={"stop_reason": "end_turn"}, usage=late)

    _, seen = read([data + event("message_stop")])
    usage = [one.usage for one in seen if isinstance(one, UsageKnown)][-1]

    assert (usage.input_tokens, usage.output_tokens) == (8, 2)


# Faults.


def test_an_error_before_any_content_leaves_nothing_behind() -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    reader = MessagesStream()

    seen = reader.feed(event("message_start", message={"id": "m"}) + event("error", error=error))

    assert list(seen) == []
    assert not reader.has_begun
    assert reader.fault is not None and reader.fault.status == 503


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("overloaded_error", 503),
        ("rate_limit_error", 429),
        ("invalid_request_error", 400),
        ("api_error", 502),
        ("timeout_error", 504),
        ("billing_error", 429),
    ],
)
def test_an_error_in_the_stream_keeps_what_came_before_it(kind: str, status: int) -> None:
    data = stream(TWINS["text"]).partition(b"event: content_block_stop")[0]
    error = {"type": kind, "message": "Sorry."}

    reader, seen = read([data, event("error", error=error)])

    assert "".join(one.text for one in seen if isinstance(one, TextGrew)).startswith("Grüße")
    assert reader.fault is not None and reader.fault.status == status


def test_a_cut_stream_is_a_fault_after_its_text() -> None:
    data = stream(TWINS["text"]).partition(b"event: content_block_stop")[0]

    reader, seen = read([data])

    assert any(isinstance(one, TextGrew) for one in seen)
    assert reader.fault is not None and reader.fault.code == "upstream_closed"


def test_how_the_connection_broke_is_the_fault() -> None:
    reader = MessagesStream()
    reader.feed(stream(TWINS["text"])[:300])
    error = BackendError("gone", code="upstream_reset")

    reader.end(error)

    assert reader.fault is error


def test_an_answer_that_has_stopped_may_lack_its_end_mark() -> None:
    data = stream(TWINS["text"]).partition(b"event: message_stop")[0]

    reader, seen = read([data])

    assert reader.fault is None
    assert seen[-1] == Stopped("stop")


def test_a_repeated_start_is_ignored() -> None:
    data = stream(TWINS["text"])
    first = data[: data.index(b"event: content_block_start")]

    reader, seen = read([first, data])

    assert reader.fault is None
    assert joined(seen) == joined(read([data])[1])


def test_a_second_message_in_one_stream_is_a_fault() -> None:
    other = stream({**TWINS["text"], "id": "msg_2"})
    data = stream(TWINS["text"]).partition(b"event: message_delta")[0]

    reader, _ = read([data, other])

    assert reader.fault is not None and "second message" in reader.fault.message


@pytest.mark.parametrize("name", [None, "", 7])
def test_a_call_without_a_name_is_a_fault(name: object) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}

    reader, _ = read([event("content_block_start", index=0, content_block=block)])

    assert reader.fault is not None and "no name" in reader.fault.message


@pytest.mark.parametrize(
    "data",
    [
        event("content_block_start", content_block={"type": "text"}),
        event("content_block_start", index=0),
        event("content_block_start", index=0, content_block={"type": 3}),
        event("content_block_start", index=0, content_block=[]),
        event("content_block_delta", index=4, delta={"type": "text_delta", "text": "x"}),
        event("content_block_stop", index=4),
        b"data: nonsense\n\n",
        b"data: []\n\n",
        event("message_stop"),
    ],
)
def test_what_is_no_message_is_a_fault_and_no_crash(data: bytes) -> None:
    reader, _ = read([event("message_start", message={}), data])

    assert reader.fault is not None and reader.fault.code == "upstream_invalid_response"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"nonsense",
        b"{}",
        b'{"content":5}',
        b'{"content":[5],"stop_reason":"end_turn"}',
        b'{"content":[],"stop_reason":7}',
        b'{"content":[],"stop_reason":null}',
    ],
)
def test_a_whole_answer_that_is_no_message_is_a_fault(body: bytes) -> None:
    reader = MessagesStream()
    reader.whole(body)

    assert reader.fault is not None and reader.fault.code == "upstream_invalid_response"


def test_a_whole_answer_may_be_an_error() -> None:
    reader = MessagesStream()
    reader.whole(b'{"type":"error","error":{"type":"overloaded_error","message":"Busy"}}')

    assert reader.fault is not None and reader.fault.code == "upstream_overloaded"


def test_unknown_events_are_skipped() -> None:
    data = stream(TWINS["text"])
    odd = event("something_new", index=0, delta={"type": "x"})

    reader, seen = read([odd, data.replace(b"event: ping", odd + b"event: ping", 1)])

    assert reader.fault is None
    assert seen[-1] == Stopped("stop")


def test_an_answer_without_end_is_cut_off() -> None:
    reader, _ = read([stream(message({"type": "text", "text": "x" * 50}))], max_output=20)

    assert reader.fault is not None and "does not end" in reader.fault.message


def test_an_unknown_block_is_passed_on_with_all_that_it_grew_by() -> None:
    start = event("content_block_start", index=0, content_block={"type": "new", "list": [1]})
    grow = event("content_block_delta", index=0, delta={"type": "d", "list": [2], "note": "a"})
    more = event("content_block_delta", index=0, delta={"type": "d", "list": [3], "note": "b"})

    seen = MessagesStream().feed(start + grow + more + event("content_block_stop", index=0))

    item = {"type": "anthropic:new", "list": [1, 2, 3], "note": "ab"}
    assert list(seen) == [ItemPassed(item)]


def block_events(block: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    grown = (event("content_block_delta", index=0, delta=delta) for delta in deltas)
    start = event("content_block_start", index=0, content_block=block)
    return start + b"".join(grown) + event("content_block_stop", index=0)


def test_citations_that_are_no_list_are_ignored() -> None:
    seen = MessagesStream().feed(block_events({"type": "text", "text": "a", "citations": 5}))
    assert list(seen) == [TextGrew("a")]


@pytest.mark.parametrize(
    ("block", "delta"),
    [
        ({"type": "text", "text": "a"}, {"type": "thinking_delta", "thinking": "hm"}),
        ({"type": "thinking", "thinking": "a"}, {"type": "text_delta", "text": "hm"}),
        ({"type": "tool_use", "name": "f"}, {"type": "text_delta", "text": "hm"}),
        ({"type": "text", "text": "a"}, {"type": "new_delta", "x": "hm"}),
    ],
)
def test_a_delta_that_its_block_cannot_hold_is_reported(block: Any, delta: Any) -> None:
    seen = MessagesStream().feed(block_events(block, delta, delta))
    what = f"{delta['type']}: a delta that its block cannot hold is left out"
    assert [one for one in seen if isinstance(one, Reported)] == [Reported(what)]


def test_an_input_that_is_no_object_is_kept_for_the_check_of_arguments() -> None:
    seen = MessagesStream().feed(block_events({"type": "tool_use", "name": "f", "input": [1]}))
    assert CallGrew(1, "[1]") in seen


def inputs_in(seen: Seen) -> list[Any]:
    pieces: dict[int, str] = {}
    for one in seen:
        if isinstance(one, CallOpened):
            pieces[one.key] = ""
        elif isinstance(one, CallGrew):
            pieces[one.key] += one.arguments
    return [msgspec.json.decode(text) for text in pieces.values()]


def plain(block: Any) -> Any:
    """Return the block without nulls: the SDK writes fields that did not come."""
    if isinstance(block, dict):
        return {name: plain(value) for name, value in block.items() if value is not None}
    return [plain(one) for one in block] if isinstance(block, list) else block
