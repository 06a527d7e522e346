"""A client's end of a WebSocket, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import msgspec

__all__ = ["PATIENCE", "Talk", "kinds", "said", "talk"]

Json = dict[str, Any]

PATIENCE: Final = 60.0
_LAST: Final = ("error", "response.completed", "response.failed", "response.incomplete")


class Talk:
    """One open WebSocket and what can be done with it."""

    def __init__(self, wire: aiohttp.ClientWebSocketResponse) -> None:
        self.wire = wire

    async def ask(self, **body: Any) -> None:
        """Send a `response.create`."""
        await self.send({"type": "response.create", "model": "echo", **body})

    async def send(self, frame: object) -> None:
        """Send anything as JSON."""
        await self.wire.send_str(msgspec.json.encode(frame).decode())

    async def event(self) -> Json:
        """Return the next event."""
        message = await self.wire.receive(timeout=PATIENCE)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        event: Json = msgspec.json.decode(message.data)
        return event

    async def began(self, stream_id: str | None = None) -> str:
        """Wait until a turn of this lane has begun; return the id of its response."""
        event = await self.event()
        while event["type"] != "response.created" or event.get("stream_id") != stream_id:
            event = await self.event()
        response_id: str = event["response"]["id"]
        return response_id

    async def events(self) -> list[Json]:
        """Return the events up to the end of a turn, whatever lane it is in."""
        events = [await self.event()]
        while events[-1]["type"] not in _LAST:
            events.append(await self.event())
        return events

    async def turn(self, **body: Any) -> Json:
        """Ask, and return the last event."""
        await self.ask(**body)
        return (await self.events())[-1]

    async def error(self) -> Json:
        """Return the next event, which must be an error."""
        event = await self.event()
        assert event["type"] == "error", event
        assert isinstance(event["status"], int)
        error: Json = event["error"]
        return error

    async def closed(self) -> int | None:
        """Wait until the server closes; return its code."""
        message = await self.wire.receive(timeout=PATIENCE)
        closing = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        assert message.type in closing, message
        return self.wire.close_code


@asynccontextmanager
async def talk(base_url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Talk]:
    """Open a WebSocket at a gateway."""
    async with aiohttp.ClientSession() as session:
        wire = await session.ws_connect(f"{base_url}/responses", headers=headers, max_msg_size=0)
        try:
            yield Talk(wire)
        finally:
            async with asyncio.timeout(PATIENCE):
                await wire.close()


def kinds(events: list[Json]) -> list[str]:
    """Return the types of events, without their prefix."""
    return [event["type"].removeprefix("response.") for event in events]


def said(event: Json) -> str:
    """Return the text of the response that a turn ended in."""
    text: str = event["response"]["output"][-1]["content"][0]["text"]
    return text
