"""Count a prompt as a wire knows how to: send what it asks for, within a limit of time.

The code of a wire is pure and awaits nothing but `post`. So it is run step by step: up to its next
request, which is sent from here. The steps for a large plan run beside the event loop.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.transport.aside import aside_if
from antiphon.transport.http import HttpClient
from antiphon.wires.wire import Post

__all__ = ["count_by_asking"]

_PATIENCE: Final = 10.0

Json = dict[str, Any]  # Any: what JSON holds
_Count = Callable[[Post], Coroutine[Any, Any, int | None]]
_Steps = Coroutine[Any, Any, int | None]  # Any: what it yields and is sent is private to us


class _Request(msgspec.Struct, frozen=True):
    """Where a wire stops: it wants the answer to this."""

    path: str
    body: bytes


class _Counted(msgspec.Struct, frozen=True):
    """Where a wire ends."""

    tokens: int | None


async def count_by_asking(
    client: HttpClient, base_url: str, count: _Count, *, is_large: bool = False
) -> int | None:
    """Return what `count` returns, or None if its server takes too long to answer it."""
    counting = _Counting(count)
    reply: Json | None = None
    try:
        async with asyncio.timeout(_PATIENCE):
            while isinstance(step := await aside_if(is_large, counting.run, reply), _Request):
                reply = await _post(client, _url(base_url, step.path), step.body)
            return step.tokens
    except TimeoutError:
        return None


class _Counting:
    """The code of a wire, run step by step. It begins with the first step, in whatever thread."""

    def __init__(self, count: _Count) -> None:
        self._count = count
        self._steps: _Steps | None = None

    def run(self, reply: Json | None) -> _Request | _Counted:
        """Run to the next request, or to the end."""
        if self._steps is None:
            self._steps = self._count(_stop_at)
        try:
            request: _Request = self._steps.send(reply)
        except StopIteration as end:
            return _Counted(end.value)
        return request


@types.coroutine
def _stop_at(path: str, body: Mapping[str, Any]) -> Generator[_Request, Json, Json]:
    """Stop a wire's coroutine at its request until it is sent the answer."""
    return (yield _Request(path, msgspec.json.encode(body)))


def _url(base_url: str, path: str) -> str:
    base = base_url.rstrip("/")
    if path.startswith("~"):
        return base.removesuffix("/v1") + path[1:]
    return base + path


async def _post(client: HttpClient, url: str, body: bytes) -> Json:
    """Return the object that the server answers with; nothing if it has no such answer."""
    reply = await client.fetch("POST", url, body=body)
    value = decode_json(reply.body) if reply.head.status == 200 else None
    return value if isinstance(value, dict) else {}
