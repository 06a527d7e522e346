"""`server_url` of a request: no spelling of it and no name service leads into our network."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from antiphon.transport import egress
from antiphon.transport.dial import NAME_SECONDS
from tests import clock
from tests.asking import ask
from tests.tools.mcp.gateways import kinds, mcp_gateway, model, tool
from tests.tools.mcp.hostile import Hostile, result
from tests.tools.mcp.hostile import tool as listed
from tests.transport.raw import Connection
from tests.transport.test_egress import _REASONS, LOOPBACK_HOSTS, OTHER_HOSTS

ALL = {"allow_urls": ("http://*", "https://*")}


async def test_no_spelling_of_an_inner_address_is_connected_to() -> None:
    hostile = Hostile()
    hosts = [*LOOPBACK_HOSTS, *OTHER_HOSTS]
    assert len(hosts) >= 40
    async with hostile.serve():
        port = hostile.raw.url.rpartition(":")[2]
        async with mcp_gateway(model(("x__echo", {})), {}, settings=ALL) as gateway:
            for host in hosts:
                url = f"http://{host}:{port}/mcp"
                given = tool("x", server_url=url, require_approval="never")
                answer = await ask(gateway, tools=[given])
                if answer.status == 400:
                    assert "must be an http or https URL" in answer.error["message"], host
                    continue
                (listing,) = answer.json["output"]
                assert listing["error"].endswith(_REASONS), (host, listing["error"])
                assert answer.json["status"] == "failed"
        assert hostile.raw.connections == 0


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "gopher://127.0.0.1/", "ws://127.0.0.1/", "//127.0.0.1/", "http://"],
)
async def test_other_schemes_are_refused(url: str) -> None:
    async with mcp_gateway(model(), {}, settings={"allow_urls": ("*",)}) as gateway:
        answer = await ask(gateway, tools=[tool("x", server_url=url)])
    assert (answer.status, answer.error["param"]) == (400, "tools[0].server_url")


async def test_urls_are_off_unless_they_are_allowed() -> None:
    settings = {"allow_urls": ("https://good.example/*",)}
    async with mcp_gateway(model(), {}, settings=settings) as gateway:
        for url in (
            "https://evil.example/",
            "https://good.example.evil.example/",
            "http://1.1.1.1",
        ):
            answer = await ask(gateway, tools=[tool("x", server_url=url)])
            assert (answer.status, answer.error["code"]) == (400, "unsupported_tool")


async def test_a_name_that_changes_its_address_is_checked_at_every_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name leads to a public place first, which 127.0.0.2 stands for, then to ours."""

    async def close(message: dict[str, Any], connection: Connection) -> None:
        await result({"tools": [listed()]})(message, connection)
        connection.writer.close()

    where = "127.0.0.2"

    def look_up(host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        place = (where, port)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)]

    monkeypatch.setattr(egress, "is_public", lambda address: address == "127.0.0.2")
    hostile = Hostile(listing=close)
    async with hostile.serve(host="127.0.0.2"):
        port = int(hostile.raw.url.rpartition(":")[2])
        inner_calls: list[int] = []
        inner = await asyncio.start_server(lambda *_: inner_calls.append(1), "127.0.0.1", port)
        async with inner, mcp_gateway(model(("x__echo", {})), {}, settings=ALL) as gateway:
            monkeypatch.setattr(socket, "getaddrinfo", look_up)
            given = tool("x", server_url=f"http://tools.example:{port}/mcp")
            never = given | {"require_approval": "never"}
            asked = await _ask_loopback(gateway, [given])
            assert kinds(asked) == ["mcp_list_tools", "mcp_approval_request"], str(asked["output"])
            where = "127.0.0.1"
            clock.skip(NAME_SECONDS + 1)  # so long an answer of the name service is kept
            called = await _ask_loopback(gateway, [never], previous_response_id=asked["id"])
        assert inner_calls == []
    (call,) = (item for item in called["output"] if item["type"] == "mcp_call")
    assert call["status"] == "failed"
    assert hostile.calls == []


async def _ask_loopback(gateway: Any, tools: list[Any], **body: Any) -> dict[str, Any]:
    answer = await ask(gateway, tools=tools, **body)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found
