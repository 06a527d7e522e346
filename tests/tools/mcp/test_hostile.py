"""MCP servers that misbehave: nothing they send costs more than the limits allow."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon.tools.mcp.connection import Connection
from antiphon.tools.mcp.definitions import MAX_TOOLS
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault
from antiphon.transport.secret import Secret
from tests.tools.mcp.hostile import Hostile, drip, endless, hang, result, streamed, tool
from tests.transport import raw
from tests.transport.raw import chunk, head, reply

_MIB = 1024 * 1024
_LIMIT = 8 * _MIB
_KEY = "sk-very-secret-token"


@asynccontextmanager
async def opened(server: Hostile, **fields: Any) -> AsyncIterator[Connection]:
    headers = {"Authorization": Secret(f"Bearer {_KEY}")}
    endpoint = Endpoint(label="x", url=server.url, headers=headers, **fields)
    connection = Connection(endpoint, _LIMIT)
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


class Peak:
    """How much the memory of this process grew at most since the beginning of the block."""

    def __enter__(self) -> Peak:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = _status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.growth = _status("VmHWM") - self._before


def _status(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(rf"{name}:\s+(\d+)", status)[0]) * 1024


needs_proc = pytest.mark.skipif(
    sys.platform != "linux" or not os.access("/proc/self/clear_refs", os.W_OK),
    reason="peaks of memory are measured with /proc",
)


@needs_proc
@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
async def test_a_result_of_200_megabytes_is_cut_off_while_it_arrives(content_type: str) -> None:
    hostile = Hostile(calling=endless(200, content_type=content_type))
    async with hostile.serve(), opened(hostile) as connection:
        with Peak() as peak, pytest.raises(McpFault, match=r"longer than|too large|exceed"):
            await connection.call("echo", {}, 60)
    assert peak.growth < 64 * _MIB


@needs_proc
async def test_a_list_of_twenty_thousand_tools_is_cut() -> None:
    tools = [tool(f"tool_{number}", description="d" * 100) for number in range(20_000)]
    hostile = Hostile(listing=result({"tools": tools}))
    async with hostile.serve(), opened(hostile, connect_seconds=60) as connection:
        with Peak() as peak:
            listing = await connection.list_tools()
    assert len(listing.tools) == MAX_TOOLS
    assert "more than 512 tools" in listing.notes[-1]
    assert peak.growth < 200 * _MIB


@needs_proc
async def test_a_line_of_200_megabytes_stops_the_process(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import sys\nsys.stdin.readline()\n"
        "for _ in range(200):\n    sys.stdout.write('x' * 2**20)\n    sys.stdout.flush()\n"
    )
    endpoint = Endpoint(label="x", command=(sys.executable, str(script)), connect_seconds=60)
    connection = Connection(endpoint, _LIMIT)
    with Peak() as peak, pytest.raises(McpFault, match="longer than"):
        await connection.open()
    await connection.close()
    assert peak.growth < 64 * _MIB


async def test_a_list_without_end_ends() -> None:
    pages = iter(range(10**6))

    async def next_page(message: dict[str, Any], connection: raw.Connection) -> None:
        number = next(pages)
        page = {"tools": [tool(f"tool_{number}")], "nextCursor": f"page-{number}"}
        await result(page)(message, connection)

    async with Hostile(listing=next_page).serve() as server:
        async with opened(server) as connection:
            listing = await connection.list_tools()
        assert server.lists == 10
    assert len(listing.tools) == 10
    assert any("has no end" in note for note in listing.notes)


async def test_a_cursor_that_repeats_ends_the_list() -> None:
    page = {"tools": [tool()], "nextCursor": "again"}
    async with Hostile(listing=result(page)).serve() as server:
        async with opened(server) as connection:
            assert list((await connection.list_tools()).tools) == ["echo"]
        assert server.lists == 2


@pytest.mark.parametrize("answer", [hang, drip, streamed(b": nothing\n\n")])
async def test_a_server_that_does_not_come_to_an_end_is_left(answer: Any) -> None:
    async with Hostile(calling=answer).serve() as server, opened(server) as connection:
        with pytest.raises(McpFault, match=r"in time|[Tt]imed out"):
            await connection.call("echo", {}, 1)


async def test_redirects_are_not_followed() -> None:
    async def redirect(_: dict[str, Any], connection: raw.Connection) -> None:
        place = "Location: http://169.254.169.254/latest/meta-data"
        await connection.write(reply(b"", place, status="307 Temporary Redirect"))

    async with Hostile(calling=redirect).serve() as server:
        async with opened(server) as connection:
            with pytest.raises(McpFault, match="redirects are not followed") as caught:
                await connection.call("echo", {}, 60)
        assert len(server.calls) == 1
    assert caught.value.error == {
        "type": "http_error",
        "code": 307,
        "message": "the server redirects, and redirects are not followed",
    }


async def test_redirects_on_the_same_host_are_not_followed_either() -> None:
    async def redirect(_: dict[str, Any], connection: raw.Connection) -> None:
        await connection.write(reply(b"", "Location: /mcp", status="308 Permanent Redirect"))

    async with Hostile(calling=redirect).serve() as server:
        async with opened(server) as connection:
            with pytest.raises(McpFault, match="not followed"):
                await connection.call("echo", {}, 60)
        assert len(server.calls) == 1


@pytest.mark.parametrize(
    ("status", "extra", "code"),
    [
        (
            "401 Unauthorized",
            'WWW-Authenticate: Bearer resource_metadata="http://169.254.1.1/"',
            401,
        ),
        ("403 Forbidden", "X-A: b", 403),
        ("404 Not Found", "X-A: b", 404),
        ("500 Internal Server Error", "X-A: b", 500),
    ],
)
async def test_refusals_keep_their_status(status: str, extra: str, code: int) -> None:
    async def refuse(_: dict[str, Any], connection: raw.Connection) -> None:
        await connection.write(reply(b"<html>no</html>", extra, status=status))

    async with Hostile(calling=refuse).serve() as server, opened(server) as connection:
        with pytest.raises(McpFault) as caught:
            await connection.call("echo", {}, 60)
    assert (caught.value.error["type"], caught.value.error["code"]) == ("http_error", code)


async def test_html_is_no_answer() -> None:
    async def page(_: dict[str, Any], connection: raw.Connection) -> None:
        await connection.write(reply(b"<html>welcome</html>", content_type="text/html"))

    async with Hostile(calling=page).serve() as server, opened(server) as connection:
        with pytest.raises(McpFault, match="content type"):
            await connection.call("echo", {}, 60)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"jsonrpc":"2.0"}', b"\xff\xfe", b"[" * 100_000])
async def test_an_answer_that_is_not_json_rpc_is_a_fault(body: bytes) -> None:
    async def answer(_: dict[str, Any], connection: raw.Connection) -> None:
        await connection.write(reply(body))

    async with Hostile(calling=answer).serve() as server, opened(server) as connection:
        with pytest.raises(McpFault):
            await connection.call("echo", {}, 30)


async def test_a_server_that_repeats_our_key_does_not_get_it_into_messages() -> None:
    async def repeat(message: dict[str, Any], connection: raw.Connection) -> None:
        error = {"code": -32000, "message": f"bad token {_KEY}, Bearer {_KEY}"}
        body = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        await connection.write(reply(json.dumps(body).encode()))

    async with Hostile(calling=repeat).serve() as server:
        async with opened(server) as connection:
            with pytest.raises(McpFault) as caught:
                await connection.call("echo", {}, 60)
        assert server.raw.requests[0].headers["authorization"] == f"Bearer {_KEY}"
    assert caught.value.error["code"] == -32000
    assert _KEY not in caught.value.message and "bad token" in caught.value.message


async def test_a_call_is_never_sent_twice() -> None:
    """The server reads the call on a connection that was used before, and hangs up."""

    async def drop(_: dict[str, Any], connection: raw.Connection) -> None:
        connection.reset()

    async with Hostile(calling=drop).serve() as server:
        async with opened(server) as connection:
            await connection.list_tools()
            with pytest.raises(McpFault):
                await connection.call("echo", {}, 60)
        assert len(server.calls) == 1


@pytest.mark.parametrize("form", ["silent", "silent after its head", "deaf", "late"])
async def test_a_call_that_is_given_up_leaves_no_request_and_a_connection_of_use(form: str) -> None:
    """The server holds the call, and does not react when it is cancelled."""
    is_held, is_closed = asyncio.Event(), asyncio.Event()

    async def hold(message: dict[str, Any], connection: raw.Connection) -> None:
        if form == "silent after its head":
            await connection.write(head("text/event-stream"))
        is_held.set()
        await connection.until_closed()
        is_closed.set()

    class Deaf(Hostile):
        async def _answer(self, request: raw.Request, connection: raw.Connection) -> None:
            if form == "deaf" and b"notifications/cancelled" in request.body:
                await connection.until_closed()
            else:
                await super()._answer(request, connection)

    async with Deaf(calling=hold).serve() as server, opened(server) as connection:
        async with asyncio.timeout(120):
            if form == "late":
                with pytest.raises(McpFault, match="time"):
                    await connection.call("echo", {}, 0.5)
            else:
                call = asyncio.create_task(connection.call("echo", {}, 600))
                await is_held.wait()
                call.cancel()
                await asyncio.wait({call})
            await is_closed.wait()
            server.calling = result({"content": [{"type": "text", "text": "ok"}]})
            assert (await connection.call("echo", {}, 60)).output == "ok"


async def test_a_stream_that_a_server_closes_again_and_again_is_given_up() -> None:
    """The library would open it without end, as quickly as the server asks for."""
    opened_streams = 0

    async def answer(request: raw.Request, connection: raw.Connection) -> None:
        nonlocal opened_streams
        if request.method == "GET":
            opened_streams += 1
            body = b"retry: 0\n\n"
            await connection.write(reply(body, content_type="text/event-stream"))
            return
        message = json.loads(request.body)
        if message.get("method") == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "hostile", "version": "1"}
            made = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": made}).encode()
            await connection.write(reply(body, "Mcp-Session-Id: one"))
        elif "id" not in message:
            await connection.write(reply(b"", status="202 Accepted"))
        else:
            error = {"code": -32601, "message": "no such method"}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
            await connection.write(reply(body))

    async with raw.raw_server(answer) as server:
        connection = Connection(Endpoint(label="x", url=f"{server.url}/mcp"), _LIMIT)
        await connection.open()
        for _ in range(50):
            with pytest.raises(McpFault):
                await connection.call("echo", {}, 30)
        await connection.close()
    assert 1 <= opened_streams <= 20


async def test_a_call_over_sse_that_is_refused_fails_at_once_and_the_connection_ends() -> None:
    """The library waits for an answer that never comes."""
    stream: asyncio.Future[raw.Connection] = asyncio.get_running_loop().create_future()

    async def answer(request: raw.Request, connection: raw.Connection) -> None:
        if request.method == "GET":
            await connection.write(head("text/event-stream") + chunk(_event("endpoint", "/post")))
            stream.set_result(connection)
            await connection.until_closed()
            return
        message = json.loads(request.body)
        if message["method"] == "tools/call":
            await connection.write(reply(b"no", status="503 Service Unavailable"))
            return
        await connection.write(reply(b"", status="202 Accepted"))
        if message["method"] == "initialize":
            info = {"name": "hostile", "version": "1"}
            version = message["params"]["protocolVersion"]
            made = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
        elif "id" in message:
            made = {}
        else:
            return
        error = {"code": -32601, "message": "no"}
        kind = {"result": made} if made else {"error": error}
        told = json.dumps({"jsonrpc": "2.0", "id": message["id"], **kind})
        await (await stream).write(chunk(_event("message", told)))

    async with raw.raw_server(answer) as server:
        place = Endpoint(label="x", url=f"{server.url}/sse", transport="sse", connect_seconds=60)
        connection = Connection(place, _LIMIT)
        await connection.open()
        with pytest.raises(McpFault) as caught:
            await connection.call("echo", {}, 600)
        assert caught.value.error["code"] == 503
        async with asyncio.timeout(60):
            while connection.is_open:  # noqa: ASYNC110 - closing has no event of its own
                await asyncio.sleep(0.01)
        await connection.close()


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()


async def test_the_address_of_a_server_is_not_in_messages() -> None:
    endpoint = Endpoint(label="x", url="http://127.0.0.1:9/mcp")
    with pytest.raises(McpFault, match="the server cannot be reached: ") as caught:
        await Connection(endpoint, _LIMIT).open()
    assert "127" not in caught.value.message
