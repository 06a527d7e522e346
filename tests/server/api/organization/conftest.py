"""A gateway on each kind of store that requires keys, and the official client as an admin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.store.base import Store
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.server.api.organization.books import key_of, sdk_with
from tests.store.conftest import Database


@pytest.fixture(params=["memory", "sqlite"])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database of each kind that a single gateway uses."""
    made = Database(request.param, tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def office(store: Store) -> AsyncIterator[Gateway]:
    """A gateway that requires keys."""
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        yield gateway


@pytest.fixture
async def admin_key(store: Store) -> str:
    """The key of an administrator."""
    return await key_of(store, "ops", "admin")


@pytest.fixture
async def admin(office: Gateway, admin_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client, as an administrator."""
    async with sdk_with(office, admin_key) as client:
        yield client
