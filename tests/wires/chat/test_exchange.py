"""One request to a chat server and its answer: written from a plan, read as deltas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.plans.plan import Plan, make_plan
from antiphon.protocol.deltas import CallGrew, CallMade, CallOpened, Delta, Stopped, TextGrew
from antiphon.protocol.errors import BackendError, ErrorObject
from antiphon.protocol.request import read_request
from antiphon.wires.chat.exchange import ChatExchange
from antiphon.wires.chat.profiles import GENERIC, PROFILES
from tests.building import assessed

CUSTOM = {"type": "custom", "name": "note"}
DONE = b"data: [DONE]\n\n"


def plan_for(**fields: Any) -> Plan:
    request = read_request({"model": "m", "input": "x", "stream": True, **fields})
    return make_plan(request, assessed(request, request.items), request.items, "m")


def chunk(finish_reason: str | None = None, **delta: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "note", "arguments": arguments}
    return {"index": 0, "id": "call_1", "type": "function", "function": function}


def test_a_custom_tool_goes_out_as_a_function_and_comes_back_as_itself() -> None:
    exchange = ChatExchange(plan_for(tools=[CUSTOM]), GENERIC)
    (tool,) = json.loads(bytes(exchange.body))["tools"]
    assert tool["function"]["name"] == "note"

    deltas = [*exchange.feed(chunk("tool_calls", tool_calls=[call('{"input":"hi"}')]) + DONE)]
    opened = next(delta for delta in deltas if isinstance(delta, CallOpened | CallMade))
    assert (opened.name, opened.kind) == ("note", "custom")
    assert exchange.is_done


def test_what_the_server_cannot_honour_is_known_before_it_is_asked() -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    exchange = ChatExchange(plan_for(tools=[CUSTOM | {"format": grammar}]), GENERIC)
    assert exchange.unenforced() == ["tools[0].format: nothing holds the input to the grammar"]


def test_a_required_call_is_emulated_where_the_server_knows_schemas() -> None:
    tool = {"type": "function", "name": "note", "parameters": {"type": "object"}}
    profile = next(p for p in PROFILES.values() if p.json_schema and not p.enforces_required)
    exchange = ChatExchange(plan_for(tools=[tool], tool_choice="required"), profile)
    assert "tools" not in json.loads(bytes(exchange.body))

    answer = json.dumps({"name": "note", "arguments": {"a": 1}})
    deltas = [*exchange.feed(chunk("stop", content=answer) + DONE)]
    assert any(isinstance(delta, CallOpened | CallMade) for delta in deltas)


def read(*pieces: bytes, error: BackendError | None = None) -> tuple[ChatExchange, list[Delta]]:
    exchange = ChatExchange(plan_for(), GENERIC)
    deltas = [delta for piece in pieces for delta in exchange.feed(piece)]
    return exchange, [*deltas, *exchange.end(error)]


def test_a_whole_stream_ends_in_the_stop_reason() -> None:
    exchange, deltas = read(chunk(content="a"), chunk("stop"), DONE)
    assert deltas == [TextGrew("a"), Stopped("stop")]
    assert (exchange.fault, exchange.ended_early, exchange.is_done) == (None, False, True)


@pytest.mark.parametrize("pieces", [(), (b": hi\n\n",), (DONE,), (chunk(content="a"),)])
def test_an_end_without_a_stop_reason_is_early(pieces: tuple[bytes, ...]) -> None:
    exchange, _ = read(*pieces)
    assert exchange.ended_early


@pytest.mark.parametrize("code", ["upstream_closed", "upstream_timeout"])
def test_a_broken_connection_is_a_fault_and_no_early_end(code: str) -> None:
    error = BackendError("broken", code=code)
    exchange, deltas = read(chunk(content="a"), error=error)
    assert deltas == [TextGrew("a")]
    assert (exchange.fault, exchange.ended_early) == (error, False)


def test_a_cut_loses_no_call_that_was_held_until_it_is_whole() -> None:
    exchange = ChatExchange(plan_for(tools=[CUSTOM]), GENERIC)
    assert list(exchange.feed(chunk(tool_calls=[call('{"input":"he')]))) == []

    opened, grown = exchange.end(BackendError("broken", code="upstream_closed"))
    assert isinstance(opened, CallOpened)
    assert (opened.name, grown) == ("note", CallGrew(opened.key, '{"input":"he'))


def test_an_error_object_in_the_stream_keeps_its_own_words() -> None:
    error = {"message": "no", "type": "t", "code": "c", "param": "p"}
    exchange, deltas = read(
        chunk(content="a"), b'data: {"error":%b}\n\n' % json.dumps(error).encode()
    )
    assert deltas == [TextGrew("a")]
    assert exchange.fault is not None
    assert exchange.fault.reported == ErrorObject("no", "t", "c", "p")


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b'{"choices":[{}]}'])
def test_a_body_that_is_no_answer_is_a_fault(body: bytes) -> None:
    exchange = ChatExchange(plan_for(stream=False), GENERIC)
    assert list(exchange.whole(body)) == []
    assert exchange.fault is not None
    assert not exchange.ended_early
