"""Where faults happen: an upstream that misbehaves, the chat backend, a gateway, and a client.

Everything runs on loopback in the event loop of the test. `open_house` has a scripted upstream;
`open_raw_house` has one that writes exactly the bytes a test gives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from antiphon.backends.chat import ChatBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.response import Response
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Store
from antiphon.testing import ScriptedUpstream, Status, echo
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.upstream import Play
from antiphon.transport.http import Limits, Secret
from tests.transport.raw import Connection, RawServer, Request, chunk, head, raw_server, reply

__all__ = [
    "KEY",
    "PATIENCE",
    "House",
    "RawHouse",
    "chat_chunk",
    "frames",
    "limited",
    "open_house",
    "open_raw_house",
    "send_events",
    "settled",
    "stored",
    "until",
]

KEY = "sk-the-upstreams-own-key"
PATIENCE = 60.0
"""How long a test waits for what must happen promptly, on however slow a machine."""

EVENTS = head("text/event-stream")


class House(msgspec.Struct, frozen=True):
    """A gateway, the upstream behind it, and the waits between attempts, which are not made."""

    gateway: Gateway
    upstream: ScriptedUpstream
    waits: list[float]


class RawHouse(msgspec.Struct, frozen=True):
    """A gateway and the bytes behind it."""

    gateway: Gateway
    server: RawServer


def limited(**limits: Any) -> ServerSettings:
    """Return settings of the gateway with these limits."""
    return ServerSettings(limits=ServerLimits(**limits))


@asynccontextmanager
async def open_house(
    script: Play = echo,
    *,
    limits: Limits | None = None,
    settings: ServerSettings | None = None,
    store: Store | None = None,
    models_answer: Status | None = None,
    between: Callable[[], Awaitable[object]] | None = None,
) -> AsyncIterator[House]:
    """Run a scripted upstream and a gateway that reaches it with a key.

    `between` runs where the backend would wait before another attempt.
    """
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)
        if between is not None:
            await between()

    async with ScriptedUpstream(script, models_answer=models_answer) as upstream:
        backend = ChatBackend(
            upstream.base_url, key=Secret(KEY), limits=limits, jitter=lambda: 0.0, sleep=note
        )
        async with serve_gateway(
            backend, settings=settings, store=store, default_model="echo"
        ) as gateway:
            yield House(gateway, upstream, waits)


@asynccontextmanager
async def open_raw_house(
    answer: Callable[[Connection], Awaitable[None]],
    *,
    limits: Limits | None = None,
    settings: ServerSettings | None = None,
    store: Store | None = None,
) -> AsyncIterator[RawHouse]:
    """Run an upstream that lists one model and answers each chat request with `answer`."""

    async def serve(request: Request, connection: Connection) -> None:
        if request.method == "GET":
            await connection.write(reply(b'{"data":[{"id":"echo"}]}'))
        else:
            await answer(connection)

    async def go_on(_: float) -> None:
        """Wait for nothing before another attempt."""

    async with raw_server(serve) as server:
        backend = ChatBackend(f"{server.url}/v1", limits=limits, sleep=go_on)
        async with serve_gateway(backend, settings=settings, store=store) as gateway:
            yield RawHouse(gateway, server)


def chat_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return a chunk of a streamed chat completion as JSON."""
    return msgspec.json.encode({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def frames(*chunks: bytes) -> bytes:
    """Return these chunks and the end mark as plain events."""
    return b"".join(b"data: %b\n\n" % data for data in (*chunks, b"[DONE]"))


def send_events(*pieces: bytes) -> Callable[[Connection], Awaitable[None]]:
    """Return an answer whose body is these pieces."""

    async def answer(connection: Connection) -> None:
        await connection.write(EVENTS)
        for piece in pieces:
            await connection.write(chunk(piece))
        await connection.write(chunk(b""))

    return answer


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has no event of its own."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.001)


async def settled(gateway: Gateway, tasks: set[asyncio.Task[Any]]) -> None:
    """Wait until no turn runs and no task is left but these."""
    await until(lambda: gateway.app.metrics.turns == 0 and asyncio.all_tasks() <= tasks)


async def stored(gateway: Gateway, response_id: str, *statuses: str) -> Response:
    """Return a stored response as soon as it has one of these statuses."""
    async with asyncio.timeout(PATIENCE):
        while True:
            response = await gateway.store.get("local", response_id)
            if response is not None and response.status in statuses:
                return response
            await asyncio.sleep(0.001)
