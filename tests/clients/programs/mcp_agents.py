"""openai-agents for Python with a hosted MCP server. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agents import (  # type: ignore[import-not-found]  # it has an environment of its own
    Agent,
    HostedMCPTool,
    Runner,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file

DESK = {"type": "mcp", "server_label": "desk", "server_url": os.environ["MCP_URL"]}


def _agent(model: str, rule: str, approve: bool | None = None) -> Any:
    given = {}
    if approve is not None:
        given["on_approval_request"] = lambda _: {"approve": approve, "reason": "as I say"}
    tool = HostedMCPTool(tool_config={**DESK, "require_approval": rule}, **given)
    return Agent(name="Clerk", model=model, tools=[tool])


async def never(model: str) -> Any:
    agent = _agent(model, "never")
    result = Runner.run_streamed(agent, "What is 2 + 3?")
    names = [e.name async for e in result.stream_events() if e.type == "run_item_stream_event"]
    history = [*result.to_input_list(), {"role": "user", "content": "And again?"}]
    again = await Runner.run(agent, history)
    types = [item.get("type") for item in history]
    return {
        "text": result.final_output,
        "names": names,
        "types": types,
        "again": again.final_output,
    }


async def approved(model: str) -> Any:
    result = await Runner.run(_agent(model, "always", approve=True), "What is 2 + 3?")
    items = [item.type for item in result.new_items]
    history = [*result.to_input_list(), {"role": "user", "content": "Thanks."}]
    after = await Runner.run(_agent(model, "always", approve=True), history)
    return {"text": result.final_output, "items": items, "after": after.final_output}


async def denied(model: str) -> Any:
    result = await Runner.run(_agent(model, "always", approve=False), "What is 2 + 3?")
    return {"text": result.final_output}


async def main() -> None:
    """Play every turn."""
    set_tracing_disabled(True)
    set_default_openai_client(AsyncOpenAI(base_url=os.environ["ANTIPHON_URL"], max_retries=0))
    await turn("never", never)
    await turn("approved", approved)
    await turn("denied", denied)
    tell()


asyncio.run(main())
