"""Many live streams, and as many readers who join late: everybody sees the same log."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.codec import decode_event
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.events import ResponseCreated
from antiphon.protocol.machines.referee import judge_stream
from antiphon.server.limits import ServerLimits
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway

_STREAMS: Final = 1000
_SEEN: Final = 6
"""So many events of each stream are out when its follower joins."""
_WATCHDOG_SECONDS: Final = 240.0


@pytest.fixture
def many_files() -> Iterator[None]:
    """Allow as many open sockets as this test needs: four for each stream."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * _STREAMS + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"at most {hard} files may be open here, {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class _Choir:
    """A model whose streams all stop in the middle until every reader is there."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.missing = _STREAMS
        self.backend = ScriptedBackend(self._script)

    def _script(self, plan: Plan) -> Iterator[Step]:
        text = plan.items[-1]["content"]
        name = text if isinstance(text, str) else text[0]["text"]
        for number in range(4):
            yield TextGrew(f"{name}.{number} ")
        yield self.may_go_on
        for number in range(4, 8):
            yield TextGrew(f"{name}.{number} ")
        yield Stopped("stop")

    def arrive(self) -> None:
        """Be one more reader who has begun to read."""
        self.missing -= 1
        if self.missing == 0:
            self.may_go_on.set()


class _Pair:
    """A stream and its two readers, each with the data of every event it got."""

    def __init__(self, number: int) -> None:
        self.number = number
        # A third reads all, a third goes on from what has been, a third from what is to come.
        self.after = (None, number % (_SEEN - 1), _SEEN + 1)[number % 3]
        self.id = ""
        self.has_begun = asyncio.Event()
        self.live: list[bytes] = []
        self.late: list[bytes] = []

    async def read(self, session: aiohttp.ClientSession, gateway: Gateway) -> None:
        """Ask, and read to the end."""
        body = {"model": "echo", "input": f"s{self.number}", "stream": True}
        async with session.post(f"{gateway.base_url}/responses", json=body) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if not line.startswith(b"data: {"):
                    continue
                self.live.append(line)
                if len(self.live) == 1:
                    created = decode_event(line.removeprefix(b"data: "))
                    assert isinstance(created, ResponseCreated)
                    self.id = created.response.id
                if len(self.live) == _SEEN:
                    self.has_begun.set()

    async def follow(self, session: aiohttp.ClientSession, gateway: Gateway, choir: _Choir) -> None:
        """Join when the stream has begun, and read to the end."""
        await self.has_begun.wait()
        if self.after is not None and self.after > _SEEN:
            choir.arrive()  # there is nothing to read yet
            self.late = await self.again(session, gateway)
            return
        self.late = await self.again(session, gateway, choir)

    async def again(
        self, session: aiohttp.ClientSession, gateway: Gateway, choir: _Choir | None = None
    ) -> list[bytes]:
        """Return what a reader gets who asks for the stream of this response."""
        query = {"stream": "true"}
        if self.after is not None:
            query["starting_after"] = str(self.after)
        path = f"{gateway.base_url}/responses/{self.id}"
        lines: list[bytes] = []
        async with session.get(path, params=query) as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    lines.append(line)
                    if choir is not None and len(lines) == 1:
                        choir.arrive()
        return lines

    @property
    def expected(self) -> list[bytes]:
        """What the late reader must have got."""
        return self.live if self.after is None else self.live[self.after + 1 :]


@pytest.mark.usefixtures("many_files")
async def test_a_thousand_late_readers_see_what_the_first_ones_see(tmp_path: Path) -> None:
    choir = _Choir()
    pairs = [_Pair(number) for number in range(_STREAMS)]
    store = SqliteStore(tmp_path / "store.db", patience=_WATCHDOG_SECONDS)
    settings = ServerSettings(limits=ServerLimits(turns=_STREAMS))
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with (
            asyncio.timeout(_WATCHDOG_SECONDS),
            serve_gateway(choir.backend, store=store, settings=settings) as gateway,
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout()) as session,
        ):
            async with asyncio.TaskGroup() as group:
                for pair in pairs:
                    group.create_task(pair.read(session, gateway))
                    group.create_task(pair.follow(session, gateway, choir))
            for pair in pairs[::20]:
                # And so does who comes when it is all over.
                assert await pair.again(session, gateway) == pair.expected
    finally:
        await store.close()
    assert [pair.number for pair in pairs if pair.late != pair.expected] == []
    for pair in pairs:
        events = [decode_event(line.removeprefix(b"data: ")) for line in pair.live]
        assert judge_stream(events) == []
        words = "".join(f"s{pair.number}.{number} " for number in range(8))
        assert events[-1].response.output_text == words  # type: ignore[union-attr]
