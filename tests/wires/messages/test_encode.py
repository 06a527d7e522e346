"""The cases that explain the Messages stream; `properties/test_messages` has the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallOpened,
    Delta,
    ItemPassed,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.events import ResponseCompleted
from antiphon.protocol.items import Item
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.wires.messages.answer import whole_message
from antiphon.wires.messages.ask import Thinking
from antiphon.wires.messages.encode import PING, MessagesEncoder
from tests.building import STOP, build
from tests.wires.messages.judge import SHOWN, encode, read_stream


def seal(item: Item, _: object) -> str:
    return "sealed"


def frames(*deltas: Delta, thinking: Thinking = SHOWN) -> list[dict[str, Any]]:
    data = encode(build(deltas, seal=seal), thinking).decode()
    return [json.loads(frame.partition("data: ")[2]) for frame in data.split("\n\n")[:-1]]


def kinds(found: list[dict[str, Any]]) -> list[str]:
    return [
        frame.get("delta", frame.get("content_block", frame)).get("type", frame["type"])
        for frame in found
    ]


def test_text_is_one_block() -> None:
    begin, _, *rest = frames(TextGrew("hel"), TextGrew("lo"), STOP)

    assert begin["message"]["id"] == "msg_1"
    assert begin["message"]["usage"]["input_tokens"] == 3
    assert kinds(rest) == [
        "text",
        "text_delta",
        "text_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert rest[-2]["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


def test_input_comes_in_deltas_alone() -> None:
    *_, start, delta, _stop, end, _ = frames(
        CallOpened(0, "look", "functions.look:0"), CallGrew(0, '{"a":1}'), STOP
    )

    block = {"type": "tool_use", "id": "toolu_functions-2elook-3a0", "name": "look", "input": {}}
    assert start["content_block"] == block
    assert delta["delta"] == {"type": "input_json_delta", "partial_json": '{"a":1}'}
    assert end["delta"]["stop_reason"] == "tool_use"


def test_a_call_without_arguments_has_an_empty_object() -> None:
    found = frames(CallOpened(0, "look", "a"), STOP)
    assert {"type": "input_json_delta", "partial_json": "{}"} in [f.get("delta") for f in found]


def test_parallel_calls_are_written_one_after_the_other() -> None:
    found = frames(
        CallOpened(0, "look", "a"),
        CallOpened(1, "go", "b"),
        CallGrew(1, '{"b":'),
        CallGrew(0, '{"a":1}'),
        CallGrew(1, "2}"),
        STOP,
    )
    input_of = {0: "", 1: ""}
    for frame in found:
        if frame["type"] == "content_block_delta":
            input_of[frame["index"]] += frame["delta"]["partial_json"]
    assert input_of == {0: '{"a":1}', 1: '{"b":2}'}
    indexes = [frame["index"] for frame in found if "index" in frame]
    assert indexes == sorted(indexes)


def test_a_thought_ends_with_its_seal() -> None:
    _, _, start, delta, signature, stop, *_ = frames(ReasoningGrew("hm"), TextGrew("yes"), STOP)

    assert start["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert delta["delta"] == {"type": "thinking_delta", "thinking": "hm"}
    assert signature["delta"] == {"type": "signature_delta", "signature": "sealed"}
    assert stop["type"] == "content_block_stop"


def test_parts_of_a_thought_are_one_block() -> None:
    texts = [{"type": "summary_text", "text": text} for text in ("a", "b")]
    found = frames(ItemPassed({"type": "reasoning", "summary": texts}), STOP)
    thoughts = [f["delta"]["thinking"] for f in found if "thinking" in f.get("delta", {})]
    assert "".join(thoughts) == "a\n\nb"


@pytest.mark.parametrize(
    ("pieces", "meant"),
    [
        (["[1", ",2]"], {"arguments": [1, 2]}),
        (['"te', 'xt"'], {"arguments": "text"}),
        (["look", " here"], {"arguments": "look here"}),
        ([" ", "\n{", '"a":1}'], {"a": 1}),
        (["null"], {"arguments": None}),
        ([" "], {}),
        (["{}"], {}),
    ],
)
def test_the_input_of_a_call_is_always_an_object(pieces: list[str], meant: Any) -> None:
    deltas: list[Delta] = [
        CallOpened(0, "look", "c"),
        *(CallGrew(0, piece) for piece in pieces),
        STOP,
    ]
    events = build(deltas, seal=seal)
    (use,) = read_stream([encode(events, SHOWN)])["content"]
    end = events[-1]
    assert isinstance(end, ResponseCompleted)
    (whole,) = whole_message(end.response, SHOWN)["content"]
    assert use["input"] == whole["input"] == meant


def test_nobody_gets_thinking_who_cannot_send_it_back() -> None:
    found = frames(ReasoningGrew("hm"), TextGrew("yes"), STOP, thinking=Thinking())
    assert not any("thinking" in kind for kind in kinds(found))


def test_omitted_thinking_is_its_seal_alone() -> None:
    thinking = Thinking(is_shown=True, is_omitted=True)
    found = frames(ReasoningGrew("hm"), TextGrew("yes"), STOP, thinking=thinking)
    assert kinds(found)[2:5] == ["thinking", "signature_delta", "content_block_stop"]


def test_a_citation_of_a_page_is_a_delta() -> None:
    note = {"type": "url_citation", "url": "https://a.example/", "title": "A"}
    found = frames(TextGrew("yes"), AnnotationAdded(note), STOP)
    (delta,) = [f["delta"] for f in found if "citation" in f.get("delta", {})]
    assert (delta["citation"]["url"], delta["citation"]["title"]) == ("https://a.example/", "A")


def test_a_refusal_is_text_and_the_reason_of_the_end() -> None:
    found = frames(RefusalGrew("I will not."), STOP)
    assert kinds(found)[2:4] == ["text", "text_delta"]
    assert found[-2]["delta"]["stop_reason"] == "refusal"


def test_a_block_of_another_server_is_written_as_it_was() -> None:
    item = {"type": "anthropic:server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    found = frames(ItemPassed({**item, "input": {"query": "x"}}), STOP)
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    assert found[2]["content_block"] == {**block, "input": {"query": "x"}}


def test_what_a_message_cannot_hold_is_counted() -> None:
    image = {"type": "image_generation_call", "status": "completed", "result": "QQ=="}
    deltas = ItemPassed(image), ReasoningGrew("hm"), TextGrew("yes"), STOP
    found = frames(*deltas, thinking=Thinking())
    assert found[-2]["antiphon"] == {"left_out": {"image_generation_call": 1, "reasoning": 1}}
    assert frames(*deltas)[-2]["antiphon"] == {"left_out": {"image_generation_call": 1}}
    assert "antiphon" not in frames(TextGrew("yes"), STOP)[-2]


def test_usage_does_not_count_cached_tokens_twice() -> None:
    usage = Usage(
        input_tokens=100,
        input_tokens_details=InputDetails(cached_tokens=60, cache_write_tokens=10),
        output_tokens=7,
        output_tokens_details=OutputDetails(reasoning_tokens=3),
        total_tokens=107,
    )
    found = frames(TextGrew("x"), UsageKnown(usage), Stopped("length"))
    assert found[-2]["delta"]["stop_reason"] == "max_tokens"
    assert found[-2]["usage"] == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 10,
        "cache_read_input_tokens": 60,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
    }


def test_a_cut_block_stays_open_and_a_closed_one_is_closed() -> None:
    """Claude Code repeats a request unseen as long as no block was closed."""
    found = frames(TextGrew("hel"))
    assert kinds(found)[2:] == ["text", "text_delta", "error"]
    assert found[-1]["error"]["type"] == "api_error"

    found = frames(TextGrew("hello"), CallOpened(0, "look", "a"), CallGrew(0, '{"a'))
    assert [frame["type"] for frame in found].count("content_block_stop") == 1


def test_a_cut_by_length_closes_its_block() -> None:
    found = frames(CallOpened(0, "look", "a"), CallGrew(0, '{"a'), Stopped("length"))
    assert kinds(found)[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_silence_is_filled_with_pings() -> None:
    encoder = MessagesEncoder(SHOWN)
    assert encoder.heartbeat == PING == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert encoder.end() == b""
