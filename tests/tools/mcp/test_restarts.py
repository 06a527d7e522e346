"""Approvals and calls across kills, restarts and workers: a call arrives once, or not at all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing import Call, Script, ScriptedUpstream
from tests.faults.process import GatewayProcess, serve_process
from tests.tools.mcp.gateways import answer_of, approve, kinds, tool
from tests.tools.mcp.hostile import Hostile, endless
from tests.tools.mcp.servers import DESK, calls_in

pytestmark = [
    pytest.mark.slow,
    pytest.mark.heavy,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed with signals"),
]
_TOKEN = "sk-callers-token-123456"


def _play(body: dict[str, Any]) -> Script:
    """Call what the user names, then answer."""
    last = body["messages"][-1]
    if last["role"] != "user":
        return Script(text="done")
    words = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
    name, _, arguments = words.partition(" ")
    return Script(calls=[Call(name, arguments or "{}")]) if name != "say" else Script(text=words)


def _servers(log: Path) -> str:
    args = json.dumps([str(DESK), str(log), "stdio"])
    return (
        f'[mcp.servers.desk]\ncommand = "{sys.executable}"\nargs = {args}\nconnect_seconds = 60\n'
        "[tools]\nlist_seconds = 60\n"
    )


async def _ask(gateway: GatewayProcess, words: str, **body: Any) -> dict[str, Any]:
    answer = await gateway.ask(input=words, tools=[tool()], **body)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def _answering(first: dict[str, Any], *, store: bool = True) -> dict[str, Any]:
    asked = answer_of(first, "mcp_approval_request")
    if store:
        return {"input": [approve(asked)], "previous_response_id": first["id"], "tools": [tool()]}
    whole = [{"role": "user", "content": "add"}, *first["output"], approve(asked)]
    return {"input": whole, "tools": [tool()], "store": False}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("store", [True, False])
async def test_an_approval_survives_a_kill_and_runs_once(
    store: bool, workers: int, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    async with ScriptedUpstream(_play) as upstream:
        given: dict[str, Any] = {"workers": workers, "more": _servers(log)}
        async with serve_process(tmp_path, upstream.base_url, **given) as gateway:
            first = await _ask(gateway, 'desk__add {"a": 2, "b": 3}', store=store)
            assert kinds(first)[-1] == "mcp_approval_request"
            for worker in gateway.workers() if workers > 1 else []:
                os.kill(worker, signal.SIGKILL)
            await gateway.kill()
        async with serve_process(tmp_path, upstream.base_url, **given) as gateway:
            answers = await asyncio.gather(
                *(gateway.ask(**_answering(first, store=store)) for _ in range(6))
            )
    statuses = sorted(answer.status for answer in answers)
    assert statuses[0] == 200 and set(statuses[1:]) <= {400, 409}
    (second,) = (answer.json for answer in answers if answer.status == 200)
    call = answer_of(second, "mcp_call")
    asked = answer_of(first, "mcp_approval_request")
    assert (call["output"], call["approval_request_id"]) == ("5", asked["id"])
    assert len(calls_in(log)) == 1


async def test_a_kill_while_an_approved_call_runs_does_not_run_it_again(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    async with ScriptedUpstream(_play) as upstream:
        async with serve_process(tmp_path, upstream.base_url, more=_servers(log)) as gateway:
            first = await _ask(gateway, 'desk__wait {"seconds": 600}')
            body = _answering(first) | {"background": True}
            begun = (await gateway.ask(**body)).json
            async with asyncio.timeout(60):
                while not calls_in(log, "wait"):  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(0.05)
            await gateway.kill()
        async with serve_process(tmp_path, upstream.base_url, more=_servers(log)) as gateway:
            ended = await _ended(gateway, begun["id"])
            again = await gateway.ask(**_answering(first))
    assert ended["status"] == "failed"
    call = answer_of(ended, "mcp_call")
    assert call["status"] in ("failed", "incomplete")
    assert (again.status, again.error["code"]) == (400, "invalid_approval")
    assert len(calls_in(log, "wait")) == 1


async def test_processes_of_servers_end_with_the_gateway(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    async with (
        ScriptedUpstream(_play) as upstream,
        serve_process(tmp_path, upstream.base_url, more=_servers(log)) as gateway,
    ):
        never = [tool(require_approval="never")]
        await gateway.ask(input='desk__add {"a": 1, "b": 1}', tools=never)
        (call,) = calls_in(log)
        os.kill(call["pid"], 0)
        gateway.signal(signal.SIGTERM)
        assert await gateway.ended() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(call["pid"], 0)


async def test_two_workers_run_each_of_many_racing_approvals_once(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    async with ScriptedUpstream(_play) as upstream:
        given: dict[str, Any] = {"workers": 2, "more": _servers(log)}
        async with serve_process(tmp_path, upstream.base_url, **given) as gateway:
            firsts = [
                await _ask(gateway, f'desk__add {{"a": {number}, "b": 0}}') for number in range(20)
            ]
            answers = await asyncio.gather(
                *(gateway.ask(**_answering(first)) for first in firsts for _ in range(3))
            )
    by_approval = [answers[index : index + 3] for index in range(0, len(answers), 3)]
    statuses = [sorted(one.status for one in some) for some in by_approval]
    assert all(first == 200 and {*others} <= {400, 409} for first, *others in statuses)
    assert sorted(call["arguments"]["a"] for call in calls_in(log)) == list(range(20))


async def test_credentials_of_a_queued_response_survive_a_kill_sealed(tmp_path: Path) -> None:
    hostile, log = Hostile(), tmp_path / "calls"
    async with hostile.serve(), ScriptedUpstream(_play) as upstream:
        more = _servers(log) + f'[mcp.servers.x]\nurl = "{hostile.url}"\ncaller_headers = true\n'
        given: dict[str, Any] = {"more": more, "limits": {"background_turns": 1}}
        never = {"require_approval": "never"}
        async with serve_process(tmp_path, upstream.base_url, **given) as gateway:
            await gateway.ask(
                input='desk__wait {"seconds": 600}', tools=[tool(**never)], background=True
            )
            async with asyncio.timeout(60):
                while not calls_in(log, "wait"):  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(0.05)
            secret = tool("x", authorization=_TOKEN, **never)
            queued = (await gateway.ask(input="x__echo {}", tools=[secret], background=True)).json
            assert queued["status"] == "queued"
            await gateway.kill()
        assert not any(_TOKEN.encode() in data for data in _contents(tmp_path))
        async with serve_process(tmp_path, upstream.base_url, **given) as gateway:
            ended = await _ended(gateway, queued["id"])
    assert ended["status"] == "completed", ended
    assert "authorization" not in ended["tools"][0]
    assert len(hostile.calls) == 1
    assert hostile.raw.requests[-1].headers["authorization"] == f"Bearer {_TOKEN}"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
async def test_a_result_of_200_megabytes_does_not_grow_the_gateway(tmp_path: Path) -> None:
    hostile = Hostile()
    async with hostile.serve(), ScriptedUpstream(_play) as upstream:
        more = f'[mcp.servers.x]\nurl = "{hostile.url}"\n[tools]\nlist_seconds = 60\n'
        async with serve_process(tmp_path, upstream.base_url, more=more) as gateway:
            given = {"tools": [tool("x", require_approval="never")], "input": "x__echo {}"}
            await gateway.ask(**given)
            hostile.calling = endless(200)
            before = gateway.memory()
            gateway.forget_peak()
            failed = (await gateway.ask(**given)).json
            growth = gateway.peak_memory() - before
            hostile.calling = Hostile().calling
            works = (await gateway.ask(**given)).json
    error = answer_of(failed, "mcp_call")["error"]
    assert error["type"] == "mcp_protocol_error" and "longer than 8388608 bytes" in error["message"]
    assert failed["status"] == "completed"
    assert answer_of(works, "mcp_call")["output"] == "ok"
    assert growth < 64, growth


def _contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


async def _ended(gateway: GatewayProcess, response_id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = (await gateway.request("GET", f"/responses/{response_id}")).json
            if found["status"] not in ("queued", "in_progress"):
                return found
            await asyncio.sleep(0.1)
