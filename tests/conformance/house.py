"""A whole house on loopback: a scripted upstream, the chat backend, a gateway before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from openai import AsyncOpenAI

from antiphon.backends.chat import ChatBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.testing import ScriptedUpstream
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.upstream import Play
from tests.conformance.model import MODEL, answer

__all__ = ["House", "open_house", "sdk"]


class House(msgspec.Struct, frozen=True):
    """The gateway, and the upstream that its model is reached through."""

    gateway: Gateway
    upstream: ScriptedUpstream

    @property
    def base_url(self) -> str:
        """Where the gateway is."""
        return self.gateway.base_url


@asynccontextmanager
async def open_house(
    script: Play = answer, *, settings: ServerSettings | None = None
) -> AsyncIterator[House]:
    """Run an upstream and a gateway that reaches it over HTTP."""
    async with ScriptedUpstream(script, models=[MODEL]) as upstream:
        backend = ChatBackend(upstream.base_url, sleep=_go_on)
        async with serve_gateway(backend, settings=settings) as gateway:
            yield House(gateway, upstream)


async def _go_on(seconds: float) -> None:
    """Wait for nothing before another attempt."""


@asynccontextmanager
async def sdk(base_url: str, *, api_key: str = "x") -> AsyncIterator[AsyncOpenAI]:
    """Return the official client, which tries everything once only."""
    async with AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
        yield client
