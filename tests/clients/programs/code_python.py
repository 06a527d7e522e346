"""pydantic-ai and openai-agents with code and commands that the gateway runs, two turns each."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agents import (  # type: ignore[import-not-found]  # it has an environment of its own
    Agent,
    CodeInterpreterTool,
    OpenAIResponsesModel,
    Runner,
    ShellTool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent  # type: ignore[import-not-found]  # the same
from pydantic_ai.capabilities import NativeTool  # type: ignore[import-not-found]  # the same
from pydantic_ai.models.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIResponsesModel as PydanticModel,
)
from pydantic_ai.native_tools import (  # type: ignore[import-not-found]  # the same
    CodeExecutionTool,
)
from pydantic_ai.providers.openai import (  # type: ignore[import-not-found]  # the same
    OpenAIProvider,
)
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file

URL = os.environ["ANTIPHON_URL"]
ASKED = "Make a file."
CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}


async def agents(model: str) -> Any:
    client = AsyncOpenAI(base_url=URL, api_key="none")
    tools = [
        CodeInterpreterTool(tool_config=CODE),
        ShellTool(environment={"type": "container_auto"}),
    ]
    agent = Agent(name="a", model=OpenAIResponsesModel(model, client), tools=tools)
    first = Runner.run_streamed(agent, ASKED)
    async for _ in first.stream_events():
        pass
    items = first.to_input_list()
    again = await Runner.run(agent, [*items, {"role": "user", "content": "Again?"}])
    notes = [note for item in items if item.get("type") == "message" for note in _notes(item)]
    return {
        "text": first.final_output,
        "again": again.final_output,
        "kinds": [item.get("type") for item in items],
        "notes": [[note["type"], note["filename"]] for note in notes],
    }


def _notes(item: Any) -> list[Any]:
    return [note for part in item["content"] for note in part.get("annotations") or ()]


async def pydantic(model: str) -> Any:
    provider = OpenAIProvider(base_url=URL, api_key="none")
    agent = PydanticAgent(
        PydanticModel(model, provider=provider), capabilities=[NativeTool(CodeExecutionTool())]
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
