"""The tool loop: runs what it was given, and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.client import AsyncClient, Client
from antiphon.client.tool_loop import Handler, ToolFailed, ToolRun, run_tools, run_tools_sync
from antiphon.protocol.deltas import CallGrew, CallOpened, TextGrew
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from tests.asking import terminal
from tests.building import COUNTED, STOP, build
from tests.client.calling import KINDS
from tests.client.native import Answer, NativeServer, error, native, whole

TOOLS = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
ASK = {"model": "m", "input": "2 and 3?", "tools": TOOLS}


def calls(*arguments: str, name: str = "add") -> Answer:
    """Return a turn that calls a tool once for each of the arguments."""
    deltas = [
        delta
        for key, text in enumerate(arguments)
        for delta in (CallOpened(key, name, f"call_{key}"), CallGrew(key, text))
    ]
    return whole(terminal(build([*deltas, COUNTED, STOP])))


DONE = whole(terminal(build([TextGrew("five"), COUNTED, STOP])))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def run(
    kind: str, base_url: str, handlers: dict[str, Handler], of_client: Any = None, **more: Any
) -> ToolRun:
    """Run the loop; `of_client` is the API that the client speaks, unless the call says."""
    options: dict[str, Any] = {"base_url": base_url, "environ": {}}
    if of_client:
        options["wire_api"] = of_client
    if kind == "async":
        async with AsyncClient(**options) as client:
            return await run_tools(client, handlers, **(ASK | more))

    def in_thread() -> ToolRun:
        with Client(**options) as client:
            return run_tools_sync(client, handlers, **(ASK | more))

    return await asyncio.to_thread(in_thread)


def outputs(server: NativeServer, number: int) -> dict[str, str]:
    sent = server.body(number)["input"]
    return {
        item["call_id"]: item["output"] for item in sent if item["type"] == "function_call_output"
    }


@pytest.mark.requirement("22-D4")
async def test_calls_are_run_and_their_outputs_handed_back(kind: str) -> None:
    async with native(calls('{"a":2,"b":3}', '{"a":0,"b":0}'), DONE) as server:
        ran = await run(kind, server.base_url, {"add": lambda a, b: a + b})

    assert ran.response.output_text == "five"
    assert ran.rounds == 2
    assert server.body(1)["previous_response_id"] == "resp_1"
    assert outputs(server, 1) == {"call_0": "5", "call_1": "0"}
    assert len(server.body(1)["input"]) == 2
    kinds = [item["type"] for item in ran.items]
    assert kinds == ["message", *["function_call"] * 2, *["function_call_output"] * 2, "message"]


@pytest.mark.requirement("22-D4")
async def test_a_client_without_the_loop_never_runs_anything() -> None:
    async with (
        native(calls('{"a":2}')) as server,
        AsyncClient(base_url=server.base_url, environ={}) as client,
    ):
        made = await client.create(**ASK)  # type: ignore[arg-type] # a dict of any parameters

    assert [item["type"] for item in made.output] == ["function_call"]
    assert len(server.requests) == 1


async def test_a_tool_says_what_went_wrong_and_the_model_hears_it(kind: str) -> None:
    def fail(**arguments: Any) -> None:
        raise ToolFailed("the scales are broken")

    async with native(calls("{}", "[1]", "{no"), DONE) as server:
        await run(kind, server.base_url, {"add": fail})

    told = outputs(server, 1)
    assert told["call_0"] == "the scales are broken"
    assert "must be a JSON object" in told["call_1"]
    assert "no JSON" in told["call_2"]


async def test_a_bug_in_a_tool_leaves_the_loop(kind: str) -> None:
    async with native(calls("{}"), DONE) as server:
        with pytest.raises(ZeroDivisionError):
            await run(kind, server.base_url, {"add": lambda: 1 / 0})


async def test_a_coroutine_may_be_a_tool() -> None:
    async def add(a: int, b: int) -> dict[str, int]:
        await asyncio.sleep(0)
        return {"sum": a + b}

    async with native(calls('{"a":2,"b":3}'), DONE) as server:
        await run("async", server.base_url, {"add": add})
    assert outputs(server, 1) == {"call_0": '{"sum":5}'}


async def test_a_call_that_nobody_can_run_is_the_callers(kind: str) -> None:
    async with native(calls("{}", name="launch")) as server:
        ran = await run(kind, server.base_url, {"add": lambda: 0})

    assert ran.rounds == 1
    assert ran.response.output[0]["name"] == "launch"


async def test_the_rounds_are_limited(kind: str) -> None:
    async with native(calls("{}")) as server:
        ran = await run(kind, server.base_url, {"add": lambda: 0}, max_rounds=3)

    assert ran.rounds == 3
    assert len(server.requests) == 3


async def test_a_forced_call_is_forced_once(kind: str) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, tool_choice="required")

    assert server.body(0)["tool_choice"] == "required"
    assert "tool_choice" not in server.body(1)


async def test_a_free_choice_stays(kind: str) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, tool_choice="auto")
    assert server.body(1)["tool_choice"] == "auto"


async def test_a_lost_thread_is_mended_with_the_whole_run(kind: str) -> None:
    gone = error(400, "previous_response_not_found", "gone")
    async with native(calls("{}"), gone, DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0})

    kinds = [item["type"] for item in server.body(2)["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({"session": "s"}, {"previous_response_id": "resp_1"}),
        ({"conversation": "conv_1"}, {"conversation": "conv_1"}),
        ({"previous_response_id": "resp_0"}, {"previous_response_id": "resp_1"}),
    ],
)
async def test_a_run_goes_on_in_the_thread_it_began_in(
    kind: str, how: dict[str, str], kept: dict[str, str]
) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, **how)

    sent = server.body(1)
    assert {name: sent.get(name) for name in kept} == kept
    assert [item["type"] for item in sent["input"]] == ["function_call_output"]


async def test_a_call_may_choose_the_chat_road_for_the_whole_run(kind: str) -> None:
    scripts = [Script(calls=[Call("add", '{"a": 2, "b": 3}')]), Script(text="five")]
    async with ScriptedUpstream(scripts) as upstream:
        ran = await run(
            kind,
            upstream.base_url,
            {"add": lambda a, b: a + b},
            model="echo",
            wire_api="chat",
        )
    assert ran.response.output_text == "five"


async def test_a_server_that_keeps_nothing_is_sent_everything(kind: str) -> None:
    async with native(calls("{}"), DONE) as server:
        await run(kind, server.base_url, {"add": lambda: 0}, store=False)

    kinds = [item["type"] for item in server.body(1)["input"]]
    assert kinds == ["message", "function_call", "function_call_output"]


@pytest.mark.requirement("22-E2", "22-goal-3")
@pytest.mark.parametrize("wire_api", ["responses", "chat"])
async def test_a_tool_round_trip_on_a_chat_model(kind: str, wire_api: str) -> None:
    """Through our gateway, and without it."""
    scripts = [Script(calls=[Call("add", '{"a": 2, "b": 3}')]), Script(text="five")]
    async with (
        ScriptedUpstream(scripts) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        base_url = gateway.base_url if wire_api == "responses" else upstream.base_url
        ran = await run(kind, base_url, {"add": lambda a, b: a + b}, wire_api, model="echo")

    assert ran.response.output_text == "five"
    last = upstream.requests[1].json["messages"][-1]
    assert (last["role"], last["content"]) == ("tool", "5")
