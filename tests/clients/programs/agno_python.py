"""agno as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agno.agent import Agent  # type: ignore[import-not-found]  # its own environment
from agno.models.message import Message  # type: ignore[import-not-found]  # the same
from agno.models.openai import OpenAIResponses  # type: ignore[import-not-found]  # the same
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sun in {city}"


def make_model(name: str) -> Any:
    """Return a model."""
    url = os.environ["ANTIPHON_URL"]
    return OpenAIResponses(id=name, base_url=url, api_key="none", max_retries=0)


def make(model: str, **more: Any) -> Any:
    """Return an agent on a model."""
    return Agent(model=make_model(model), **more)


async def text(model: str) -> Any:
    result = await make(model, instructions="Be short.").arun("Say hello.")
    return {"text": result.content, "status": result.status.value}


async def streaming(model: str) -> Any:
    """Return the events of a run with what they contain."""
    events = make(model).arun("Say hello.", stream=True, stream_events=True)
    return [(event.event, getattr(event, "content", None)) async for event in events]


async def model_streaming(model: str) -> Any:
    messages = [Message(role="user", content="Say hello.")]
    chunks = make_model(model).aresponse_stream(messages=messages)
    return [chunk.content async for chunk in chunks]


async def tool_loop(model: str) -> Any:
    result = await make(model, tools=[weather]).arun("The weather in Rome and in Oslo?")
    return {"text": result.content, "status": result.status.value}


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("cut-off", model_streaming)
    await turn("cut-off-run", streaming)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
