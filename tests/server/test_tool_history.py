"""What a chat model is sent of earlier calls and their results, over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.client import AsyncClient
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


async def test_chat_messages_of_the_library_keep_the_callers_order_too() -> None:
    function = {"name": "look", "arguments": "{}"}
    made = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "weather?"},
        made,
        {"role": "user", "content": "quick"},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    async with open_house(Script(text="wet")) as house:
        url = house.upstream.base_url
        async with AsyncClient(base_url=url, environ={}, wire_api="chat") as client:
            await client.create(model="echo", messages=messages, tools=TOOLS)

    assert sent(house) == [
        ("user", "weather?"),
        ("user", "quick"),
        ("assistant", "c1"),
        ("tool", "rain"),
    ]


ROLES = ["assistant", "user"]
HOSTED: dict[str, tuple[dict[str, Any], str, dict[str, Any], str]] = {
    "a web search": (
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "Ulm", "sources": [{"url": "https://u.lm"}]},
        },
        "web_search",
        {"query": "Ulm"},
        '{"sources":[{"url":"https://u.lm"}]}',
    ),
    "a file search": (
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["Ulm"],
            "results": [{"filename": "a.md", "text": "a city"}],
        },
        "file_search",
        {"queries": ["Ulm"]},
        '{"results":[{"filename":"a.md","text":"a city"}]}',
    ),
    "a search whose results were not included": (
        {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["Ulm"]},
        "file_search",
        {"queries": ["Ulm"]},
        "completed; the results are not part of the conversation",
    ),
    "a program": (
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "container_id": "c",
            "code": "print(1)",
            "outputs": [{"type": "logs", "logs": "1"}],
        },
        "code_interpreter",
        {"code": "print(1)"},
        "1",
    ),
    "a tool of an MCP server": (
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "wiki",
            "name": "read",
            "arguments": '{"page":"Ulm"}',
            "output": "a city",
        },
        "wiki__read",
        {"page": "Ulm"},
        "a city",
    ),
    "a tool that failed": (
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "wiki",
            "name": "read",
            "arguments": "{}",
            "error": {"type": "http_error", "code": 500},
        },
        "wiki__read",
        {},
        'error: {"type":"http_error","code":500}',
    ),
    "the tools of an MCP server": (
        {
            "type": "mcp_list_tools",
            "id": "mcpl_1",
            "server_label": "wiki",
            "tools": [{"name": "read", "input_schema": {}, "description": "Read a page."}],
        },
        "mcp_list_tools",
        {"server_label": "wiki"},
        '{"tools":[{"name":"read","description":"Read a page."}]}',
    ),
}


@pytest.mark.parametrize("is_stored", [True, False])
async def test_calls_that_a_server_ran_have_the_same_ids_whenever_they_are_replayed(
    is_stored: bool,
) -> None:
    """Some clients leave the ids of items out; the model must be sent the same bytes again."""
    search = {"type": "web_search_call", "action": {"type": "search", "query": "Ulm"}}
    history = [user("Ulm?"), search, search, user("more")]
    async with open_house(Script(text="ok")) as house:
        for more in ([], [user("and more")]):
            await ask(house.gateway, input=[*history, *more], store=is_stored)
    first, second = (request.json["messages"] for request in house.upstream.requests[-2:])
    assert second[: len(first)] == first
    ids = [call["id"] for message in first for call in message.get("tool_calls", ())]
    assert ids == ["web_search_call_1", "web_search_call_2"]


@pytest.mark.parametrize("name", HOSTED)
async def test_a_call_that_a_server_ran_is_shown_to_the_model_with_its_result(name: str) -> None:
    item, tool, arguments, result = HOSTED[name]
    answer = {"type": "message", "role": "assistant", "content": "So it is."}
    async with open_house(Script(text="ok")) as house:
        response = await ask(house.gateway, input=[user("Ulm?"), item, answer, user("more")])

    assert response.status == 200
    assert "antiphon" not in response.json or "degraded" not in response.json["antiphon"]
    messages = house.upstream.requests[-1].json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", *ROLES]
    (call,) = messages[1]["tool_calls"]
    assert (call["id"], call["function"]["name"]) == (f"{item['type']}_1", tool)
    assert json.loads(call["function"]["arguments"]) == arguments
    assert (messages[2]["tool_call_id"], messages[2]["content"]) == (call["id"], result)
    assert messages[3]["content"] == "So it is."


async def test_an_image_that_a_model_made_is_shown_to_the_next_one() -> None:
    image = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "AAAA",
        "output_format": "webp",
    }
    async with open_house(Script(text="ok")) as house:
        response = await ask(house.gateway, input=[user("draw"), image, user("more")])

    assert response.status == 200
    messages = house.upstream.requests[-1].json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", *["user"] * 2]
    assert messages[3]["content"][1]["image_url"] == {"url": "data:image/webp;base64,AAAA"}


async def test_an_approval_is_shown_as_the_result_of_its_request() -> None:
    request = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "wiki",
        "name": "write",
        "arguments": "{}",
    }
    denied = {"approval_request_id": "mcpr_1", "approve": False, "reason": "not now"}
    items = [user("go"), request, {"type": "mcp_approval_response", **denied}]
    async with open_house(Script(text="ok")) as house:
        response = await ask(house.gateway, input=items)

    assert response.status == 200
    assert sent(house) == [("user", "go"), ("assistant", "mcpr_1"), ("tool", "denied: not now")]


async def test_a_screenshot_is_shown_as_the_result_of_its_call() -> None:
    asked = {"type": "computer_call", "id": "cu_1", "call_id": "c1", "pending_safety_checks": []}
    shot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    items = [
        user("go"),
        asked | {"action": {"type": "screenshot"}, "status": "completed"},
        {"type": "computer_call_output", "call_id": "c1", "output": shot},
    ]
    async with open_house(Script(text="ok")) as house:
        response = await ask(house.gateway, input=items)

    assert response.status == 200
    messages = house.upstream.requests[-1].json["messages"]
    assert messages[1]["tool_calls"][0]["function"]["name"] == "computer"
    assert messages[-1]["content"][1]["image_url"]["url"] == shot["image_url"]


async def test_a_tool_of_the_caller_is_not_taken_for_one_that_a_server_ran() -> None:
    own = [{"type": "function", "name": "web_search"}]
    item = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "x"}}
    async with open_house(Script(text="ok")) as house:
        await ask(house.gateway, input=[user("a"), item, user("b")], tools=own)

    body = house.upstream.requests[-1].json
    assert body["tools"][0]["function"]["name"] == "web_search"
    shown = body["messages"][1]["tool_calls"][0]["function"]["name"]
    assert shown.startswith("web_search_")
