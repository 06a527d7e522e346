"""One noisy owner beside a quiet one: what the gateway does before the quiet one's first event.

Counted in turns of the noisy owner, not in time. Its turns are expensive for the event loop, so
that the loop is late, as it is under full load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from antiphon.accounts import loop_share
from antiphon.accounts.fair_queue import FairWaiters
from antiphon.accounts.loop_share import LoopShare
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.server.auth import new_key
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway

_NOISY: Final = 48
_TOKENS: Final = 6
_PIECE: Final = 0.001
_WAIT: Final = 60.0
# Noisy pieces that may be done between a quiet request and its first event: those that had begun.
_FEW: Final = 60


class _Model:
    """Counts the pieces of work that the noisy owner causes."""

    def __init__(self) -> None:
        self.pieces = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    def script(self, plan: Plan) -> Iterator[Step]:
        is_noisy = plan.model == "noisy"
        for _ in range(_TOKENS):
            if is_noisy:
                self.pieces += 1
                time.sleep(_PIECE)  # work for the event loop
            yield TextGrew("word ")
        yield Stopped("stop")


class _Owners:
    """A gateway with two owners."""

    def __init__(self, gateway: Gateway, model: _Model, keys: dict[str, str]) -> None:
        self.share = gateway.app.engine.share
        self.model = model
        self._gateway = gateway
        self._keys = keys
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._tasks: list[asyncio.Task[None]] = []

    async def first_event(self, owner: str, **more: object) -> int:
        """Make a turn; return how many noisy pieces were done before its first event."""
        body = {"model": owner, "input": "hello", "stream": True, **more}
        headers = {"Authorization": f"Bearer {self._keys[owner]}"}
        before = self.model.pieces
        url = f"{self._gateway.base_url}/responses"
        async with self.session.post(url, json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            await answer.content.readany()
            pieces = self.model.pieces - before
            text = await answer.text()
        assert "response.completed" in text
        return pieces

    async def make_noise(self) -> None:
        """Begin to send as many requests as 48 connections can, until work is paced."""
        await self.first_event("quiet")
        self._tasks = [asyncio.create_task(self._repeat()) for _ in range(_NOISY)]
        async with asyncio.timeout(_WAIT):
            while not self.share.is_paced or self.model.pieces < 5 * _NOISY:
                await asyncio.sleep(0.01)
                await self.first_event("quiet")

    async def _repeat(self) -> None:
        while True:
            await self.first_event("noisy")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.session.close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "store.db")


@asynccontextmanager
async def _serving(store: Store) -> AsyncIterator[_Owners]:
    model, keys = _Model(), dict[str, str]()
    for owner in ("quiet", "noisy"):
        keys[owner], record = new_key(owner, int(time.time()))
        await store.add_key(record)
    backend = ScriptedBackend(model.script, models=("quiet", "noisy"))
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(backend, store=store, settings=settings) as gateway:
        owners = _Owners(gateway, model, keys)
        try:
            yield owners
        finally:
            await owners.close()
    await store.close()


async def _median_of_pieces(owners: _Owners) -> int:
    counts = sorted([await owners.first_event("quiet") for _ in range(9)])
    print(f"noisy pieces before the first event of the quiet owner: {counts}")
    return counts[len(counts) // 2]


async def test_few_turns_of_a_noisy_owner_pass_before_the_first_event_of_another(
    store: Store,
) -> None:
    async with _serving(store) as owners:
        await owners.make_noise()
        assert await _median_of_pieces(owners) <= _FEW


class _FirstComeWaiters(FairWaiters):
    def add(self, owner: str) -> asyncio.Future[None]:
        return super().add("everybody")


async def test_first_come_first_served_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_share, "FairWaiters", _FirstComeWaiters)
    monkeypatch.setattr(LoopShare, "is_ahead", lambda *_: True)
    async with _serving(MemoryStore()) as owners:
        await owners.make_noise()
        assert await _median_of_pieces(owners) > _FEW
