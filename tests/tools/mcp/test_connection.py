"""Connections to real MCP servers: every transport, every way to end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.tools.mcp.connection import Connection
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault
from antiphon.tools.mcp.settings import Transport
from antiphon.transport.secret import Secret
from tests.tools.mcp.servers import DESK, calls_in, desk, free_port, npm_command

_MIB = 1024 * 1024


@asynccontextmanager
async def opened(endpoint: Endpoint, most: int = 8 * _MIB) -> AsyncIterator[Connection]:
    connection = Connection(endpoint, most)
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()
        assert not connection.is_open


@pytest.fixture(params=["stdio", "http", "json", "sse"])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Endpoint]:
    log, transport = tmp_path / "calls", request.param
    if transport == "stdio":
        command = (sys.executable, str(DESK), str(log), "stdio")
        yield Endpoint(label="desk", command=command, connect_seconds=60)
        return
    with desk(log, transport) as url:
        kind: Transport = "sse" if transport == "sse" else "streamable-http"
        yield Endpoint(label=transport, url=url, transport=kind, connect_seconds=60)


async def test_every_transport_lists_calls_and_reports_errors(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    async with opened(endpoint) as connection:
        listing = await connection.list_tools()
        assert list(listing.tools) == ["add", "peek", "wait", "fail", "draw", "count"]
        assert listing.tools["peek"].is_read_only and not listing.tools["add"].is_read_only
        assert (await connection.call("add", {"a": 2, "b": 3}, 60)).output == "5"
        failed = await connection.call("fail", {}, 60)
        assert failed.error is not None and "fail" in failed.output
        drawn = await connection.call("draw", {}, 60)
        assert drawn.output.startswith("[image, image/png, about 30")
        assert '"letters"' in (await connection.call("count", {"text": "abc"}, 60)).output
    assert [call["name"] for call in calls_in(tmp_path / "calls")] == [
        "add",
        "fail",
        "draw",
        "count",
    ]


async def test_calls_run_side_by_side(endpoint: Endpoint, tmp_path: Path) -> None:
    async with opened(endpoint) as connection:
        results = await asyncio.gather(
            *(connection.call("add", {"a": number, "b": 1}, 60) for number in range(20))
        )
    assert [result.output for result in results] == [str(number + 1) for number in range(20)]
    assert len(calls_in(tmp_path / "calls", "add")) == 20


async def test_a_cancelled_call_is_cancelled_at_the_server(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    if endpoint.label == "json":
        pytest.skip("a server that answers in JSON does not notice that its client has gone")
    async with opened(endpoint) as connection:
        call = asyncio.create_task(connection.call("wait", {"seconds": 600}, 600))
        await _until(lambda: calls_in(log, "wait"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await _until(lambda: calls_in(log, "wait-cancelled"))
        assert (await connection.call("add", {"a": 1, "b": 1}, 60)).output == "2"


async def test_a_late_call_fails_and_is_cancelled_at_the_server(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    async with opened(endpoint) as connection:
        with pytest.raises(McpFault) as caught:
            await connection.call("wait", {"seconds": 600}, 1)
        assert caught.value.error["type"] == "mcp_protocol_error"
        if endpoint.label != "json":  # it does not notice that its client has gone
            await _until(lambda: calls_in(tmp_path / "calls", "wait-cancelled"))


async def _until(is_there: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not is_there():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("package", "tool", "arguments", "expected"),
    [
        ("everything", "echo", {"message": "hello"}, "hello"),
        ("filesystem", "list_allowed_directories", {}, "Allowed directories"),
        ("memory", "read_graph", {}, "entities"),
    ],
)
async def test_servers_from_npm_are_called(
    package: str, tool: str, arguments: dict, expected: str, tmp_path: Path
) -> None:
    given = [str(tmp_path)] if package == "filesystem" else []
    command = npm_command(package, *given)
    env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    endpoint = Endpoint(label=package, command=command, env=env, connect_seconds=60)
    async with opened(endpoint) as connection:
        assert tool in (await connection.list_tools()).tools
        assert expected in (await connection.call(tool, arguments, 60)).output


async def test_a_server_that_is_not_there_is_a_fault_without_our_addresses() -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    with pytest.raises(McpFault, match="cannot be reached"):
        async with opened(Endpoint(label="x", url=url)):
            pass
    with pytest.raises(McpFault, match="cannot be started"):
        async with opened(Endpoint(label="x", command=("/nowhere/program",))):
            pass


async def test_a_guarded_endpoint_does_not_reach_loopback(tmp_path: Path) -> None:
    with desk(tmp_path / "calls") as url, pytest.raises(McpFault, match="not a public one"):
        async with opened(Endpoint(label="x", url=url, is_guarded=True)):
            pass
    assert calls_in(tmp_path / "calls") == []


async def test_a_process_that_dies_ends_its_calls(tmp_path: Path) -> None:
    script = "import sys; sys.stdin.readline(); sys.exit(3)"
    endpoint = Endpoint(label="x", command=(sys.executable, "-c", script), connect_seconds=60)
    with pytest.raises(McpFault, match="has ended"):
        async with opened(endpoint):
            pass


def test_an_endpoint_shows_no_secret() -> None:
    endpoint = Endpoint(label="x", url="http://h/?key=abc", headers={"A": Secret("topsecret1")})
    assert repr(endpoint) == "Endpoint('x')"
    assert endpoint.key != Endpoint(label="x", url="http://h/?key=abc").key
