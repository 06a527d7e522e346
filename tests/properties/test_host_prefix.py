"""What an editor is sent: turn n is a byte prefix of turn n + 1, and all calls are in it.

A provider of the editor can reuse what it has computed only for the same messages.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.plan import Plan
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.wires.host.history import write_history
from antiphon.wires.host.request import encode_request, respond_line
from antiphon.wires.host.thoughts import write_state
from tests.properties.test_gemini_prefix import conversations, is_asked
from tests.tool_histories import History, histories, messages_of, plan_of


def with_our_thoughts(item: Item) -> Item:
    """Return a thought of Gemini as one of an editor's model."""
    if item["type"] != "reasoning":
        return item
    content = [{"type": "reasoning_text", "text": "Hm."}]
    account = item[NATIVE].account
    return {**item, "content": content, NATIVE: write_state("m", "t1", {}, account)}


@given(exchanges=conversations(), is_ours=st.booleans())
def test_messages_of_a_turn_are_a_prefix_of_those_of_the_next(
    exchanges: list[list[Item]], is_ours: bool
) -> None:
    if is_ours:
        exchanges = [[with_our_thoughts(item) for item in exchange] for exchange in exchanges]
    rendered = []
    for count in range(1, len(exchanges)):
        past = [item for exchange in exchanges[:count] for item in exchange]
        asked = [item for item in exchanges[count] if is_asked(item)]
        messages, _ = write_history(Plan(model="m", items=[*past, *asked]), "me")
        rendered.append(msgspec.json.encode(messages))
    for before, after in pairwise(rendered):
        assert after.startswith(before[:-1]), "without the bracket that ends the list"


@given(histories())
def test_calls_and_results_are_those_of_the_chat_wire(history: History) -> None:
    plan = plan_of(history.body)
    body, _ = encode_request(plan, "me")
    request = json.loads(respond_line(1, body))
    parts = [part for message in request["messages"] for part in message["content"]]
    calls = [(one["call_id"], one["name"], one["input"]) for one in parts if is_a(one, "tool_call")]
    results = [one["call_id"] for one in parts if is_a(one, "tool_result")]
    chat = messages_of(plan)
    written = [one for message in chat for one in message.get("tool_calls") or ()]
    assert calls == [
        (one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
        for one in written
    ]
    assert results == [message["tool_call_id"] for message in chat if message["role"] == "tool"]


def is_a(part: dict[str, Any], kind: str) -> bool:
    return bool(part["type"] == kind)
