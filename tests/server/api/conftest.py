"""A gateway on each kind of store, with a key for each of two owners."""

from __future__ import annotations

from collections.abc import AsyncIterator

import openai
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.limits import FileLimits
from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.server.api.filing import sdk_of
from tests.store.conftest import database, store

__all__ = ["database", "store"]

LIMITS = FileLimits(max_bytes=8 * 1024 * 1024, owner_bytes=64 * 1024 * 1024)


@pytest.fixture
async def shelf(store: Store) -> AsyncIterator[Gateway]:
    """A gateway that requires keys, and takes files of up to 8 MiB."""
    settings = ServerSettings(require_keys=True, files=LIMITS)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        yield gateway


@pytest.fixture
async def sdk(shelf: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client, as the owner alice."""
    async with await sdk_of(shelf, "alice") as client:
        yield client
