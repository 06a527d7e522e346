"""pydantic-ai as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from pydantic import BaseModel
from pydantic_ai import (  # type: ignore[import-not-found]  # it has an environment of its own
    Agent,
    BinaryContent,
)
from pydantic_ai.models.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIResponsesModel,
)
from pydantic_ai.providers.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIProvider,
)
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file

PROVIDER = OpenAIProvider(base_url=os.environ["ANTIPHON_URL"], api_key="none")
PNG = b"\x89PNG\r\n\x1a\n"


class Person(BaseModel):
    """What the model is to return."""

    name: str
    age: int


def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sun in {city}"


def make(model: str, **more: Any) -> Any:
    """Return an agent on a model."""
    return Agent(OpenAIResponsesModel(model, provider=PROVIDER), **more)


async def text(model: str) -> Any:
    result = await make(model, instructions="Be short.").run("Say hello.")
    return {"text": result.output, "tokens": result.usage.total_tokens}


async def tool_loop(model: str) -> Any:
    return (await make(model, tools=[weather]).run("The weather in Rome and in Oslo?")).output


async def streaming(model: str) -> Any:
    async with make(model, tools=[weather]).run_stream("The weather in Rome?") as result:
        return [piece async for piece in result.stream_text(delta=True, debounce_by=None)]


async def output_type(model: str) -> Any:
    return (await make(model, output_type=Person).run("Invent a person.")).output.model_dump()


async def history(model: str) -> Any:
    agent = make(model, tools=[weather])
    settings = {"openai_reasoning_effort": "low", "openai_reasoning_summary": "auto"}
    first = await agent.run("The weather in Rome?", model_settings=settings)
    second = await agent.run("And again?", message_history=first.all_messages())
    thoughts = [
        part.content
        for message in first.all_messages()
        for part in message.parts
        if part.part_kind == "thinking"
    ]
    return {"texts": [first.output, second.output], "thoughts": thoughts}


async def previous_response(model: str) -> Any:
    agent = make(model, tools=[weather])
    settings = {"openai_previous_response_id": "auto"}
    first = await agent.run("The weather in Rome?", model_settings=settings)
    second = await agent.run(
        "And again?", message_history=first.all_messages(), model_settings=settings
    )
    return [first.output, second.output]


async def image(model: str) -> Any:
    shown = BinaryContent(data=PNG, media_type="image/png")
    return (await make(model).run(["Which shape is this?", shown])).output


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("tool-loop", tool_loop)
    await turn("streaming", streaming)
    await turn("output-type", output_type)
    await turn("history", history)
    await turn("previous-response", previous_response)
    await turn("image", image)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
