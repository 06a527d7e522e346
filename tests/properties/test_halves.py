"""Characters that a server cut in two are joined in the same way on every wire."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.plan import NO_TOOLS
from antiphon.protocol.deltas import CallGrew, Delta, ReasoningGrew, SummaryGrew, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.halves import GrowingText, decode_torn, join_halves
from antiphon.wires.chat.stream import ChatStream
from antiphon.wires.gemini.stream import GeminiStream
from antiphon.wires.messages.stream import MessagesStream
from antiphon.wires.responses.profiles import GENERIC
from antiphon.wires.responses.stream import ResponsesStream

Json = dict[str, Any]
Events = list[Json]

_units = st.text('a"\\é😀\ud83d\ude00', max_size=6)
_pieces = st.lists(_units, min_size=1, max_size=6)


def _chat(thought: Sequence[str], text: Sequence[str], said: Sequence[str]) -> Events:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    deltas = [
        *({"reasoning_content": one} for one in thought),
        *({"content": one} for one in text),
        {"tool_calls": [call]},
        *({"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in said),
    ]
    chunks: Events = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


def _block(index: int, start: Json, kind: str, field: str, pieces: Iterable[str]) -> Events:
    place = {"index": index}
    return [
        {"type": "content_block_start", **place, "content_block": start},
        *(
            {"type": "content_block_delta", **place, "delta": {"type": kind, field: one}}
            for one in pieces
        ),
        {"type": "content_block_stop", **place},
    ]


def _messages(thought: Sequence[str], text: Sequence[str], said: Sequence[str]) -> Events:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    thinking = {"type": "thinking", "thinking": thought[0], "signature": "s"}
    return [
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1}}},
        *_block(0, thinking, "thinking_delta", "thinking", thought[1:]),
        *_block(1, {"type": "text", "text": text[0]}, "text_delta", "text", text[1:]),
        *_block(2, call, "input_json_delta", "partial_json", said),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]


def _responses(thought: Sequence[str], text: Sequence[str], said: Sequence[str]) -> Events:
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f"}
    message = {"type": "message", "id": "msg", "role": "assistant"}
    items = [
        ({"type": "reasoning", "id": "rs"}, "reasoning_summary_text", thought),
        (message, "output_text", text),
        (call, "function_call_arguments", said),
    ]
    events: Events = []
    for index, (item, kind, pieces) in enumerate(items):
        place = {"output_index": index, "content_index": 0, "summary_index": 0}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events += [{"type": f"response.{kind}.delta", **place, "delta": one} for one in pieces]
    whole = [
        {"type": "reasoning", "id": "rs", "summary": [_text("summary_text", thought)]},
        {**message, "content": [_text("output_text", text)]},
        {**call, "arguments": "".join(said)},
    ]
    response = {"id": "r", "status": "completed", "output": whole}
    return [*events, {"type": "response.completed", "response": response}]


def _text(kind: str, pieces: Sequence[str]) -> Json:
    return {"type": kind, "text": "".join(pieces)}


def _gemini(thought: Sequence[str], text: Sequence[str], said: Sequence[str]) -> Events:
    parts = [*({"text": one, "thought": True} for one in thought), *({"text": one} for one in text)]
    chunks: Events = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    return [*chunks, {"candidates": [{"finishReason": "STOP"}]}]


Reader = ChatStream | MessagesStream | GeminiStream | ResponsesStream
_WIRES: Final[dict[str, tuple[Callable[..., Events], Callable[[], Reader]]]] = {
    "chat": (_chat, lambda: ChatStream(think_tags=False)),
    "messages": (_messages, MessagesStream),
    "gemini": (_gemini, GeminiStream),
    "responses": (_responses, lambda: ResponsesStream(GENERIC, NO_TOOLS)),
}


def _read(reader: Reader, events: Events, sizes: Sequence[int]) -> list[Delta]:
    """Return what is read of the events; a size is how many of them arrive together."""
    kinds = ("event: " + event["type"] + "\n" if "type" in event else "" for event in events)
    lines = [
        f"{kind}data: {json.dumps(event, separators=(',', ':'))}\n\n".encode()
        for kind, event in zip(kinds, events, strict=True)
    ]
    deltas: list[Delta] = []
    while lines:
        size = sizes[len(lines) % len(sizes)]
        deltas += reader.feed(b"".join(lines[:size]))
        del lines[:size]
    return [*deltas, *reader.end()]


def _said(deltas: Sequence[Delta]) -> tuple[str, str, str]:
    thought = [one.text for one in deltas if isinstance(one, ReasoningGrew | SummaryGrew)]
    text = [one.text for one in deltas if isinstance(one, TextGrew)]
    said = [one.arguments for one in deltas if isinstance(one, CallGrew)]
    return "".join(thought), "".join(text), "".join(said)


@pytest.mark.parametrize("wire", _WIRES)
@given(_pieces, _pieces, _pieces, st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_halves_are_joined_and_lone_ones_replaced(
    wire: str, thought: list[str], text: list[str], said: list[str], sizes: list[int]
) -> None:
    write, make = _WIRES[wire]
    reader, said = make(), ["{", *said]  # an empty input would be `{}`
    found = _said(_read(reader, write(thought, text, said), sizes))
    assert reader.fault is None
    asked = (thought, text) if wire == "gemini" else (thought, text, said)  # its calls come whole
    assert found[: len(asked)] == tuple(join_halves("".join(pieces)) for pieces in asked)


@pytest.mark.parametrize("wire", ["messages", "gemini"])
def test_an_answer_that_breaks_off_in_a_character_is_torn(wire: str) -> None:
    write, make = _WIRES[wire]
    reader = make()
    events = write(["a"], ["b\ud83d"], [])[: 2 if wire == "gemini" else 5]
    deltas = _read(reader, events[:-1] if wire == "messages" else events, [1])
    assert _said(deltas)[1] == "b\ufffd"
    fault = reader.fault
    assert isinstance(fault, BackendError)
    assert fault.is_torn


@given(_pieces)
def test_pieces_of_a_text_are_as_good_as_all_of_it(pieces: list[str]) -> None:
    text = GrowingText()
    found = [text.take(piece) for piece in pieces]
    assert "".join([*found, text.rest()]) == join_halves("".join(pieces))


def test_only_named_fields_keep_halves() -> None:
    data = json.dumps({"text": "\ud83d", "other": ["\ud83d"], "raw": {"a": "\ud83d"}}).encode()
    found = decode_torn(data, {"text"}, {"raw"})
    assert found["text"] == "\ud83d"
    assert found["other"] == ["\ufffd"]
    assert bytes(found["raw"]) == b'{"a": "\\ud83d"}'
