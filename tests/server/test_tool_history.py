"""What a chat model is sent of earlier calls and their results, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.testing import Call, Script
from tests.asking import ask
from tests.faults.house import House, open_house

TOOLS: list[dict[str, Any]] = [{"type": "function", "name": "look"}]


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def output(call_id: str, text: str = "rain") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def sent(house: House, number: int = -1) -> list[tuple[str, str]]:
    """Return the messages of a request in short: the role, and the text or the ids of calls."""
    return [
        (message["role"], message["content"] or " ".join(c["id"] for c in message["tool_calls"]))
        for message in house.upstream.requests[number].json["messages"]
    ]


async def test_a_user_message_before_a_tool_result_reaches_the_model_before_it() -> None:
    made = Script(calls=[Call("look", id="c1")])
    async with open_house([made, Script(text="wet")]) as house:
        first = await ask(house.gateway, input="weather?", tools=TOOLS)
        second = await ask(
            house.gateway,
            input=[user("and be quick"), output("c1")],
            tools=TOOLS,
            previous_response_id=first.json["id"],
        )

    assert second.status == 200
    assert "x-antiphon-degraded" not in second.headers
    assert sent(house) == [
        ("user", "weather?"),
        ("user", "and be quick"),
        ("assistant", "c1"),
        ("tool", "rain"),
    ]


async def test_a_history_sent_whole_keeps_the_callers_order() -> None:
    history = [user("weather?"), call("c1"), call("c2"), user("quick"), output("c2"), user("now")]
    async with open_house(Script(text="wet")) as house:
        answer = await ask(house.gateway, input=[*history, output("c1", "sun")], tools=TOOLS)

    assert answer.status == 200
    assert sent(house) == [
        ("user", "weather?"),
        ("user", "quick"),
        ("assistant", "c2"),
        ("tool", "rain"),
        ("user", "now"),
        ("assistant", "c1"),
        ("tool", "sun"),
    ]


@pytest.mark.parametrize("turns", [1, 3])
async def test_a_result_stays_where_the_caller_put_it_when_the_thread_grows(turns: int) -> None:
    """A long thread is remembered as bytes: later turns must not differ from the first."""
    long = "word " * 5000
    made = Script(calls=[Call("look", id="c1")])
    async with open_house([made, Script(text="wet")]) as house:
        last = await ask(house.gateway, input=long, tools=TOOLS)
        for number in range(turns):
            last = await ask(
                house.gateway,
                input=[user(f"more {number}"), *([output("c1")] if number == 0 else [])],
                tools=TOOLS,
                previous_response_id=last.json["id"],
            )

    assert sent(house)[:5] == [
        ("user", long),
        ("user", "more 0"),
        ("assistant", "c1"),
        ("tool", "rain"),
        *([("assistant", "wet")] if turns > 1 else []),
    ]
