"""A scene for openai-python in this process: the client, a gateway, an upstream that plays turns.

The blocking client and the async one have the same methods. A test is written once, for both: the
scene calls a method in a thread if it blocks, and awaits it if not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from openai import AsyncOpenAI, OpenAI

from antiphon.backends.chat import ChatBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.testing import Script, ScriptedUpstream, serve_gateway
from tests.clients.house import Json, Turn

__all__ = ["MODEL", "PATIENCE", "PIXEL", "Scene", "open_scene"]

MODEL: Final = "echo"
PATIENCE: Final = 60.0
PIXEL: Final = "data:image/png;base64,iVBORw0KGgo="


class Scene:
    """A client before a gateway before an upstream, and how to call either kind of client."""

    def __init__(self, client: OpenAI | AsyncOpenAI, upstream: ScriptedUpstream) -> None:
        # Any: the two clients have the same methods, and other types.
        self.client: Any = client
        self.upstream = upstream
        self._is_async = isinstance(client, AsyncOpenAI)

    @property
    def bodies(self) -> list[Json]:
        """The chat requests that arrived upstream."""
        return [request.json for request in self.upstream.requests]

    async def call(self, method: Callable[..., Any], *args: Any, **fields: Any) -> Any:
        """Call a method, in a thread if it blocks."""
        async with asyncio.timeout(PATIENCE):
            if self._is_async:
                return await method(*args, **fields)
            return await asyncio.to_thread(method, *args, **fields)

    async def create(self, **fields: Any) -> Any:
        """Ask for a response."""
        return await self.call(self.client.responses.create, model=MODEL, **fields)

    async def pages(self, method: Callable[..., Any], *args: Any, **fields: Any) -> list[Any]:
        """Return what all pages of a list hold; the blocking client asks for the first at once."""
        async with asyncio.timeout(PATIENCE):
            if self._is_async:
                return [item async for item in method(*args, **fields)]
            return await asyncio.to_thread(lambda: list(method(*args, **fields)))

    async def all(self, items: Any) -> list[Any]:
        """Return everything that a stream yields."""
        async with asyncio.timeout(PATIENCE):
            if self._is_async:
                return [item async for item in items]
            return await asyncio.to_thread(list, items)

    async def within(self, manager: Any, act: Callable[[Any], Any]) -> Any:
        """Do something within a context manager; `act` is a generator of calls to make."""
        async with asyncio.timeout(PATIENCE):
            if self._is_async:
                async with manager as entered:
                    return await _drive(entered, act)
            return await asyncio.to_thread(_block, manager, act)


async def _drive(entered: Any, act: Callable[[Any], Any]) -> Any:
    steps = act(entered)
    value = None
    while True:
        try:
            value = await steps.send(value)
        except StopIteration as end:
            return end.value


def _block(manager: Any, act: Callable[[Any], Any]) -> Any:
    with manager as entered:
        steps = act(entered)
        value = None
        while True:
            try:
                value = steps.send(value)
            except StopIteration as end:
                return end.value


@asynccontextmanager
async def open_scene(
    kind: str, *turns: Turn, settings: ServerSettings | None = None
) -> AsyncIterator[Scene]:
    """Run an upstream that plays the turns, a gateway, and a client of this kind."""
    make: Any = AsyncOpenAI if kind == "async" else OpenAI
    waiting = list(turns)

    def play(body: Json) -> Script:
        turn = waiting.pop(0) if waiting else Script(text="Hello there.")
        return turn if isinstance(turn, Script) else turn(body)

    async with ScriptedUpstream(play) as upstream:
        backend = ChatBackend(upstream.base_url)
        async with serve_gateway(backend, settings=settings) as gateway:
            client = make(
                base_url=gateway.base_url, api_key="none", max_retries=0, timeout=PATIENCE
            )
            try:
                yield Scene(client, upstream)
            finally:
                closing = client.close()
                if closing is not None:
                    await closing
