"""strands-agents as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file
from strands import Agent, tool  # type: ignore[import-not-found]  # its own environment
from strands.models.openai_responses import (  # type: ignore[import-not-found]  # the same
    OpenAIResponsesModel,
)


@tool  # type: ignore[untyped-decorator]  # its types are in its own environment
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sun in {city}"


def make(model: str, *, stateful: bool = False, **more: Any) -> Any:
    """Return an agent on a model."""
    client = {"base_url": os.environ["ANTIPHON_URL"], "api_key": "none", "max_retries": 0}
    chat = OpenAIResponsesModel(client_args=client, model_id=model, stateful=stateful)
    return Agent(model=chat, callback_handler=None, **more)


async def text(model: str) -> Any:
    result = await make(model, system_prompt="Be short.").invoke_async("Say hello.")
    return str(result).strip()


async def streaming(model: str) -> Any:
    events = make(model).stream_async("Say hello.")
    return [event["data"] async for event in events if "data" in event]


async def tool_loop(model: str) -> Any:
    agent = make(model, tools=[weather])
    return str(await agent.invoke_async("The weather in Rome and in Oslo?")).strip()


async def stateful(model: str) -> Any:
    """Let the server keep the conversation; each request repeats the question."""
    agent = make(model, stateful=True, tools=[weather])
    return str(await agent.invoke_async("The weather in Rome?")).strip()


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("question-again", stateful)
    await turn("cut-off", streaming)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
