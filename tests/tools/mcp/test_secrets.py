"""Credentials for MCP servers reach their server, and nothing else."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from antiphon.engine.prepare import seal
from antiphon.gateway.assemble import ServerSettings
from antiphon.server.auth import new_key
from antiphon.server.limits import ServerLimits
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.tools.mcp.settings import McpServer
from tests.asking import ask, ask_stream, request
from tests.tools.mcp.gateways import answer_of, approve, mcp_gateway, model, tool
from tests.tools.mcp.hostile import Hostile, hang, result
from tests.tools.mcp.hostile import tool as listed
from tests.transport import raw
from tests.transport.raw import reply

TOKEN = "sk-callers-token-123456"
HEADER = "callers-header-987654"
OURS = "operators-token-5555555"
SECRETS = (TOKEN, HEADER, OURS)


def _told(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def _repeating(status: str) -> Any:
    async def answer(message: dict[str, Any], connection: raw.Connection) -> None:
        text = f"bad {TOKEN} {HEADER} {OURS}"
        error = f'{{"jsonrpc":"2.0","id":{message["id"]},"error":{{"code":-1,"message":"{text}"}}}}'
        await connection.write(reply(error.encode(), status=status))

    return answer


def _files_in(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.read_bytes().decode("latin-1") for path in files]


@pytest.mark.parametrize(
    "calling",
    [
        None,
        _repeating("200 OK"),
        _repeating("400 Bad Request"),
        _repeating("500 Internal Server Error"),
        result({"content": [], "isError": True}),
        result({"content": [{"type": "text", "text": f"as JSON: {SECRETS}"}]}),
        result({"structuredContent": {"headers": [{"Authorization": f"Bearer {TOKEN}"}, SECRETS]}}),
        result({"content": [{"type": "text", "text": f"bad {SECRETS}"}], "isError": True}),
    ],
    ids=["works", "error", "refused", "broken", "fails", "repeats", "structured", "fails aloud"],
)
async def test_credentials_are_in_no_file_log_echo_metric_or_error(
    calling: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    described = {"type": "object", "description": f"{SECRETS}"}
    entry = listed(description=f"{SECRETS}", inputSchema=described)
    hostile = Hostile(calling=calling, listing=result({"tools": [entry]}))
    store = SqliteStore(tmp_path / "antiphon.db")
    given = tool("x", authorization=TOKEN, headers={"X-Key": HEADER})
    said: list[str] = []
    async with hostile.serve():
        server = McpServer(
            url=hostile.url, caller_headers=True, header_envs={"X-Our-Token": "OURS"}
        )
        backend = model(("x__echo", {}))
        async with mcp_gateway(
            backend, {"x": server}, store=store, environ={"OURS": OURS}
        ) as gateway:
            for body in ({}, {"store": False}, {"background": True}):
                first = await ask(gateway, tools=[given], **body)
                said.append(first.body.decode() + str(first.headers))
            never = given | {"require_approval": "never"}
            called = await ask(gateway, tools=[never])
            said.append(called.body.decode() + str(called.headers))
            said.append(str(await ask_stream(gateway, tools=[never])))
            response = called.json["id"]
            for path in (f"/responses/{response}", f"/responses/{response}/input_items"):
                said.append((await request(gateway, "GET", path)).body.decode())
            said.append((await request(gateway, "GET", "/../metrics")).body.decode())
            wrong = given | {"headers": {"Host": HEADER}}
            said.append((await ask(gateway, tools=[wrong])).body.decode())
            said.append(str([(plan.items, plan.toolbox.offers) for plan in backend.plans]))
    await store.close()
    sent = hostile.raw.requests[-1].headers
    assert (sent["authorization"], sent["x-key"], sent["x-our-token"]) == (
        f"Bearer {TOKEN}",
        HEADER,
        OURS,
    )
    assert [_told(text) for text in said] == [[]] * len(said)
    assert _told(caplog.text) == []
    assert [_told(text) for text in _files_in(tmp_path)] == [[]] * len(_files_in(tmp_path))


async def test_a_result_keeps_headers_that_are_no_keys() -> None:
    text = f"the workspace red-mountain, asked with {TOKEN}"
    hostile = Hostile(calling=result({"content": [{"type": "text", "text": text}]}))
    async with hostile.serve():
        servers = {"x": McpServer(url=hostile.url, caller_headers=True)}
        async with mcp_gateway(model(("x__echo", {})), servers) as gateway:
            headers = {"X-Workspace": "red-mountain"}
            given = tool("x", authorization=TOKEN, headers=headers, require_approval="never")
            response = (await ask(gateway, tools=[given])).json
    assert answer_of(response, "mcp_call")["output"] == "the workspace red-mountain, asked with ***"


async def test_two_owners_do_not_share_a_connection() -> None:
    store = MemoryStore()
    keys = []
    for owner in ("anna", "bert"):
        key, record = new_key(owner, 0)
        await store.add_key(record)
        keys.append({"Authorization": f"Bearer {key}"})
    hostile = Hostile()
    async with hostile.serve():
        servers = {"x": McpServer(url=hostile.url)}
        settings = ServerSettings(require_keys=True)
        backend = model(("x__echo", {}))
        async with mcp_gateway(backend, servers, store=store, settings_of=settings) as gateway:
            firsts = [(await ask(gateway, key, tools=[tool("x")])).json for key in keys]
            assert hostile.raw.connections == 2
            asked = answer_of(firsts[0], "mcp_approval_request")
            whole = [{"role": "user", "content": "x"}, asked, approve(asked)]
            foreign = await ask(gateway, keys[1], tools=[tool("x")], input=whole)
            chained = await ask(
                gateway,
                keys[1],
                tools=[tool("x")],
                input=[approve(asked)],
                previous_response_id=firsts[0]["id"],
            )
            own = await ask(gateway, keys[0], tools=[tool("x")], input=whole)
    assert (foreign.status, foreign.error["code"]) == (400, "invalid_approval")
    assert chained.status in (400, 404)
    assert own.status == 200
    assert len(hostile.calls) == 1


async def test_credentials_that_cannot_be_sealed_are_lost_with_their_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that waits in the queue then fails with that reason, instead of running."""
    monkeypatch.setattr(seal, "can_seal", lambda: False)
    hostile = Hostile(calling=hang)
    settings = ServerSettings(limits=ServerLimits(background_turns=1))
    given = tool("x", authorization=TOKEN, require_approval="never")
    async with hostile.serve():
        servers = {"x": McpServer(url=hostile.url, caller_headers=True)}
        backend = model(("x__echo", {}))
        store = SqliteStore(tmp_path / "antiphon.db")
        async with mcp_gateway(backend, servers, store=store, settings_of=settings) as gateway:
            await ask(gateway, tools=[given], background=True)
            async with asyncio.timeout(60):
                while not hostile.calls:  # noqa: ASYNC110 - the server has no event for it
                    await asyncio.sleep(0.02)
            queued = (await ask(gateway, tools=[given], background=True)).json
        await store.close()
        assert [_told(text) for text in _files_in(tmp_path)] == [[]] * len(_files_in(tmp_path))
        store = SqliteStore(tmp_path / "antiphon.db")
        async with mcp_gateway(backend, servers, store=store) as gateway:
            await gateway.app.engine.recovery.run()
            ended = (await request(gateway, "GET", f"/responses/{queued['id']}")).json
        await store.close()
    assert (ended["status"], ended["error"]["code"]) == ("failed", "tool_secrets_lost")
    assert "'x' were kept in memory only" in ended["error"]["message"]
    assert len(hostile.calls) == 1
