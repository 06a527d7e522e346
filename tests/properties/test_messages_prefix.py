"""Turn n of a Messages client, as a chat server gets it, is a byte prefix of turn n + 1.

A server can reuse what it has computed only for the same bytes. Claude Code moves its
`cache_control` to the newest block with every turn, writes a text as a string where it has none,
puts system messages between the others, and sends a billing header whose hash is always another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.plan import make_plan
from antiphon.wires.chat.profiles import PROFILES
from antiphon.wires.chat.request import encode_request
from antiphon.wires.messages.ask import read_ask
from tests.building import assessed

CACHED = {"type": "ephemeral"}
WORDS = st.sampled_from(["look", "it is there", "\u2028", "", "a\nb"])
TOOL = {"name": "look", "input_schema": {"type": "object"}}

Json = dict[str, Any]


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Json]]:
    """Return the messages of each exchange: those of the user, then the answer."""
    exchanges: list[list[Json]] = []
    waiting: list[str] = []
    for number in range(draw(st.integers(2, 5))):
        blocks: list[Json] = [draw(_result(call_id)) for call_id in waiting]
        if not blocks or draw(st.booleans()):
            blocks.append({"type": "text", "text": draw(WORDS) or "go on"})
        said: list[Json] = [{"role": "user", "content": blocks}]
        if draw(st.booleans()):
            said.append({"role": "system", "content": f"note {number}"})
        waiting = [f"toolu_{number}_{one}" for one in range(draw(st.integers(0, 2)))]
        said.append({"role": "assistant", "content": draw(_answer(waiting))})
        exchanges.append(said)
    return exchanges


@st.composite
def _result(draw: st.DrawFn, call_id: str) -> Json:
    image = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    content = draw(
        st.one_of(
            WORDS,
            st.just([{"type": "text", "text": "seen"}, {"type": "image", "source": image}]),
        )
    )
    block: Json = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return block | ({"is_error": True} if draw(st.booleans()) else {})


@st.composite
def _answer(draw: st.DrawFn, call_ids: list[str]) -> list[Json]:
    blocks: list[Json] = []
    if draw(st.booleans()):
        blocks.append({"type": "thinking", "thinking": "hm", "signature": ""})
    if not call_ids or draw(st.booleans()):
        blocks.append({"type": "text", "text": draw(WORDS) or "yes"})
    blocks += [
        {"type": "tool_use", "id": call_id, "name": "look", "input": {"b": 1, "a": draw(WORDS)}}
        for call_id in call_ids
    ]
    return blocks


def body_of(exchanges: list[list[Json]], count: int) -> Json:
    """Return the request of a turn as Claude Code writes it: all before it, and its question."""
    past = [message for exchange in exchanges[:count] for message in exchange]
    messages = [*past, *exchanges[count][:-1]]
    newest = max(i for i, message in enumerate(messages) if message["role"] == "user")
    return {
        "model": "m",
        "max_tokens": 99,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: hash={count}"},
            {"type": "text", "text": "Be brief.", "cache_control": CACHED},
        ],
        "tools": [TOOL],
        "messages": [
            _marked(message) if index == newest else _short(message)
            for index, message in enumerate(messages)
        ],
    }


def _marked(message: Json) -> Json:
    *others, last = message["content"]
    return {**message, "content": [*others, {**last, "cache_control": CACHED}]}


def _short(message: Json) -> Json:
    content = message["content"]
    if len(content) == 1 and content[0]["type"] == "text":
        return {**message, "content": content[0]["text"]}
    return message


def rendered(body: Json, profile: str) -> bytes:
    """Return the messages as the chat server gets them, without the end of the list."""
    request = read_ask(body)
    plan = make_plan(request, assessed(request, request.items), request.items, "m")
    data, _ = encode_request(plan, PROFILES[profile])
    return msgspec.json.encode(msgspec.json.decode(bytes(data))["messages"]).removesuffix(b"]")


@given(conversations(), st.sampled_from(sorted(PROFILES)))
def test_a_turn_is_rendered_as_the_beginning_of_the_next(
    exchanges: list[list[Json]], profile: str
) -> None:
    turns = [rendered(body_of(exchanges, count), profile) for count in range(len(exchanges))]

    for one, following in pairwise(turns):
        assert following.startswith(one + b",")


def test_what_only_moves_is_not_reported() -> None:
    """`cache_control` asks for what the server does by itself."""
    user = {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": CACHED}]}
    request = read_ask(
        {"model": "m", "messages": [user], "tools": [{**TOOL, "cache_control": CACHED}]}
    )
    checked = assessed(request, request.items)
    _, report = encode_request(make_plan(request, checked, request.items, "m"), PROFILES["vllm"])
    assert [*checked.degraded, *report] == []
