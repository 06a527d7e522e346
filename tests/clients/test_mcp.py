"""Hosted MCP tools with clients as they are: agents, the AI SDK, the runner of openai-python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from openai import AsyncOpenAI
from openai.lib.responses_tool_runner import AsyncResponsesToolRunner

from antiphon.testing import Call, Script
from antiphon.tools.mcp.settings import McpServer
from tests.clients.stage import Performance, Scripts, perform
from tests.tools.mcp.gateways import mcp_gateway, model
from tests.tools.mcp.servers import calls_in, desk

ADD: Final = Script(calls=[Call("desk__add", '{"a": 2, "b": 3}', "call_add")])
FIVE: Final = Script(text="Five.")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("desk") / "calls"


@pytest.fixture(scope="module")
def url(log: Path) -> Iterator[str]:
    with desk(log) as found:
        yield found


# openai-agents.

AGENTS: Final[Scripts] = {
    "never": [ADD, FIVE, ADD, Script(text="Five again.")],
    "approved": [ADD, FIVE, Script(text="You are welcome.")],
    "denied": [ADD, Script(text="I may not.")],
}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory, url: str) -> Performance:
    return perform("mcp_agents.py", AGENTS, tmp_path_factory.mktemp("agents"), mcp=url)


@pytest.mark.turn("agents", "MCP server run by the gateway, sent back", transport="http")
def test_agents_stream_a_hosted_call_and_send_it_back(agents: Performance) -> None:
    seen = agents.seen("never")
    assert (seen["text"], seen["again"]) == ("Five.", "Five again.")
    assert seen["names"][:2] == ["mcp_list_tools", "tool_called"]
    assert "mcp_list_tools" in seen["types"] and "mcp_call" in seen["types"]
    third = agents.bodies("never")[2]
    told = [message for message in third["messages"] if message["role"] == "tool"]
    assert any("5" in str(message["content"]) for message in told)


@pytest.mark.turn("agents", "approval of an MCP call", transport="http")
def test_agents_approve_a_call_and_it_runs_once(agents: Performance, log: Path) -> None:
    seen = agents.seen("approved")
    assert (seen["text"], seen["after"]) == ("Five.", "You are welcome.")
    assert len(agents.bodies("approved")) == 3
    assert "mcp_approval_request_item" in seen["items"]


@pytest.mark.turn("agents", "an MCP call that is denied", transport="http")
def test_agents_deny_a_call_and_the_model_is_told(agents: Performance) -> None:
    assert agents.seen("denied")["text"] == "I may not."
    assert "denied: as I say" in json.dumps(agents.bodies("denied")[-1])


# The AI SDK.

AI_SDK: Final[Scripts] = {
    f"{turn}-{store}": scripts
    for store in ("true", "false")
    for turn, scripts in {
        "never": [ADD, FIVE, Script(text="Five again.")],
        "approved": [ADD, FIVE],
    }.items()
}


@pytest.fixture(scope="module")
def ai_sdk(tmp_path_factory: pytest.TempPathFactory, url: str) -> Performance:
    return perform("mcp_ai_sdk.mjs", AI_SDK, tmp_path_factory.mktemp("ai-sdk"), mcp=url)


@pytest.mark.turn("ai-sdk", "MCP server run by the gateway, sent back", transport="http")
@pytest.mark.parametrize("store", ["true", "false"])
def test_the_ai_sdk_reads_a_hosted_call_and_sends_it_back(store: str, ai_sdk: Performance) -> None:
    seen = ai_sdk.seen(f"never-{store}")
    assert (seen["text"], seen["errors"], seen["again"]) == ("Five.", [], "Five again.")
    assert any(result.get("output") == "5" for result in seen["results"])


@pytest.mark.turn("ai-sdk", "approval of an MCP call", transport="http")
@pytest.mark.parametrize("store", ["true", "false"])
def test_the_ai_sdk_approves_a_call(store: str, ai_sdk: Performance) -> None:
    """Without `store` it sends the approval alone."""
    seen = ai_sdk.seen(f"approved-{store}")
    assert seen == {"asked": 1, "text": "Five."}


# pydantic-ai.

PYDANTIC: Final[Scripts] = {"never": [ADD, FIVE, Script(text="Five again.")]}


@pytest.fixture(scope="module")
def pydantic(tmp_path_factory: pytest.TempPathFactory, url: str) -> Performance:
    return perform("mcp_pydantic.py", PYDANTIC, tmp_path_factory.mktemp("pydantic"), mcp=url)


@pytest.mark.turn("pydantic-ai", "MCP server run by the gateway, streamed", transport="http")
def test_pydantic_ai_streams_a_hosted_call_and_goes_on(pydantic: Performance, log: Path) -> None:
    seen = pydantic.seen("never")
    assert (seen["text"], seen["again"]) == ("Five.", "Five again.")
    assert any(kind.endswith("tool-return") for kind in seen["kinds"]), seen["kinds"]
    assert '"5"' in json.dumps(seen["returned"])
    third = pydantic.bodies("never")[2]
    assert any("Five." in str(message["content"]) for message in third["messages"])


# openai-python in this process: its stream helper, and its runner, which checks every item.


@pytest.mark.turn("openai-python", "tool runner with MCP and approvals", transport="http")
@pytest.mark.parametrize("rule", ["never", "always"])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_runner_of_openai_accepts_every_item(
    rule: str, stream: bool, url: str, log: Path
) -> None:
    before = len(calls_in(log))
    asked: list[str] = []

    async def approve(request: Any) -> bool:
        asked.append(request.arguments)
        return True

    servers = {"desk": McpServer(url=url)}
    tool: Any = {"type": "mcp", "server_label": "desk", "server_url": url, "require_approval": rule}
    async with mcp_gateway(model(("desk__add", {"a": 2, "b": 3})), servers) as gateway:
        client = AsyncOpenAI(base_url=gateway.base_url, api_key="none", max_retries=0)
        runner = AsyncResponsesToolRunner()
        async with client, asyncio.timeout(60):
            response = await runner.run(
                client,
                {"model": "echo", "input": "What is 2 + 3?", "tools": [tool]},
                stream=stream,
                approve_mcp=approve,
                max_steps=5,
            )
    assert response.output_text.endswith("5")
    assert len(asked) == (rule == "always")
    assert len(calls_in(log)) == before + 1


@pytest.mark.turn("openai-python", "stream of an MCP call and an approval", transport="http")
async def test_the_stream_helper_of_openai_reads_every_event(url: str) -> None:
    servers = {"desk": McpServer(url=url)}
    tool: Any = {"type": "mcp", "server_label": "desk", "server_url": url}
    async with mcp_gateway(model(("desk__add", {"a": 2, "b": 3})), servers) as gateway:
        client = AsyncOpenAI(base_url=gateway.base_url, api_key="none", max_retries=0)
        async with client, asyncio.timeout(60):
            for rule, last in (("never", "message"), ("always", "mcp_approval_request")):
                given: list[Any] = [{**tool, "require_approval": rule}]
                async with client.responses.stream(
                    model="echo", input="2 + 3", tools=given
                ) as stream:
                    kinds = [event.type async for event in stream]
                    final = await stream.get_final_response()
                assert final.output[0].type == "mcp_list_tools"
                assert final.output[-1].type == last
                assert kinds[-1] == "response.completed"
