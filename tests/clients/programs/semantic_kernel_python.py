"""semantic-kernel as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from openai import AsyncOpenAI
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file
from semantic_kernel import Kernel  # type: ignore[import-not-found]  # its own environment
from semantic_kernel.agents import (  # type: ignore[import-not-found]  # its own environment
    OpenAIResponsesAgent,
)
from semantic_kernel.connectors.ai import (  # type: ignore[import-not-found]  # the same
    FunctionChoiceBehavior,
)
from semantic_kernel.connectors.ai.open_ai import (  # type: ignore[import-not-found]  # the same
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
)
from semantic_kernel.contents import ChatHistory  # type: ignore[import-not-found]  # the same
from semantic_kernel.functions import kernel_function  # type: ignore[import-not-found]  # the same

QUESTION = "The weather in Rome and in Oslo?"
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
    return str(await agent.get_response(QUESTION))


async def stored(model: str) -> Any:
    """Let the server keep the conversation; each request repeats the question."""
    return str(await make(model, plugins=[Plugin()]).get_response("The weather in Rome?"))


async def stored_streamed(model: str) -> Any:
    pieces = make(model, plugins=[Plugin()]).invoke_stream("The weather in Rome?")
    return [str(piece) async for piece in pieces]


def _ask() -> dict[str, Any]:
    """Return a question for a chat service, and the tools that it shall call by itself."""
    kernel = Kernel()
    kernel.add_plugin(Plugin(), "house")
    history = ChatHistory()
    history.add_user_message(QUESTION)
    settings = OpenAIChatPromptExecutionSettings(
        function_choice_behavior=FunctionChoiceBehavior.Auto()
    )
    return {"chat_history": history, "settings": settings, "kernel": kernel}


async def chat_tool_loop(model: str) -> Any:
    service = OpenAIChatCompletion(ai_model_id=model, async_client=CLIENT)
    answer = await service.get_chat_message_content(**_ask())
    return {"text": str(answer), "id": answer.metadata["id"]}


async def chat_streamed(model: str) -> Any:
    service = OpenAIChatCompletion(ai_model_id=model, async_client=CLIENT)
    pieces = [p async for p in service.get_streaming_chat_message_content(**_ask()) if p]
    return {"text": "".join(map(str, pieces)), "id": pieces[-1].metadata["id"]}


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("question-again", stored)
    await turn("question-again-streamed", stored_streamed)
    await turn("cut-off", streaming)
    await turn("chat-tool-loop", chat_tool_loop)
    await turn("chat-streamed", chat_streamed)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
