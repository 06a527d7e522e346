"""langchain-openai as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from langchain_core.messages import (  # type: ignore[import-not-found]  # its own environment
    HumanMessage,
    ToolMessage,
)
from langchain_core.tools import tool  # type: ignore[import-not-found]  # the same
from langchain_openai import (  # type: ignore[import-not-found]  # the same
    ChatOpenAI,
    custom_tool,
)
from pydantic import BaseModel
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def _weather(city: str) -> str:
    """Say how the weather is."""
    return f"sun in {city}"


def _sums(text: str) -> str:
    """Work out a sum."""
    return "5" if text == "2 + 3" else "what?"


weather = tool("weather")(_weather)


def make(model: str, **more: Any) -> Any:
    """Return a chat model that speaks Responses."""
    return make_default(model, use_responses_api=True, **more)


def make_default(model: str, **more: Any) -> Any:
    """Return a chat model that speaks what the library chooses: chat completions."""
    url = os.environ["ANTIPHON_URL"]
    return ChatOpenAI(model=model, base_url=url, api_key="none", max_retries=0, **more)


async def text(model: str) -> Any:
    answer = await make(model).ainvoke([("system", "Be short."), ("user", "Say hello.")])
    return {"text": answer.text, "usage": answer.usage_metadata}


async def streaming(model: str) -> Any:
    return [chunk.text async for chunk in make(model).astream("Say hello.") if chunk.text]


async def _loop(chat: Any, tools: dict[str, Any], question: str) -> Any:
    messages: list[Any] = [HumanMessage(question)]
    answer = await chat.ainvoke(messages)
    messages.append(answer)
    for call in answer.tool_calls:
        messages.append(await tools[call["name"]].ainvoke(call))
    return await chat.ainvoke(messages)


async def tool_loop(model: str) -> Any:
    chat = make(model).bind_tools([weather])
    return (await _loop(chat, {"weather": weather}, "The weather in Rome and in Oslo?")).text


async def previous_response(model: str) -> Any:
    chat = make(model, use_previous_response_id=True).bind_tools([weather])
    return (await _loop(chat, {"weather": weather}, "The weather in Rome?")).text


async def reasoning(model: str) -> Any:
    chat = make(model, reasoning={"effort": "low", "summary": "auto"}).bind_tools([weather])
    messages: list[Any] = [HumanMessage("The weather in Rome?")]
    whole = await _whole(chat, messages)
    messages.append(whole)
    thoughts = [block for block in whole.content_blocks if block["type"] == "reasoning"]
    for call in whole.tool_calls:
        messages.append(ToolMessage("sun in Rome", tool_call_id=call["id"]))
    answer = await chat.ainvoke(messages)
    return {"thought": thoughts[0]["reasoning"], "text": answer.text}


async def structured(model: str) -> Any:
    chat = make(model).with_structured_output(Person, method="json_schema")
    return (await chat.ainvoke("Invent a person.")).model_dump()


async def custom(model: str) -> Any:
    sums = custom_tool(_sums)
    chat = make(model).bind_tools([sums])
    return (await _loop(chat, {sums.name: sums}, "What is 2 + 3?")).text


async def chat_tool_loop(model: str) -> Any:
    chat = make_default(model).bind_tools([weather])
    answer = await _loop(chat, {"weather": weather}, "The weather in Rome and in Oslo?")
    return {"text": answer.text, "id": answer.response_metadata["id"]}


async def chat_streamed(model: str) -> Any:
    """Run the tool loop of two rounds with streams."""
    chat = make_default(model).bind_tools([weather])
    messages: list[Any] = [HumanMessage("The weather in Rome and in Oslo?")]
    first = await _whole(chat, messages)
    messages.append(first)
    for call in first.tool_calls:
        messages.append(await weather.ainvoke(call))
    answer = await _whole(chat, messages)
    return {"text": answer.text, "finish_reason": answer.response_metadata["finish_reason"]}


async def _whole(chat: Any, messages: list[Any]) -> Any:
    """Return the sum of the chunks that a model streams."""
    whole: Any = None
    async for chunk in chat.astream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


async def main() -> None:
    """Play every turn."""
    await turn("text", text)
    await turn("streaming", streaming)
    await turn("tool-loop", tool_loop)
    await turn("previous-response", previous_response)
    await turn("reasoning", reasoning)
    await turn("structured", structured)
    await turn("custom-tool", custom)
    await turn("chat-tool-loop", chat_tool_loop)
    await turn("chat-streamed", chat_streamed)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
