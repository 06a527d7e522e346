"""The chat door, judged by OpenAI's own accumulator, for any turn and any split of its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallMade,
    Delta,
    ReasoningGrew,
    Stopped,
    TextGrew,
)
from antiphon.protocol.events import Event
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.response import Response
from antiphon.wires.chat.completion import completion_of
from antiphon.wires.chat.encode import ChatEncoder
from tests.building import build
from tests.properties.test_machines import split, terminal
from tests.strategies import turns, whole_turns

CUTS = st.lists(st.integers(0, 2**32), max_size=12)
CLIENT = openai.OpenAI(api_key="x", base_url="http://localhost")
OURS = {"function_call": "function", "custom_tool_call": "custom"}


def encode(
    events: list[Event], sizes: list[int], make: type[ChatEncoder] = ChatEncoder, **options: Any
) -> bytes:
    """Encode the events in batches of these sizes, then one by one."""
    encoder = make(**options)
    data, rest = b"", events
    for size in sizes:
        data += encoder.encode(rest[:size])
        rest = rest[size:]
    for event in rest:
        data += encoder.encode([event])
    return data + encoder.end()


def chunks_of(pieces: list[bytes]) -> Iterator[ChatCompletionChunk]:
    """Read bytes as the OpenAI SDK does. Raise APIError for an error among them."""
    answer = httpx2.Response(
        200,
        request=httpx2.Request("POST", "http://localhost"),
        stream=_Pieces(pieces),
    )
    yield from openai.Stream(cast_to=ChatCompletionChunk, response=answer, client=CLIENT)


class _Pieces(httpx2.SyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces


def accumulate(pieces: list[bytes]) -> dict[str, Any]:
    """Return the completion that OpenAI's accumulator ends with, without what it adds."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks_of(pieces):
        list(state.handle_chunk(chunk))
    return state.current_completion_snapshot.to_dict()


def sealed(item: Item, state: object) -> str:
    return f"sealed {item['id']}"


def shown(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what only one of stream and whole has: nulls, and indexes.

    A stream has raw reasoning and summaries as they come, a whole answer has the summaries of an
    item first. So only their characters are compared here; their order is below.
    """
    calls = [
        {key: value for key, value in call.items() if key != "index" and value is not None}
        for call in message.get("tool_calls") or ()
    ]
    for call in calls:
        for kind in ("function", "custom"):
            (call.get(kind) or {}).pop("parsed_arguments", None)
    fields = {
        "role": message["role"],
        "content": message.get("content") or None,
        "refusal": message.get("refusal"),
        "tool_calls": calls,
        "reasoning_content": sorted(message.get("reasoning_content") or ""),
    }
    for name in ("annotations", "reasoning_details", "images"):
        fields[name] = message.get(name) or None
    return fields


def items_of(response: Response) -> dict[str, Any]:
    """Return what chat can express of the items, found by other code than the door's."""
    texts, calls = [], []
    for item in response.output:
        kind = item_type(item)
        if kind == "message":
            texts.append("".join(p["text"] for p in item["content"] if "text" in p))
        elif kind in OURS:
            field = "arguments" if kind == "function_call" else "input"
            inner = {"name": item["name"], field: item[field]}
            calls.append({"id": item["call_id"], "type": OURS[kind], OURS[kind]: inner})
    return {"content": "\n\n".join(filter(None, texts)) or None, "tool_calls": calls}


def check_stream(events: list[Event], data: bytes, cuts: list[int]) -> None:
    """Hold the bytes of a stream, split at these places, against the response they are of."""
    response = terminal(events)
    if response.status in ("failed", "cancelled"):
        with pytest.raises(openai.APIError) as caught:
            accumulate(split(data, cuts))
        code, message = ("cancelled", "the response is cancelled")
        if response.error is not None:
            code, message = str(response.error.code), response.error.message
        assert caught.value.code == code
        assert caught.value.message.startswith(message)
        assert b"[DONE]" not in data
        return
    found = accumulate(split(data, cuts))
    message_found = shown(found["choices"][0]["message"])

    ours = items_of(response)
    assert {name: message_found[name] for name in ours} == ours
    whole = completion_of(response)
    assert message_found == shown(whole["choices"][0]["message"])
    thoughts = (each["choices"][0]["message"] for each in (found, whole))
    assert len({thought.get("reasoning_content") for thought in thoughts}) == 1
    assert found["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert found["usage"] == whole["usage"]
    assert (found["id"], found["model"]) == (whole["id"], whole["model"])
    assert data.endswith(b"data: [DONE]\n\n")


@given(turns(families=True), st.lists(st.integers(1, 9), max_size=6), CUTS)
def test_openais_accumulator_ends_with_the_items_of_the_response(
    turn: list[Delta], sizes: list[int], cuts: list[int]
) -> None:
    events = build(turn, seal=sealed)

    check_stream(events, encode(events, sizes, has_usage=True), cuts)


@given(whole_turns(), st.lists(st.integers(1, 9), max_size=6))
def test_the_bytes_do_not_depend_on_how_events_are_batched(
    turn: list[Delta], sizes: list[int]
) -> None:
    events = build(turn)

    assert encode(events, sizes) == encode(events, [])


@given(whole_turns())
def test_the_message_of_an_answer_is_of_the_types_of_the_sdk(turn: list[Delta]) -> None:
    response = terminal(build(turn, seal=sealed))
    if response.status == "failed":
        return
    body = msgspec.json.decode(msgspec.json.encode(completion_of(response)))
    body["choices"][0]["logprobs"] = None  # those of the generated turns lack a field
    completion = openai.types.chat.ChatCompletion.model_validate(body)

    assert completion.choices[0].message.content == items_of(response)["content"]


def test_notes_point_into_the_joined_text() -> None:
    note = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 3}
    events = build(
        [
            TextGrew("one"),
            CallMade("f", "{}"),
            ReasoningGrew("hm"),
            TextGrew("two"),
            AnnotationAdded(note),
            Stopped("stop"),
        ]
    )
    message = accumulate([encode(events, [])])["choices"][0]["message"]
    place = message["annotations"][0]["url_citation"]

    assert message["content"][place["start_index"] : place["end_index"]] == "two"
    assert (
        completion_of(terminal(events))["choices"][0]["message"]["annotations"]
        == (message["annotations"])
    )
