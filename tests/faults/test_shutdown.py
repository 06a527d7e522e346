"""SIGTERM and kill -9: running streams end truthfully, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon.protocol.events import event_type
from antiphon.protocol.machines.referee import judge_stream
from antiphon.testing import Script, ScriptedUpstream, Stall
from tests.asking import events_of, request, terminal
from tests.faults.house import PATIENCE, limited, open_house, stored, until
from tests.faults.listening import Listener, listen, open_request
from tests.faults.process import GatewayProcess, serve_process
from tests.talking import talk

TEXT = "one two three four"
PREFIX = "one two"
WAITING = Script(text=TEXT, faults=[Stall(3)])
PLAIN = Script(text=TEXT)

unix_only = pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to send")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@asynccontextmanager
async def mid_stream(process: GatewayProcess) -> AsyncIterator[Listener]:
    """Hold a stream that has begun and that the process knows of for good."""
    async with listen(process.base_url) as listener:
        await listener.until_text(PREFIX)
        path = f"/responses/{listener.response_id}"
        async with asyncio.timeout(PATIENCE):
            # Another worker may look a moment before the first one has written.
            while (await process.request("GET", path)).status != 200:
                pass
        yield listener


@unix_only
async def test_sigterm_lets_running_streams_finish_and_takes_nothing_new(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(WAITING) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        mid_stream(process) as listener,
    ):
        process.signal(signal.SIGTERM)
        await not_ready(process)
        refused = await process.ask()
        upstream.release()
        response = terminal(await listener.rest())
        code = await process.ended()

        async with serve_process(tmp_path, upstream.base_url) as restarted:
            kept = await restarted.request("GET", f"/responses/{response.id}")

    assert (refused.status, refused.error["code"]) == (503, "server_overloaded")
    assert refused.headers["Retry-After"] == "1"
    assert (response.status, response.output_text) == ("completed", TEXT)
    assert kept.json["status"] == "completed"
    assert code == 0


@unix_only
async def test_sigterm_without_work_ends_at_once(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(PLAIN) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
    ):
        await process.ask()
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0


@unix_only
async def test_a_stream_that_outlives_the_drain_limit_ends_as_failed(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(WAITING) as upstream,
        serve_process(tmp_path, upstream.base_url, limits={"drain_seconds": 0.2}) as process,
        mid_stream(process) as listener,
    ):
        process.signal(signal.SIGTERM)
        response = terminal(await listener.rest())
        code = await process.ended()
        async with serve_process(tmp_path, upstream.base_url) as restarted:
            kept = (await restarted.request("GET", f"/responses/{response.id}")).json

    assert (response.status, response.output_text) == ("failed", PREFIX)
    assert kept["status"] == "failed"
    assert kept["output"][0]["content"][0]["text"] == PREFIX
    assert code == 0


@unix_only
async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(WAITING) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
        mid_stream(process) as listener,
    ):
        process.signal(signal.SIGTERM)
        await not_ready(process)
        process.signal(signal.SIGTERM)
        await process.ended()
        async with serve_process(tmp_path, upstream.base_url) as restarted:
            kept = (await restarted.request("GET", f"/responses/{listener.response_id}")).json

    assert kept["status"] in ("failed", "cancelled")


async def ask_on(process: GatewayProcess, acknowledged: list[str], *, stream: bool) -> None:
    """Take turn after turn, each on top of the last, until the server is gone."""
    previous = None
    while True:
        if stream:
            async with listen(process.base_url, previous_response_id=previous) as listener:
                previous = terminal(await listener.rest()).id
        else:
            previous = (await process.ask(previous_response_id=previous)).json["id"]
        acknowledged.append(previous)


@asynccontextmanager
async def callers(process: GatewayProcess) -> AsyncIterator[list[str]]:
    """Let six callers ask on; give the ids of all turns they were told are complete."""
    acknowledged: list[str] = []
    tasks = [
        asyncio.create_task(ask_on(process, acknowledged, stream=number % 2 == 0))
        for number in range(6)
    ]
    await until(lambda: len(acknowledged) >= 60)
    yield acknowledged
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        gone = (aiohttp.ClientError, AssertionError, TimeoutError, asyncio.CancelledError)
        assert isinstance(result, gone)


async def check_all_there(process: GatewayProcess, names: list[str]) -> None:
    for name in names:
        answer = await process.request("GET", f"/responses/{name}")
        assert answer.status == 200, answer.body
        assert answer.json["status"] == "completed"
        assert answer.json["output"][0]["content"][0]["text"] == TEXT


@unix_only
async def test_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async with ScriptedUpstream(PLAIN) as upstream:
        async with (
            serve_process(tmp_path, upstream.base_url) as process,
            callers(process) as acknowledged,
        ):
            await process.kill()
        async with serve_process(tmp_path, upstream.base_url) as restarted:
            await check_all_there(restarted, acknowledged)


@linux_only
async def test_killed_workers_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(PLAIN) as upstream,
        serve_process(tmp_path, upstream.base_url, workers=2) as process,
    ):
        async with callers(process) as acknowledged:
            before = process.workers()
            for worker in before:
                os.kill(worker, signal.SIGKILL)
            await until(lambda: len(set(process.workers()) - set(before)) == 2)
        await check_all_there(process, acknowledged)


@linux_only
async def test_what_a_killed_parent_left_in_tmp_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    async with ScriptedUpstream(PLAIN) as upstream:
        async with serve_process(tmp_path, upstream.base_url, workers=2) as process:
            (first,) = temporary.glob("antiphon-metrics-*")
            workers = process.workers()
            await process.kill()
            # They notice that their parent is gone, and use the directory until then.
            await until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
            assert first.exists()
        async with serve_process(tmp_path, upstream.base_url, workers=2):
            (second,) = temporary.glob("antiphon-metrics-*")

    assert first != second


@unix_only
async def test_kill_in_mid_turn_ends_it_as_failed_after_the_restart(tmp_path: Path) -> None:
    async with ScriptedUpstream([WAITING, PLAIN]) as upstream:
        async with (
            serve_process(tmp_path, upstream.base_url) as process,
            mid_stream(process) as listener,
        ):
            await process.kill()
            with pytest.raises(aiohttp.ClientPayloadError):
                await listener.rest()
            async with asyncio.timeout(PATIENCE):
                await upstream.requests[0].client_left.wait()
        async with serve_process(tmp_path, upstream.base_url) as restarted:
            kept = await restarted.request("GET", f"/responses/{listener.response_id}")
            follow_up = await restarted.ask(previous_response_id=listener.response_id)

    assert kept.json["status"] == "failed"
    assert kept.json["error"]["code"] == "server_restarted"
    assert follow_up.error["code"] == "previous_response_not_found"


@unix_only
async def test_kill_in_mid_turn_over_a_websocket_leaves_a_log_without_an_error_event(
    tmp_path: Path,
) -> None:
    async with ScriptedUpstream([WAITING]) as upstream:
        async with (
            serve_process(tmp_path, upstream.base_url) as process,
            talk(process.base_url) as socket,
        ):
            await socket.ask(input="hi")
            heard = [await socket.event()]
            while PREFIX not in "".join(event.get("delta", "") for event in heard):
                heard.append(await socket.event())
            await process.kill()
        async with serve_process(tmp_path, upstream.base_url) as restarted:
            path = f"/responses/{heard[0]['response']['id']}?stream=true"
            replayed = events_of((await restarted.request("GET", path)).body)

    kinds = [event_type(event) for event in replayed]
    assert kinds[: len(heard)] == [event["type"] for event in heard]
    assert kinds[-1] == "response.failed"
    assert "error" not in kinds
    assert judge_stream(replayed) == []


@linux_only
async def test_a_killed_worker_is_replaced_and_its_turns_end_as_failed(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream([WAITING, PLAIN]) as upstream,
        serve_process(tmp_path, upstream.base_url, workers=2) as process,
        mid_stream(process) as listener,
    ):
        before = process.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        await until(lambda: len(set(process.workers()) - set(before)) == 2)
        kept = await recovered(process, listener.response_id)
        answer = await process.ask()
        process.signal(signal.SIGTERM)
        code = await process.ended()

    assert kept["error"]["code"] == "server_restarted"
    assert answer.status == 200
    assert code == 0


async def recovered(process: GatewayProcess, response_id: str) -> dict[str, Any]:
    """Return a response as soon as it is not in progress any more."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await process.request("GET", f"/responses/{response_id}")
            assert answer.status == 200, answer.body
            response: dict[str, Any] = answer.json
            if response["status"] != "in_progress":
                return response


async def not_ready(process: GatewayProcess) -> None:
    """Wait until the process says that it is not ready any more."""
    async with asyncio.timeout(PATIENCE):
        while (await process.request("GET", "/../readyz")).status == 200:
            pass


async def test_draining_with_a_client_who_does_not_read_ends_its_turn_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    long = Script(text=["x" * 32_768] * 900)
    async with open_house(long, settings=limited(drain_seconds=0.3)) as house:
        reader, writer = await open_request(
            house.gateway.address, {"input": "x", "stream": True}, receive_buffer=4096
        )
        await until(lambda: bool(house.gateway.app._turns))
        (turn,) = house.gateway.app._turns.values()
        # What was not begun would be taken back.
        await asyncio.wait_for(reader.readuntil(b"response.created"), PATIENCE)
        await house.gateway.app.drain()
        kept = await stored(house.gateway, turn.response_id, "failed", "cancelled")
        ready = await request(house.gateway, "GET", "/../readyz")
        writer.close()

    assert kept.status == "failed"
    assert ready.status == 503
    assert [line for line in caplog.records if line.levelno >= logging.WARNING] == []
