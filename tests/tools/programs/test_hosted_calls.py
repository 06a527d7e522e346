"""Programs that call hosted tools: real MCP servers and real sandboxes, each call once.

The MCP server counts its calls where they arrive, so that a replay that runs one again is seen.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.mcp import open_mcp
from antiphon.protocol.events import event_type
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.base import ToolLimits, ToolRunner
from antiphon.tools.code_interpreter import CodeInterpreter
from antiphon.tools.containers.service import ContainerService
from antiphon.tools.mcp.settings import McpServer, McpSettings
from antiphon.tools.programs.runner import ProgramRunner
from antiphon.tools.shell import HostedShell
from tests.asking import ask, ask_stream, request, terminal
from tests.containers import make_service
from tests.sandboxes import engine
from tests.tools.mcp.servers import DESK, calls_in
from tests.tools.programs.test_programs import (
    PROGRAMS,
    STOCK,
    output_for,
    program,
    saying,
    types_of,
)

ONLY: Any = {"allowed_callers": ["programmatic"]}
DESK_TOOL: Any = {
    "type": "mcp",
    "server_label": "desk",
    "require_approval": {"always": {"tool_names": ["peek"]}},
    **ONLY,
}
CODE_TOOL: Any = {"type": "code_interpreter", "container": {"type": "auto"}, **ONLY}
SHELL_TOOL: Any = {"type": "shell", "environment": {"type": "container_auto"}, **ONLY}
TOOLS = [PROGRAMS, STOCK, DESK_TOOL, CODE_TOOL, SHELL_TOOL]
MIXED = """
const sum = await tools.desk__add({a: 2, b: 3});
const [stock, more] = await Promise.all([tools.stock({sku: "a"}), tools.desk__add({a: sum, b: 1})]);
text(sum, stock.count, more, await tools.desk__add({a: stock.count, b: more}));
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls.log"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[ContainerService]:
    store = SqliteStore(tmp_path / "antiphon.db")
    service = make_service(store, engine("bwrap+sandlock"))
    yield service
    await service.close()
    await store.close()


@asynccontextmanager
async def serving(
    backend: ScriptedBackend, service: ContainerService, log: Path, **limits: Any
) -> AsyncIterator[Gateway]:
    """Run a gateway with programs, code, a shell and an MCP server."""
    desk = McpServer(command=sys.executable, args=(str(DESK), str(log), "stdio"))
    mcp = await open_mcp(McpSettings(servers={"desk": desk}), {}, service.store, "ap-")
    assert mcp is not None
    runners: list[ToolRunner] = [ProgramRunner(service), CodeInterpreter(service)]
    runners += [HostedShell(service), mcp]
    async with serve_gateway(
        backend,
        store=service.store,
        tools=runners,
        containers=service,
        tool_limits=ToolLimits(list_seconds=120, **limits),
    ) as gateway:
        yield gateway


async def whole(gateway: Gateway, **body: Any) -> Any:
    answer = await ask(gateway, **{"tools": TOOLS, **body})
    assert answer.status == 200, answer.body
    return answer.json


async def test_a_program_calls_hosted_tools_within_one_response(
    service: ContainerService, log: Path
) -> None:
    code = """
    const [sum, printed] = await Promise.all([
      tools.desk__add({a: 2, b: 3}), tools.code_interpreter({code: "print(6 * 7)"})]);
    const [one, two] = await tools.shell({commands: ["echo hello", "exit 3"]});
    const counted = await tools.desk__count({text: "four"});
    text(sum, printed.trim(), one.stdout.trim(), two.outcome.exit_code, counted.letters);
    """
    backend = ScriptedBackend([program(code), saying("Done.")])
    async with serving(backend, service, log) as gateway:
        events = await ask_stream(gateway, tools=TOOLS)
    response = terminal(events)
    kinds = [item["type"] for item in response.output]
    assert kinds == [
        "mcp_list_tools",
        "program",
        "mcp_call",
        "code_interpreter_call",
        "shell_call",
        "shell_call_output",
        "mcp_call",
        "program_output",
        "message",
    ]
    name = response.output[1]["call_id"]
    caller = {"type": "program", "caller_id": name}
    assert [item.get("caller") for item in response.output[2:7]] == [caller] * 5
    assert response.output[-2]["result"] == "5 42 hello 3 4"
    assert [call["name"] for call in calls_in(log)] == ["add", "count"]
    shown = backend.plans[1].items
    assert [item["type"] for item in shown[-2:]] == ["function_call", "function_call_output"]
    assert "5 42 hello 3 4" in shown[-1]["output"]
    assert [offer.name for offer in backend.plans[0].toolbox.offers] == ["program"]
    names = [event_type(event) for event in events]
    assert names.count("response.mcp_call.completed") == 2
    assert not response.antiphon or not response.antiphon.degraded


@pytest.mark.parametrize("is_stored", [True, False])
async def test_hosted_calls_are_replayed_and_not_run_again(
    service: ContainerService, log: Path, is_stored: bool
) -> None:
    backend = ScriptedBackend([program(MIXED), saying("Done."), saying("Again.")])
    context: list[Any] = [{"type": "message", "role": "user", "content": "count"}]

    async def go_on(gateway: Gateway, last: Any, own: list[Any]) -> Any:
        if is_stored:
            return await whole(gateway, input=own, previous_response_id=last and last["id"])
        context.extend(own)
        response = await whole(gateway, input=context, store=False)
        context.extend(response["output"])
        return response

    async with serving(backend, service, log) as gateway:
        first = await go_on(gateway, None, context.copy() if is_stored else [])
        kinds = ["mcp_list_tools", "program", "mcp_call", "mcp_call", "function_call"]
        assert types_of(first) == kinds, "what was called together with a function runs before it"
        outputs = [output_for(first["output"][-1], {"count": 10})]
        second = await go_on(gateway, first, outputs)
        assert types_of(second) == ["mcp_call", "program_output", "message"]
        assert second["output"][1]["result"] == "5 10 6 16"
        third = await go_on(gateway, second, [{"role": "user", "content": "and now?"}])
    assert types_of(third) == ["message"]
    given = [call["arguments"] for call in calls_in(log, "add")]
    assert given == [{"a": 2, "b": 3}, {"a": 5, "b": 1}, {"a": 10, "b": 6}]
    shown = [item["type"] for item in backend.plans[2].items]
    assert "mcp_call" not in shown and "function_call" not in shown
    assert shown[-4:] == ["program", "program_output", "message", "message"]


async def test_a_client_that_leaves_hosted_items_out_does_not_run_them_twice(
    service: ContainerService, log: Path
) -> None:
    backend = ScriptedBackend([program(MIXED), saying("Done.")])
    async with serving(backend, service, log) as gateway:
        first = await whole(gateway, store=False)
        kept = [item for item in first["output"] if item["type"] != "mcp_call"]
        outputs = [output_for(first["output"][-1], {"count": 10})]
        second = await whole(gateway, input=[*kept, *outputs], store=False)
    assert types_of(second) == ["program_output", "message"]
    assert "does not make the calls that it made before" in second["output"][0]["result"]
    assert len(calls_in(log, "add")) == 2


async def test_outputs_that_a_client_was_not_shown_are_reported_as_missing(
    service: ContainerService, log: Path
) -> None:
    code = 'text(await tools.code_interpreter({code: "1"}), await tools.stock({sku: "a"}))'
    backend = ScriptedBackend([program(code), saying("Done.")])
    async with serving(backend, service, log) as gateway:
        first = await whole(gateway, store=False, tools=[PROGRAMS, STOCK, CODE_TOOL])
        outputs = [output_for(first["output"][-1], "{}")]
        second = await whole(
            gateway,
            input=[*first["output"], *outputs],
            store=False,
            tools=[PROGRAMS, STOCK, CODE_TOOL],
        )
    wanted = "the result of a code_interpreter_call is not part of the conversation"
    assert wanted in second["output"][0]["result"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("await tools.desk__peek({})", "tools.desk__peek: it needs the approval of the user"),
        ("await tools.desk__fail({})", "error: Error: Error executing tool fail"),
        ("await tools.code_interpreter({code: ''})", "call it with a JSON object"),
        ("await tools.code_interpreter({code: 'import os; os._exit(1)'})", "error: "),
        ("await tools.desk__add({a: 1})", "error: "),
    ],
)
async def test_a_hosted_call_that_fails_is_an_error_in_the_program(
    service: ContainerService, log: Path, code: str, reason: str
) -> None:
    backend = ScriptedBackend([program(code), saying("ok")])
    async with serving(backend, service, log) as gateway:
        response = await whole(gateway)
    end = response["output"][-2]
    assert (end["type"], end["status"]) == ("program_output", "incomplete")
    assert reason in end["result"]
    assert "mcp_approval_request" not in types_of(response)
    assert not calls_in(log, "peek")


async def test_a_program_can_catch_the_error_of_a_hosted_tool(
    service: ContainerService, log: Path
) -> None:
    code = "try { await tools.desk__fail({}) } catch (error) { text('caught', error.message) }"
    backend = ScriptedBackend([program(code), saying("ok")])
    async with serving(backend, service, log) as gateway:
        response = await whole(gateway)
    assert response["output"][-2]["result"].startswith("caught")


async def test_hosted_calls_of_programs_count_for_the_limit(
    service: ContainerService, log: Path
) -> None:
    code = "for (let i = 0; i < 5; i++) text(await tools.desk__add({a: i, b: 0}))"
    backend = ScriptedBackend([program(code), saying("ok")])
    async with serving(backend, service, log) as gateway:
        response = await whole(gateway, max_tool_calls=3)
    assert len(calls_in(log, "add")) == 2, "the program itself is a call"
    assert "may make no more calls" in response["output"][-2]["result"]
    assert "max_tool_calls" in str(response["antiphon"]["degraded"])


async def test_a_tool_for_the_model_and_programs_is_offered_to_both(
    service: ContainerService, log: Path
) -> None:
    backend = ScriptedBackend([saying("ok")])
    both = {**CODE_TOOL, "allowed_callers": ["direct", "programmatic"]}
    async with serving(backend, service, log) as gateway:
        await whole(gateway, tools=[PROGRAMS, both])
    offers = {offer.name: offer for offer in backend.plans[0].toolbox.offers}
    assert set(offers) == {"program", "code_interpreter"}
    listed = offers["program"].tool["parameters"]["properties"]["code"]["description"]
    assert 'await tools.code_interpreter({"type":"object"' in listed


@pytest.mark.parametrize(
    ("tools", "note"),
    [
        ([CODE_TOOL], "tools[0] (code_interpreter): only a program may call it"),
        ([PROGRAMS, {"type": "shell", **ONLY}], "tools[1] (shell): programs can call functions"),
    ],
)
async def test_what_no_program_can_call_is_reported(
    service: ContainerService, log: Path, tools: list[Any], note: str
) -> None:
    backend = ScriptedBackend([saying("ok")])
    async with serving(backend, service, log) as gateway:
        response = await whole(gateway, tools=tools)
    assert note in str(response["antiphon"]["degraded"])
    assert not backend.plans[0].toolbox.offers


async def test_over_the_chat_api_programs_call_functions_only(
    service: ContainerService, log: Path
) -> None:
    """Later turns do not send the items of hosted tools back: a replay would run them again."""
    backend = ScriptedBackend([saying("ok")])
    function = {"type": "function", "function": {"name": "stock"}, **ONLY}
    body = {"model": "test/echo", "tools": [PROGRAMS, function, CODE_TOOL]}
    messages = [{"role": "user", "content": "count"}]
    async with serving(backend, service, log) as gateway:
        answer = await request(gateway, "POST", "/chat/completions", body | {"messages": messages})
    assert answer.status == 200
    (offer,) = backend.plans[0].toolbox.offers
    assert "code_interpreter" not in str(offer.tool)
    assert "over this API programs call functions of the caller only" in answer.body.decode()


async def test_the_stream_helper_of_the_official_sdk_reads_hosted_calls_of_a_program(
    service: ContainerService, log: Path
) -> None:
    code = "text(await tools.desk__add({a: 2, b: 3}), await tools.shell({commands: ['echo x']}))"
    backend = ScriptedBackend([program(code), saying("ok")])
    async with (
        serving(backend, service, log) as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client,
        client.responses.stream(model="echo", input="go", tools=TOOLS) as stream,
    ):
        async for _ in stream:
            pass
        final = await stream.get_final_response()
        stored = await client.responses.retrieve(final.id)
    kinds = [item.type for item in final.output]
    assert kinds == [item.type for item in stored.output]
    assert kinds[2:6] == ["mcp_call", "shell_call", "shell_call_output", "program_output"]
    call = final.output[3]
    assert call.type == "shell_call" and call.caller is not None
    assert call.caller.type == "program" and call.caller.caller_id
