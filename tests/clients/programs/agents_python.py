"""openai-agents for Python as its users use it. Each turn asks for a model of its own name."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from agents import (  # type: ignore[import-not-found]  # it has an environment of its own
    Agent,
    ApplyPatchTool,
    CustomTool,
    LocalShellTool,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    Runner,
    ShellTool,
    SQLiteSession,
    function_tool,
    responses_websocket_session,
    set_default_openai_client,
    set_tracing_disabled,
    tool_namespace,
)
from openai import APIError, AsyncOpenAI
from pydantic import BaseModel
from report import tell, turn  # type: ignore[import-not-found]  # it lies beside this file

URL = os.environ["ANTIPHON_URL"]


class Person(BaseModel):
    """What the model is to return."""

    name: str
    age: int


def _weather(city: str) -> str:
    """Say how the weather is."""
    return f"sun in {city}"


weather = function_tool(_weather, name_override="weather")


class Editor:
    """Keeps what it was asked to do."""

    def __init__(self) -> None:
        self.done: list[list[str | None]] = []

    def _note(self, operation: Any) -> str:
        self.done.append([operation.type, operation.path, operation.diff])
        return f"did {operation.path}"

    create_file = update_file = delete_file = _note


def kinds(result: Any) -> list[str]:
    """Return the kinds of the items that a run made."""
    return [item.type for item in result.new_items]


async def tool_loop(model: str) -> Any:
    agent = Agent(name="Clerk", instructions="Use the tool.", model=model, tools=[weather])
    result = await Runner.run(agent, "The weather in Rome and in Oslo?")
    return {"text": result.final_output, "items": kinds(result)}


async def streaming(model: str) -> Any:
    agent = Agent(name="Clerk", model=model, tools=[weather])
    result = Runner.run_streamed(agent, "The weather in Rome?")
    pieces, items = [], []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            pieces.append(event.data.delta)
        if event.type == "run_item_stream_event":
            items.append(event.name)
    return {"text": result.final_output, "pieces": pieces, "items": items}


async def cut_off(model: str) -> Any:
    result = Runner.run_streamed(Agent(name="Clerk", model=model), "The weather in Rome?")
    pieces = []
    try:
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
                pieces.append(event.data.delta)
    except APIError as error:
        return {"pieces": pieces, "code": error.code, "message": error.message}
    return {"pieces": pieces, "code": None, "message": ""}


async def handing_off(model: str) -> Any:
    poet = Agent(name="Poet", instructions="Answer in verse.", model=model)
    clerk = Agent(name="Clerk", instructions="Hand poems over.", model=model, handoffs=[poet])
    result = await Runner.run(clerk, "A poem, please.")
    return {"text": result.final_output, "agent": result.last_agent.name, "items": kinds(result)}


async def output_type(model: str) -> Any:
    agent = Agent(name="Clerk", model=model, output_type=Person)
    result = await Runner.run(agent, "Invent a person.")
    return result.final_output.model_dump()


async def previous_response(model: str) -> Any:
    agent = Agent(name="Clerk", model=model)
    first = await Runner.run(agent, "My name is Ada.")
    second = await Runner.run(
        agent, "What is my name?", previous_response_id=first.last_response_id
    )
    return second.final_output


async def conversation_id(model: str) -> Any:
    made = await AsyncOpenAI(base_url=URL).conversations.create()
    agent = Agent(name="Clerk", model=model, tools=[weather])
    first = await Runner.run(agent, "The weather in Rome?", conversation_id=made.id)
    second = await Runner.run(agent, "And again?", conversation_id=made.id)
    return [first.final_output, second.final_output]


async def conversation_session(model: str) -> Any:
    agent = Agent(name="Clerk", model=model, tools=[weather])
    session = OpenAIConversationsSession()
    first = await Runner.run(agent, "The weather in Rome?", session=session)
    second = await Runner.run(agent, "And again?", session=session)
    items: list[Any] = await session.get_items()
    popped: Any = await session.pop_item()
    left = len(await session.get_items())
    await session.clear_session()
    return {
        "texts": [first.final_output, second.final_output],
        "items": [item["type"] for item in items],
        "popped": popped["type"],
        "left": left,
    }


async def compaction_session(model: str) -> Any:
    agent = Agent(name="Clerk", model=model)
    session = OpenAIResponsesCompactionSession(
        session_id="s",
        underlying_session=SQLiteSession("s"),
        model=model,
        should_trigger_compaction=lambda found: len(found["compaction_candidate_items"]) >= 2,
    )
    texts = []
    for question in ("My name is Ada.", "I live in Rome.", "Who am I?"):
        result = await Runner.run(agent, question, session=session)
        texts.append(result.final_output)
    items: list[Any] = await session.get_items()
    return {"texts": texts, "items": [item.get("type") or item["role"] for item in items]}


async def compaction_of_input(model: str) -> Any:
    """With nothing stored, the session sends its items to be compacted."""
    agent = Agent(name="Clerk", model=model, model_settings=ModelSettings(store=False))
    session = OpenAIResponsesCompactionSession(
        session_id="t",
        underlying_session=SQLiteSession("t"),
        model=model,
        should_trigger_compaction=lambda found: len(found["compaction_candidate_items"]) >= 2,
    )
    texts = []
    for question in ("My name is Ada.", "I live in Rome.", "Who am I?"):
        result = await Runner.run(agent, question, session=session)
        texts.append(result.final_output)
    items: list[Any] = await session.get_items()
    return {"texts": texts, "items": [item.get("type") or item["role"] for item in items]}


async def custom_tool(model: str) -> Any:
    heard = []

    async def work_out(_: Any, text: str) -> str:
        heard.append(text)
        return "5"

    tool = CustomTool(
        name="sums",
        description="Works out a sum.",
        on_invoke_tool=work_out,
        format={
            "type": "grammar",
            "syntax": "lark",
            "definition": 'start: /[0-9]+/ " + " /[0-9]+/',
        },
    )
    result = await Runner.run(Agent(name="Clerk", model=model, tools=[tool]), "What is 2 + 3?")
    return {"text": result.final_output, "heard": heard}


async def shell(model: str) -> Any:
    heard = []

    def execute(request: Any) -> str:
        heard.append(request.data.action.commands)
        return "notes.txt"

    agent = Agent(name="Clerk", model=model, tools=[ShellTool(executor=execute)])
    result = await Runner.run(agent, "Which files are there?")
    return {"text": result.final_output, "heard": heard}


async def local_shell(model: str) -> Any:
    heard = []

    def execute(request: Any) -> str:
        heard.append(request.data.action.command)
        return "notes.txt"

    agent = Agent(name="Clerk", model=model, tools=[LocalShellTool(executor=execute)])
    result = await Runner.run(agent, "Which files are there?")
    return {"text": result.final_output, "heard": heard}


async def apply_patch(model: str) -> Any:
    editor = Editor()
    agent = Agent(name="Clerk", model=model, tools=[ApplyPatchTool(editor=editor)])
    result = await Runner.run(agent, "Write the notes.")
    return {"text": result.final_output, "done": editor.done}


async def namespace(model: str) -> Any:
    tools = tool_namespace(name="almanac", description="What is known.", tools=[weather])
    result = await Runner.run(Agent(name="Clerk", model=model, tools=tools), "Weather in Rome?")
    return {"text": result.final_output, "items": kinds(result)}


async def websocket(model: str) -> Any:
    agent = Agent(name="Clerk", model=model, tools=[weather])
    async with responses_websocket_session(base_url=URL, api_key="none") as session:
        first = await session.run(agent, "The weather in Rome?")
        second = session.run_streamed(
            agent, "And again?", previous_response_id=first.last_response_id
        )
        kinds_of_events = [event.type async for event in second.stream_events()]
    return {"texts": [first.final_output, second.final_output], "events": len(kinds_of_events)}


async def main() -> None:
    """Play every turn."""
    set_tracing_disabled(True)
    set_default_openai_client(
        AsyncOpenAI(base_url=URL, api_key="none", max_retries=0), use_for_tracing=False
    )
    await turn("tool-loop", tool_loop)
    await turn("streaming", streaming)
    await turn("cut-off", cut_off)
    await turn("handoff", handing_off)
    await turn("output-type", output_type)
    await turn("previous-response", previous_response)
    await turn("conversation-id", conversation_id)
    await turn("conversation-session", conversation_session)
    await turn("gpt-compaction", compaction_session)
    await turn("gpt-compaction-of-input", compaction_of_input)
    await turn("custom-tool", custom_tool)
    await turn("shell", shell)
    await turn("local-shell", local_shell)
    await turn("apply-patch", apply_patch)
    await turn("namespace", namespace)
    await turn("websocket", websocket)
    tell()


if __name__ == "__main__":
    asyncio.run(main())
