"""pydantic-ai and openai-agents with tools that the gateway runs, two turns each."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agents import (  # type: ignore[import-not-found]  # it has an environment of its own
    Agent,
    ImageGenerationTool,
    OpenAIResponsesModel,
    Runner,
    WebSearchTool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent  # type: ignore[import-not-found]  # the same
from pydantic_ai.capabilities import NativeTool  # type: ignore[import-not-found]  # the same
from pydantic_ai.models.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIResponsesModel as PydanticModel,
)
from pydantic_ai.native_tools import (  # type: ignore[import-not-found]  # the same
    ImageGenerationTool as PydanticImages,
)
from pydantic_ai.native_tools import (
    WebSearchTool as PydanticSearch,
)
from pydantic_ai.providers.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIProvider,
)
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file

URL = os.environ["ANTIPHON_URL"]
ASKED = "How large is it? Draw it."


async def agents(model: str) -> Any:
    client = AsyncOpenAI(base_url=URL, api_key="none")
    image = ImageGenerationTool(tool_config={"type": "image_generation", "partial_images": 1})
    agent = Agent(
        name="a", model=OpenAIResponsesModel(model, client), tools=[WebSearchTool(), image]
    )
    first = Runner.run_streamed(agent, ASKED)
    async for _ in first.stream_events():
        pass
    kinds = [item.get("type") for item in first.to_input_list()]
    again = await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "Again?"}])
    return {"text": first.final_output, "again": again.final_output, "kinds": kinds}


async def pydantic(model: str) -> Any:
    provider = OpenAIProvider(base_url=URL, api_key="none")
    agent = PydanticAgent(
        PydanticModel(model, provider=provider),
        capabilities=[NativeTool(PydanticSearch()), NativeTool(PydanticImages())],
    )
    async with agent.run_stream(ASKED) as first:
        text = await first.get_output()
        history = first.all_messages()
    again = await agent.run("Again?", message_history=history)
    kinds = [part.part_kind for message in history for part in message.parts]
    return {"text": text, "again": again.output, "kinds": kinds}


async def main() -> None:
    set_tracing_disabled(True)
    await turn("agents", agents)
    await turn("pydantic", pydantic)
    tell()


asyncio.run(main())
