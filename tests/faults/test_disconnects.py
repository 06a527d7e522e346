"""Clients that leave: the upstream is stopped, what there was is kept, and nothing leaks."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.backends.base import DeltaSink
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Endless, Script, Stall
from antiphon.testing.gateway import serve_gateway
from antiphon.testing.upstream import Received
from tests.asking import ask, ask_stream, request, terminal
from tests.faults.house import PATIENCE, House, open_house, open_raw_house, settled, stored, until
from tests.faults.listening import listen, open_request, reset
from tests.scraping import value_of
from tests.transport.raw import Connection

TEXT = "one two three four"
PREFIX = "one two"
AFTER = 3
WAITING = Script(text=TEXT, faults=[Stall(AFTER)])

Leave = Callable[[asyncio.StreamWriter], None]


def close(writer: asyncio.StreamWriter) -> None:
    """Hang up politely."""
    writer.close()


both_leaves = pytest.mark.parametrize("leave", [close, reset], ids=["close", "reset"])


async def left(received: Received) -> None:
    """Wait until the upstream has seen us go."""
    async with asyncio.timeout(PATIENCE):
        await received.client_left.wait()


def open_files() -> int:
    """Return how many files this process has open; 0 where that cannot be counted."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


async def test_a_client_who_leaves_in_mid_stream_stops_the_upstream_and_leaves_a_record(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "antiphon.db")
    async with open_house(WAITING, store=store) as house:
        tasks = asyncio.all_tasks()
        async with listen(house.gateway.base_url, input="a question") as listener:
            await listener.until_text(PREFIX)
            listener.leave()
            await left(house.upstream.requests[0])
        kept = await stored(house.gateway, listener.response_id, "cancelled")
        await settled(house.gateway, tasks)
        metrics = (await request(house.gateway, "GET", "/../metrics")).body.decode()
    await store.close()

    assert kept.output_text == PREFIX
    assert kept.output[0]["status"] == "incomplete"
    assert kept.usage is not None
    assert kept.usage.output_tokens > 0
    assert kept.usage.input_tokens > 0
    assert kept.antiphon
    assert kept.antiphon.usage == "estimated"
    assert value_of(metrics, "antiphon_responses_total", status="cancelled") == 1


@both_leaves
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_client_who_leaves_before_the_first_byte_stops_the_upstream(
    stream: bool, leave: Leave
) -> None:
    async with open_house(Script(text=TEXT, faults=[Stall(0)])) as house:
        tasks = asyncio.all_tasks()
        _, writer = await open_request(house.gateway.address, {"input": "x", "stream": stream})
        received = await house.upstream.received()
        await received.stalled.wait()
        leave(writer)
        await left(received)
        await settled(house.gateway, tasks)


@both_leaves
async def test_a_client_who_leaves_before_the_upstreams_head_stops_it(leave: Leave) -> None:
    asked = asyncio.Event()

    async def say_nothing(connection: Connection) -> None:
        asked.set()
        await connection.until_closed()
        house.server.closed.set()

    async with open_raw_house(say_nothing) as house:
        tasks = asyncio.all_tasks()
        _, writer = await open_request(house.gateway.address, {"input": "x"})
        await asked.wait()
        leave(writer)
        async with asyncio.timeout(PATIENCE):
            await house.server.closed.wait()
        await settled(house.gateway, tasks)


@both_leaves
async def test_a_client_who_leaves_an_endless_stream_ends_it(leave: Leave) -> None:
    async with open_house(Script(text="x", faults=[Endless(2)])) as house:
        tasks = asyncio.all_tasks()
        reader, writer = await open_request(house.gateway.address, {"input": "x", "stream": True})
        await reader.readuntil(b"output_text.delta")
        leave(writer)
        await left(house.upstream.requests[0])
        await settled(house.gateway, tasks)


async def test_a_client_who_leaves_in_the_middle_of_its_request_starts_nothing() -> None:
    async with open_house(WAITING) as house:
        tasks = asyncio.all_tasks()
        _, writer = await asyncio.open_connection(*house.gateway.address)
        writer.write(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 90\r\n\r\n{"
        )
        await writer.drain()
        await until(lambda: not asyncio.all_tasks() <= tasks)
        writer.close()
        await settled(house.gateway, tasks)

    assert house.upstream.requests == []


async def test_a_response_that_was_cancelled_is_not_the_head_of_a_chain() -> None:
    async with open_house([WAITING, Script(text="ok")]) as house:
        response_id = await leave_in_mid_stream(house)
        await stored(house.gateway, response_id, "cancelled")
        answer = await ask(house.gateway, previous_response_id=response_id)

    assert (answer.status, answer.error["code"]) == (400, "previous_response_not_found")


async def test_what_is_not_stored_is_not_stored_by_leaving() -> None:
    async with open_house(WAITING) as house:
        tasks = asyncio.all_tasks()
        response_id = await leave_in_mid_stream(house, store=False)
        await settled(house.gateway, tasks)
        answer = await request(house.gateway, "GET", f"/responses/{response_id}")

    assert answer.status == 404


async def test_the_neighbours_of_a_client_who_leaves_do_not_notice() -> None:
    async with open_house(WAITING) as house:
        stays = asyncio.create_task(ask_stream(house.gateway))
        await (await house.upstream.received()).stalled.wait()
        await leave_in_mid_stream(house)
        await left(house.upstream.requests[1])
        house.upstream.release()
        response = terminal(await stays)

    assert (response.status, response.output_text) == ("completed", TEXT)


async def test_many_clients_who_leave_leave_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_house(WAITING) as house:
        await leave_in_mid_stream(house)
        await settled(house.gateway, asyncio.all_tasks())
        tasks, files = asyncio.all_tasks(), open_files()
        await asyncio.gather(*(leave_in_mid_stream(house) for _ in range(20)))
        await settled(house.gateway, tasks)
        await until(lambda: open_files() <= files)
        for received in house.upstream.requests:
            await left(received)

    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_leaving_while_the_store_is_locked_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "antiphon.db"
    store = SqliteStore(path, patience=2.0)
    async with open_house([WAITING, Script(text="ok")], store=store) as house:
        tasks = asyncio.all_tasks()
        other = sqlite3.connect(path, isolation_level=None)
        async with listen(house.gateway.base_url) as listener:
            await listener.until_text(PREFIX)
            await stored(house.gateway, listener.response_id, "in_progress")
            other.execute("BEGIN IMMEDIATE")
            listener.leave()
            await left(house.upstream.requests[0])
        await settled(house.gateway, tasks)
        other.execute("ROLLBACK")
        other.close()
        answer = await ask(house.gateway)
    await store.close()

    assert answer.status == 200
    assert not any(record.exc_info for record in caplog.records)


async def leave_in_mid_stream(house: House, **body: Any) -> str:
    """Ask, read the prefix, hang up; return the id of the response."""
    async with listen(house.gateway.base_url, **body) as listener:
        await listener.until_text(PREFIX)
        listener.leave()
    return listener.response_id


async def test_a_pipelined_second_request_does_not_hide_that_the_client_left() -> None:
    body = msgspec.json.encode({"input": "x", "stream": True})
    head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"
    async with open_house(WAITING) as house:
        tasks = asyncio.all_tasks()
        _, writer = await asyncio.open_connection(*house.gateway.address)
        writer.write((head % len(body) + body) * 2)
        await writer.drain()
        received = await house.upstream.received()
        await received.stalled.wait()
        reset(writer)
        await left(received)
        await settled(house.gateway, tasks)

    assert len(house.upstream.requests) == 1


class Rude(ScriptedBackend):
    """A model that makes its client hang up at the worst moment: just before the last word."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock

    async def play(self, steps: Iterable[Step], sink: DeltaSink) -> None:
        if not sink.push([TextGrew("so far")]):
            await sink.drained()
        await asyncio.get_running_loop().sock_recv(self._sock, 100)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()
        sink.push([Stopped("stop")])


async def test_a_client_who_leaves_before_the_last_word_is_not_our_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = b'{"input":"x","stream":true}'
    head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"
    with socket.socket() as sock:
        sock.setblocking(False)
        async with serve_gateway(Rude(sock)) as gateway:
            tasks = asyncio.all_tasks()
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, gateway.address)
            await loop.sock_sendall(sock, head % len(body) + body)
            await until(lambda: sock.fileno() < 0)
            await settled(gateway, tasks)

    assert [line for line in caplog.records if line.levelno >= logging.WARNING] == []


async def test_a_bug_in_mid_stream_breaks_the_connection_instead_of_answering_twice() -> None:
    # Half a surrogate pair cannot be written; no backend of ours lets one through.
    backend = ScriptedBackend([[TextGrew("so far"), TextGrew("\ud800"), Stopped("stop")]])
    async with serve_gateway(backend) as gateway:
        reader, writer = await open_request(gateway.address, {"input": "x", "stream": True})
        async with asyncio.timeout(PATIENCE):
            seen = await reader.read()
        writer.close()

    assert b"so far" in seen
    assert seen.count(b"HTTP/1.1") == 1
    assert not seen.endswith(b"0\r\n\r\n")


def test_leaving_in_mid_stream_is_not_our_fault_on_the_loop_that_we_serve_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def leave_early() -> None:
        async with open_house(WAITING) as house:
            tasks = asyncio.all_tasks()
            async with listen(house.gateway.base_url, input="a question") as listener:
                await listener.until_text(PREFIX)
                listener.leave()
                await left(house.upstream.requests[0])
            await stored(house.gateway, listener.response_id, "cancelled")
            await settled(house.gateway, tasks)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(leave_early())

    assert [line for line in caplog.records if line.levelno >= logging.WARNING] == []
