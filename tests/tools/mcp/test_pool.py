"""Which connections are open: one owner's own, a limited number, for a limited time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from antiphon.tools.mcp import loading
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault
from antiphon.tools.mcp.pool import McpPool
from antiphon.tools.mcp.settings import McpSettings
from antiphon.transport.secret import Secret
from tests import clock
from tests.tools.mcp.hostile import Hostile
from tests.tools.mcp.servers import DESK


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    server = Hostile()
    async with server.serve():
        yield server


async def _used(pool: McpPool, owner: str, endpoint: Endpoint) -> object:
    async with pool.lease(owner, endpoint) as connection:
        return connection


async def test_an_owner_gets_the_same_connection_again_and_others_do_not(hostile: Hostile) -> None:
    pool = McpPool(McpSettings())
    endpoint = Endpoint(label="x", url=hostile.url)
    first = await _used(pool, "anna", endpoint)
    assert await _used(pool, "anna", endpoint) is first
    others = [
        await _used(pool, "bert", endpoint),
        await _used(pool, "anna", Endpoint(label="y", url=hostile.url)),
        await _used(pool, "anna", Endpoint(label="x", url=f"{hostile.url}?a=b")),
        await _used(pool, "anna", endpoint.with_headers({"X": Secret("a-secret")})),
        await _used(pool, "anna", endpoint.with_headers({"X": Secret("b-secret")})),
    ]
    assert len({id(one) for one in (first, *others)}) == 6
    await pool.close()
    assert len(pool) == 0


async def test_an_idle_connection_is_closed_after_a_while(hostile: Hostile) -> None:
    pool = McpPool(McpSettings(idle_seconds=100))
    connection: Any = await _used(pool, "anna", Endpoint(label="x", url=hostile.url))
    assert connection.is_open and len(pool) == 1
    clock.skip(101)
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        while connection.is_open:  # noqa: ASYNC110 - closing has no event of its own
            await asyncio.sleep(0.01)
    assert len(pool) == 0
    await pool.close()


async def test_there_is_room_for_so_many_and_idle_ones_give_way(hostile: Hostile) -> None:
    pool = McpPool(McpSettings(connections=3, owner_connections=2))
    places = [Endpoint(label=f"s{number}", url=hostile.url) for number in range(4)]
    async with AsyncExitStack() as held:
        for place in places[:2]:
            await held.enter_async_context(pool.lease("anna", place))
        with pytest.raises(McpFault, match="2 connections of yours"):
            await _used(pool, "anna", places[2])
        await held.enter_async_context(pool.lease("bert", places[0]))
        with pytest.raises(McpFault, match="3 connections to MCP servers"):
            await _used(pool, "carl", places[0])
    await _used(pool, "carl", places[0])
    assert len(pool) == 3
    await pool.close()


async def test_a_connection_that_broke_is_opened_again(tmp_path: Path) -> None:
    command = (sys.executable, str(DESK), str(tmp_path / "calls"), "stdio")
    endpoint = Endpoint(label="desk", command=command, connect_seconds=60)
    pool = McpPool(McpSettings())
    first: Any = await _used(pool, "anna", endpoint)
    await first.close()
    async with pool.lease("anna", endpoint) as second:
        assert second is not first
        assert (await second.call("add", {"a": 1, "b": 1}, 60)).output == "2"
    await pool.close()


async def test_a_server_that_cannot_be_reached_leaves_no_place_taken() -> None:
    pool = McpPool(McpSettings())
    with pytest.raises(McpFault):
        await _used(pool, "anna", Endpoint(label="x", url="http://127.0.0.1:9/"))
    assert len(pool) == 0
    await pool.close()
    with pytest.raises(McpFault, match="about to end"):
        await _used(pool, "anna", Endpoint(label="x", url="http://127.0.0.1:9/"))


async def test_without_the_extra_it_is_said_how_to_install_it(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "antiphon.tools.mcp.connection", None)
    pool = McpPool(McpSettings())
    with pytest.raises(McpFault, match=r"pip install '\.\[mcp\]'"):
        await _used(pool, "anna", Endpoint(label="x", url=hostile.url))
    await pool.close()
    assert "[mcp]" in loading.HOW_TO


def test_the_library_is_not_imported_before_it_is_needed() -> None:
    script = (
        "import sys, antiphon.cli.serve, antiphon.gateway.start, antiphon.cli.tools;"
        "print([name for name in ('mcp', 'httpx2', 'pydantic', 'anyio') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
