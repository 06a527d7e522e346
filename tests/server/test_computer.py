"""A computer of the client's on a chat model: the computer loop of the OpenAI SDK runs it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import openai
from openai.lib.computer import AsyncComputerToolset, Screenshot

from antiphon.protocol.machines.referee import judge_stream
from antiphon.testing import Call, ChatBackend, Script, ScriptedUpstream, serve_gateway
from tests.asking import ask_stream, terminal
from tests.faults.house import PATIENCE

PIXEL: Final = "iVBORw0KGgo="
CLICK: Final = '{"action": {"type": "click", "button": "left", "x": 3, "y": 4}}'
TYPE: Final = '{"action": {"type": "type", "text": "tide"}}'
SCRIPTS: Final = [
    Script(calls=[Call("computer", CLICK)]),
    Script(calls=[Call("computer", TYPE)]),
    Script(text="Done."),
]


class Desk:
    """Notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    async def _note(self, action: Any) -> None:
        self.done.append(action)

    click = double_click = drag = keypress = move = scroll = type = wait = _note

    async def screenshot(self) -> Screenshot:
        """Return the beginning of an image."""
        url = f"data:image/png;base64,{PIXEL}"
        return {"type": "computer_screenshot", "image_url": url}


async def test_the_computer_loop_of_the_sdk_runs_on_a_chat_model() -> None:
    desk = Desk()
    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(SCRIPTS) as upstream,
        serve_gateway(ChatBackend(upstream.base_url), default_model="echo") as gateway,
    ):
        client = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="none")
        toolset = AsyncComputerToolset(desk)
        response = await toolset.run(client, {"model": "echo", "input": "Search for tides."})
        await client.close()
        _, _, third = (one.json for one in upstream.requests)
    assert response.output_text == "Done."
    assert [action.type for action in desk.done] == ["click", "type"]
    assert (desk.done[0].x, desk.done[0].y, desk.done[1].text) == (3, 4, "tide")
    calls = [call for message in third["messages"] for call in message.get("tool_calls") or ()]
    assert [call["function"]["name"] for call in calls] == ["computer", "computer"]
    assert PIXEL in str(third)


async def test_a_stream_has_the_call_whole() -> None:
    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(SCRIPTS) as upstream,
        serve_gateway(ChatBackend(upstream.base_url), default_model="echo") as gateway,
    ):
        events = await ask_stream(gateway, tools=[{"type": "computer"}])
    assert judge_stream(events) == []
    (call,) = terminal(events).output
    assert call["type"] == "computer_call"
    assert call["action"] == {"type": "click", "button": "left", "x": 3, "y": 4}
    assert (call["status"], call["pending_safety_checks"]) == ("completed", [])
