"""llama-index as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from llama_index.core.agent.workflow import (  # type: ignore[import-not-found]  # its own environment
    FunctionAgent,
)
from llama_index.core.llms import ChatMessage  # type: ignore[import-not-found]  # the same
from llama_index.llms.openai import OpenAIResponses  # type: ignore[import-not-found]  # the same
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sun in {city}"


def make(model: str, **more: Any) -> Any:
    """Return a model; its window is given, since llama-index knows only OpenAI's names."""
    return OpenAIResponses(
        model=model,
        api_base=os.environ["ANTIPHON_URL"],
        api_key="none",
        max_retries=0,
        context_window=32_000,
        **more,
    )


async def text(model: str) -> Any:
    messages = [ChatMessage("Be short.", role="system"), ChatMessage("Say hello.", role="user")]
    return (await make(model).achat(messages)).message.content


async def streaming(model: str) -> Any:
    chunks = await make(model).astream_chat([ChatMessage("Say hello.", role="user")])
    return [chunk.delta async for chunk in chunks if chunk.delta]


async def tool_loop(model: str) -> Any:
    agent = FunctionAgent(tools=[weather], llm=make(model), streaming=False)
    return str(await agent.run("The weather in Rome and in Oslo?"))


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("cut-off", streaming)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
