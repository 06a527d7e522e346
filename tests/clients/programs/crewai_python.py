"""crewai as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from crewai import LLM, Agent, Crew, Task  # type: ignore[import-not-found]  # its own environment
from crewai.tools import tool  # type: ignore[import-not-found]  # the same
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file


@tool("weather")  # type: ignore[untyped-decorator]  # its types are in its own environment
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"sun in {city}"


def make(model: str, **more: Any) -> Any:
    """Return a model. The provider is named, since crewai knows only the vendors' own names."""
    return LLM(
        model=model,
        provider="openai",
        api="responses",
        base_url=os.environ["ANTIPHON_URL"],
        api_key="none",
        max_retries=0,
        **more,
    )


async def text(model: str) -> Any:
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Say hello."},
    ]
    return await asyncio.to_thread(make(model).call, messages)


async def streaming(model: str) -> Any:
    return await asyncio.to_thread(make(model, stream=True).call, "Say hello.")


async def tool_loop(model: str) -> Any:
    agent = Agent(
        role="forecaster",
        goal="Answer questions about the weather.",
        backstory="Be short.",
        llm=make(model),
        tools=[weather],
    )
    task = Task(
        description="The weather in Rome and in Oslo?", expected_output="A sentence.", agent=agent
    )
    return (await Crew(agents=[agent], tasks=[task]).kickoff_async()).raw


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("cut-off", streaming)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
