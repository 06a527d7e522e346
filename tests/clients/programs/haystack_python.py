"""haystack as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from haystack.components.agents import Agent  # type: ignore[import-not-found]  # its own environment
from haystack.components.generators.chat import (  # type: ignore[import-not-found]  # the same
    OpenAIResponsesChatGenerator,
)
from haystack.dataclasses import ChatMessage  # type: ignore[import-not-found]  # the same
from haystack.tools import create_tool_from_function  # type: ignore[import-not-found]  # the same
from haystack.utils import Secret  # type: ignore[import-not-found]  # the same
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sun in {city}"


def make(model: str) -> Any:
    """Return a chat generator on a model."""
    return OpenAIResponsesChatGenerator(
        model=model,
        api_base_url=os.environ["ANTIPHON_URL"],
        api_key=Secret.from_token("none"),
        max_retries=0,
    )


async def text(model: str) -> Any:
    messages = [ChatMessage.from_system("Be short."), ChatMessage.from_user("Say hello.")]
    (reply,) = (await make(model).run_async(messages))["replies"]
    return reply.text


async def streaming(model: str) -> Any:
    pieces: list[str] = []

    async def show(chunk: Any) -> None:
        pieces.append(chunk.content)

    messages = [ChatMessage.from_user("Say hello.")]
    (reply,) = (await make(model).run_async(messages, streaming_callback=show))["replies"]
    return {"pieces": [piece for piece in pieces if piece], "text": reply.text}


async def tool_loop(model: str) -> Any:
    agent = Agent(chat_generator=make(model), tools=[create_tool_from_function(weather)])
    question = ChatMessage.from_user("The weather in Rome and in Oslo?")
    return (await agent.run_async(messages=[question]))["last_message"].text


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("cut-off", streaming)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
