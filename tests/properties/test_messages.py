"""The Messages door over any turn: Anthropic's SDK ends with exactly our response.

Judges that are not our code: the accumulator of the SDK reads the streams. The rest is algebra:
how events are batched and bytes are split changes nothing, a stream and a whole answer are the
same message, and a message that comes back as history is the items that it was made of.
"""

from __future__ import annotations

import json
from typing import Any

import anthropic
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jiter import from_json

from antiphon.protocol.deltas import Delta
from antiphon.protocol.events import Event, ResponseFailed
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.response import Response
from antiphon.wires.messages.answer import whole_message
from antiphon.wires.messages.ask import Thinking
from antiphon.wires.messages.history import read_messages
from antiphon.wires.messages.ids import call_id_of, tool_use_id_of
from tests.building import build
from tests.strategies import broken_turns, turns, whole_turns
from tests.wires.messages.judge import OMITTED, SHOWN, encode, read_stream, split

SIZES = st.lists(st.integers(1, 60), min_size=1, max_size=4)
THINKING = st.sampled_from([SHOWN, OMITTED, Thinking()])


def events_of(deltas: list[Delta]) -> list[Event]:
    """Return the stream; its reasoning has one kind of parts, and is sealed."""
    return build(deltas, reasoning_as="summary", seal=_seal)


def _seal(item: Item, _: object) -> str:
    return "sealed " + json.dumps(item["summary"], sort_keys=True)


def response_of(events: list[Event]) -> Response:
    last = events[-1]
    assert not isinstance(last, ResponseFailed)
    return last.response  # type: ignore[union-attr]  # every stream ends in a terminal event


def frames(data: bytes) -> list[dict[str, Any]]:
    """Return the data of every event; its name must be its type."""
    found = []
    for frame in data.decode().split("\n\n")[:-1]:
        name, _, text = frame.partition("\n")
        found.append(json.loads(text.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


@given(whole_turns(), THINKING, st.integers(0, 5), SIZES)
def test_the_sdk_accumulates_the_whole_message(
    deltas: list[Delta], thinking: Thinking, batch: int, sizes: list[int]
) -> None:
    events = events_of(deltas)
    check_message(events, thinking, encode(events, thinking, batch=batch), sizes)


def check_message(events: list[Event], thinking: Thinking, data: bytes, sizes: list[int]) -> None:
    """Hold what the SDK makes of a stream against the whole answer of the same response."""
    read = read_stream(split(data, sizes))
    whole = _plain(whole_message(response_of(events), thinking))
    *_, end, _stop = frames(data)
    assert end.get("antiphon") == whole.pop("antiphon", None)
    assert {**read, "stop_details": None} == {**whole, "stop_details": None}


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    return msgspec.json.decode(msgspec.json.encode(message), type=dict[str, Any])


@given(turns(families=True), THINKING, st.integers(1, 5))
def test_batches_do_not_change_the_bytes(
    deltas: list[Delta], thinking: Thinking, batch: int
) -> None:
    events = events_of(deltas)
    assert encode(events, thinking, batch=batch) == encode(events, thinking)


@given(turns(families=True), THINKING)
def test_one_block_is_open_at_a_time_and_the_end_is_one(
    deltas: list[Delta], thinking: Thinking
) -> None:
    events = events_of(deltas)
    check_frames(encode(events, thinking), has_failed=isinstance(events[-1], ResponseFailed))


def check_frames(data: bytes, *, has_failed: bool) -> None:
    """Hold a stream to its grammar."""
    begin, ping, *middle = frames(data)
    assert (begin["type"], ping["type"]) == ("message_start", "ping")
    ends = [middle.pop()["type"] for _ in range(1 if has_failed else 2)]
    assert ends == (["error"] if has_failed else ["message_stop", "message_delta"])
    count, is_open = 0, False
    for frame in middle:
        match frame["type"]:
            case "content_block_start":
                assert (is_open, frame["index"]) == (False, count)
                count, is_open = count + 1, True
            case "content_block_delta":
                assert (is_open, frame["index"]) == (True, count - 1)
            case kind:
                assert (kind, is_open) == ("content_block_stop", True)
                assert frame["index"] == count - 1
                is_open = False
    assert not is_open or has_failed


@given(broken_turns(), SIZES)
def test_a_failure_is_an_error_for_the_sdk(deltas: list[Delta], sizes: list[int]) -> None:
    data = encode(events_of(deltas))

    assert (
        b"message_stop" not in data.replace(b'\\"', b"") or b"message_stop" in repr(deltas).encode()
    )
    with pytest.raises(anthropic.APIStatusError):
        read_stream(split(data, sizes))


@given(whole_turns())
def test_a_message_that_comes_back_is_the_items_it_was_made_of(deltas: list[Delta]) -> None:
    response = response_of(events_of(deltas))
    message = _plain(whole_message(response, SHOWN))

    read = read_messages([{"role": "assistant", "content": message["content"]}])

    assert read == _speakable(response.output)


def _speakable(output: list[Item]) -> list[Item]:
    """Return what Messages can say of items: no ids, no empty texts, messages in a row as one."""
    found: list[Item] = []
    for item in output:
        match item["type"]:
            case "message":
                parts = [part for part in map(_part, item["content"]) if part is not None]
                if parts and found and found[-1]["type"] == "message":
                    found[-1]["content"] += parts
                elif parts:
                    found.append({"type": "message", "role": "assistant", "content": parts})
            case "function_call":
                arguments = _arguments(item["arguments"])
                call = {"type": "function_call", "call_id": item["call_id"], "name": item["name"]}
                found.append({**call, "arguments": arguments})
            case "reasoning":
                sealed = item["encrypted_content"]
                found.append({"type": "reasoning", "summary": [], "encrypted_content": sealed})
    return found


def _part(part: dict[str, Any]) -> dict[str, Any] | None:
    kept: dict[str, Any] = {"type": "output_text", "text": text_of([part])}
    notes = [
        {"type": "url_citation", "url": note["url"], "title": note["title"]}
        for note in part.get("annotations") or ()
    ]
    if notes:
        kept["annotations"] = notes
    return kept if kept["text"] or notes else None


def _arguments(text: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(text)).decode()
    except msgspec.DecodeError:  # it was cut: what is whole of it is judged by the SDK
        return msgspec.json.encode(
            from_json(text.encode(), partial_mode=True) if text else {}
        ).decode()


@given(
    st.text(min_size=1, max_size=70) | st.from_regex(r"(m_)*(toolu_)*[a-z.:-]{1,9}", fullmatch=True)
)
def test_a_call_id_comes_back(call_id: str) -> None:
    tool_use_id = tool_use_id_of(call_id)
    assert call_id_of(tool_use_id) == call_id
    assert set(tool_use_id) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    )


@given(st.from_regex(r"(toolu_|m_|call_|-2d|--|-){0,4}[a-zA-Z0-9_-]{1,9}", fullmatch=True))
@settings(max_examples=300)
def test_an_id_that_a_client_sends_comes_back(tool_use_id: str) -> None:
    assert tool_use_id_of(call_id_of(tool_use_id)) == tool_use_id
