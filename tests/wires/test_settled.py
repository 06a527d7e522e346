"""Every wire writes a long thread in the same bytes as the plain list of its items."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.plans.hosted_functions import HostedFunction
from antiphon.plans.hosted_offers import offer_hosted
from antiphon.plans.plan import Plan
from antiphon.plans.toolbox import gather_tools
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item
from antiphon.protocol.native_state import NATIVE
from antiphon.protocol.thread import Thread
from antiphon.protocol.tools import Tool
from antiphon.wires.chat.profiles import GENERIC
from antiphon.wires.chat.wire import ChatWire
from antiphon.wires.gemini.profiles import PROFILES as GEMINI
from antiphon.wires.gemini.wire import GeminiWire
from antiphon.wires.messages.profiles import ANTHROPIC
from antiphon.wires.messages.wire import MessagesWire
from antiphon.wires.responses.profiles import PROFILES as RESPONSES
from antiphon.wires.responses.wire import ResponsesWire
from antiphon.wires.wire import Wire
from tests.wires.chat.test_messages import ITEM, TOOLS, WEIGHT, call, message, output, patience

_LINE: Final = 1 << 20
_WIRES: Final[dict[str, tuple[Wire, str]]] = {
    "chat": (ChatWire(GENERIC), "m"),
    "messages": (MessagesWire(ANTHROPIC, account="a"), "claude-opus-5"),
    "messages, cached": (MessagesWire(ANTHROPIC, account="a", is_cached=True), "claude-opus-4-1"),
    "gemini": (GeminiWire(GEMINI["gemini"], "a"), "gemini-3-pro"),
    "responses": (ResponsesWire(RESPONSES["openai"], account="a"), "gpt-5.6"),
    "responses, local": (ResponsesWire(RESPONSES["llamacpp"], account="a"), "m"),
}


def _state(wire: str, account: str, data: bytes, attach: Any = None) -> Item:
    native = NativeState(wire, data, account=account, attach=attach)
    return {"type": "reasoning", "summary": [], NATIVE: native}


_SIGNED: Final = b'{"type":"thinking","thinking":"Hm.","signature":"s"}'
_MARKED: Final = [{"type": "input_text", "text": "m", "cache_control": {"type": "ephemeral"}}]
_BLOCK: Final = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
_OWN: Final = st.sampled_from(
    [
        _state("messages", "a", _SIGNED),
        _state("messages", "b", _SIGNED),
        _state("responses", "a", b"cipher"),
        _state("responses", "a", b"cipher", "previous"),
        {"type": "message", "role": "user", "content": _MARKED},
        {"type": "web_search_call", "id": "w", "anthropic:blocks": [_BLOCK]},
        {"type": "anthropic:advisor_tool_result", "id": "x", "content": "c"},
        {"type": "google:part", "id": "y", "part": {"executableCode": {"code": "1"}}},
    ]
)
_STEPS: Final = st.lists(
    st.tuples(
        st.integers(0, 7),  # which thread grows
        st.lists(ITEM | _OWN, min_size=1, max_size=4),
        st.sampled_from([0, 0, 0, 0, 0, 1]),  # whether the tools are others now
    ),
    min_size=2,
    max_size=8,
)


def _plan(items: Sequence[Item], model: str, tools: Sequence[Tool] = (), **more: Any) -> Plan:
    toolbox, _ = gather_tools(tools, items)
    return Plan(model=model, items=items, toolbox=toolbox, instructions="Be brief.", **more)


def assert_same(thread: Thread, name: str, tools: Sequence[Tool] = (), **more: Any) -> None:
    """Write the thread both ways."""
    wire, model = _WIRES[name]
    kept = wire.exchange(_plan(thread, model, tools, **more), _LINE)
    anew = wire.exchange(_plan(list(thread), model, tools, **more), _LINE)
    assert bytes(kept.body) == anew.body
    assert len(kept.body) == len(bytes(kept.body))
    assert kept.degraded == anew.degraded


@pytest.mark.parametrize("name", _WIRES)
@settings(max_examples=150, deadline=None)
@given(
    _STEPS,
    st.sampled_from([0, 1, 3, 32]),
    st.booleans(),
    st.booleans(),
    st.integers(0, len(TOOLS) - 1),
)
def test_a_thread_is_written_in_the_same_bytes_as_its_items(
    name: str,
    steps: list[tuple[int, list[Item], int]],
    turns: int,
    is_line: bool,
    is_large: bool,
    tools: int,
) -> None:
    threads = [Thread((), WEIGHT)]
    with patience(turns):
        for place, items, more in steps:
            parent = threads[-1] if is_line else threads[place % len(threads)]
            threads.append(parent.grow(items))
            tools = (tools + more) % len(TOOLS)
            assert_same(threads[-1], name, TOOLS[tools], is_large=is_large)


_ITEMS: Final = st.lists(ITEM | _OWN, max_size=6)


@pytest.mark.parametrize("name", _WIRES)
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_ITEMS, _ITEMS), min_size=2, max_size=6), st.sampled_from([0, 1, 3, 32]))
def test_a_tail_is_written_in_the_same_bytes_each_time(
    name: str, steps: list[tuple[list[Item], list[Item]]], turns: int
) -> None:
    thread = Thread((), WEIGHT)
    with patience(turns):
        for more, tail in steps:
            thread = thread.grow(more)
            assert_same(thread.with_tail(tail), name)
            assert_same(thread.with_tail(tail[1:]), name)


@pytest.mark.parametrize("name", _WIRES)
def test_a_hosted_call_is_not_written_as_one_of_a_function_with_the_same_name(name: str) -> None:
    search = {"type": "web_search_call", "id": "w", "action": {"type": "search", "query": "q"}}
    items = [message("user", "a"), {**search, "status": "completed"}, message("assistant", "b")]
    thread = Thread((), WEIGHT).grow([*items, message("user", "c"), message("assistant", "d")])
    wire, model = _WIRES[name]
    hosted, _ = gather_tools([{"type": "web_search"}], hosted=frozenset({"web_search"}))
    offered = offer_hosted(hosted, [HostedFunction(kind="web_search", name="web_search")])
    wire.exchange(Plan(model=model, items=thread, toolbox=offered), _LINE)

    assert_same(thread, name, [{"type": "function", "name": "web_search"}])


def _turn(number: int) -> list[Item]:
    text = " ".join(f"word{number}{place}" for place in range(60))
    name = f"call_{number}"
    return [message("user", text), call(name), output(name, text), message("assistant", text)]


@pytest.mark.parametrize("name", _WIRES)
def test_only_what_is_new_of_a_long_conversation_is_written(name: str) -> None:
    wire, model = _WIRES[name]
    thread = Thread((), WEIGHT).grow([item for number in range(300) for item in _turn(number)])
    wire.exchange(_plan(thread, model), _LINE)
    fresh, kept = list[float](), list[float]()
    for number in range(300, 308):
        thread = thread.grow(_turn(number)[:1])
        assert_same(thread, name)
        for items, times in ((list(thread), fresh), (thread, kept)):
            begin = time.process_time()
            wire.exchange(_plan(items, model), _LINE)
            times.append(time.process_time() - begin)
        thread = thread.grow(_turn(number)[1:])
    assert min(kept) * 2 < min(fresh)
