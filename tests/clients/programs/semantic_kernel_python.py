"""semantic-kernel as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from openai import AsyncOpenAI
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file
from semantic_kernel.agents import (  # type: ignore[import-not-found]  # its own environment
    OpenAIResponsesAgent,
)
from semantic_kernel.functions import kernel_function  # type: ignore[import-not-found]  # the same

CLIENT = AsyncOpenAI(base_url=os.environ["ANTIPHON_URL"], api_key="none", max_retries=0)


class Plugin:
    """A tool of the agent."""

    @kernel_function  # type: ignore[untyped-decorator]  # its types are elsewhere
    def weather(self, city: str) -> str:
        """Return the weather of a city."""
        return f"sun in {city}"


def make(model: str, **more: Any) -> Any:
    """Return an agent on a model."""
    return OpenAIResponsesAgent(ai_model_id=model, client=CLIENT, name="helper", **more)


async def text(model: str) -> Any:
    return str(await make(model, instructions="Be short.").get_response("Say hello."))


async def streaming(model: str) -> Any:
    pieces = make(model).invoke_stream("Say hello.")
    return [str(piece) async for piece in pieces]


async def tool_loop(model: str) -> Any:
    agent = make(model, plugins=[Plugin()], store_enabled=False)
    return str(await agent.get_response("The weather in Rome and in Oslo?"))


async def stored(model: str) -> Any:
    """Let the server keep the conversation; each request repeats the question."""
    return str(await make(model, plugins=[Plugin()]).get_response("The weather in Rome?"))


async def stored_streamed(model: str) -> Any:
    pieces = make(model, plugins=[Plugin()]).invoke_stream("The weather in Rome?")
    return [str(piece) async for piece in pieces]


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("question-again", stored)
    await turn("question-again-streamed", stored_streamed)
    await turn("cut-off", streaming)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
