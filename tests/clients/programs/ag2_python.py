"""ag2 as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from ag2 import Agent, MemoryStream  # type: ignore[import-not-found]  # its own environment
from ag2.config import OpenAIResponsesConfig  # type: ignore[import-not-found]  # the same
from ag2.events import ModelMessageChunk  # type: ignore[import-not-found]  # the same
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sun in {city}"


def make(model: str, *, streaming: bool = False, **more: Any) -> Any:
    """Return an agent on a model."""
    config = OpenAIResponsesConfig(
        model,
        base_url=os.environ["ANTIPHON_URL"],
        api_key="none",
        max_retries=0,
        streaming=streaming,
    )
    return Agent("helper", config=config, **more)


async def text(model: str) -> Any:
    return (await make(model, prompt="Be short.").ask("Say hello.")).body


async def streaming(model: str) -> Any:
    pieces: list[str] = []
    stream = MemoryStream()
    stream.where(ModelMessageChunk).subscribe(lambda event: pieces.append(event.content))
    reply = await make(model, streaming=True).ask("Say hello.", stream=stream)
    return {"pieces": pieces, "text": reply.body}


async def tool_loop(model: str) -> Any:
    return (await make(model, tools=[weather]).ask("The weather in Rome and in Oslo?")).body


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("cut-off", streaming)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
