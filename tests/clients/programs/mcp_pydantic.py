"""pydantic-ai with an MCP server that the gateway calls, two turns."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from pydantic_ai import Agent  # type: ignore[import-not-found]  # it has an environment of its own
from pydantic_ai.capabilities import NativeTool  # type: ignore[import-not-found]  # the same
from pydantic_ai.models.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIResponsesModel,
)
from pydantic_ai.native_tools import MCPServerTool  # type: ignore[import-not-found]  # the same
from pydantic_ai.providers.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIProvider,
)
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file


async def never(model: str) -> Any:
    provider = OpenAIProvider(base_url=os.environ["ANTIPHON_URL"], api_key="none")
    desk = MCPServerTool(id="desk", url=os.environ["MCP_URL"])
    agent = Agent(OpenAIResponsesModel(model, provider=provider), capabilities=[NativeTool(desk)])
    async with agent.run_stream("What is 2 + 3?") as first:
        text = await first.get_output()
        history = first.all_messages()
    again = await agent.run("And again?", message_history=history)
    parts = [part for message in history for part in message.parts]
    returned = [part.content for part in parts if part.part_kind.endswith("tool-return")]
    kinds = [part.part_kind for part in parts]
    return {"text": text, "again": again.output, "kinds": kinds, "returned": returned}


async def main() -> None:
    """Play the turn."""
    await turn("never", never)
    tell()


asyncio.run(main())
