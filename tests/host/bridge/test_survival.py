"""What must not break the bridge, nor leave it behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.host import Message
from antiphon.protocol.deltas import TextGrew
from tests.building import COUNTED, STOP
from tests.cli.processes import environment
from tests.client.native import Answer, native, response
from tests.host.bridge.bridging import (
    COMMAND,
    WAIT_SECONDS,
    bridge,
    greeted,
    read_all,
    stream_of,
    text_of,
)
from tests.host.streams import added, created, done, end, event, message_item
from tests.transport.raw import Connection, Request, chunk, head, raw_server

MEBIBYTE = 1024 * 1024
OK = response(TextGrew("ok"), COUNTED, STOP)
STALLED = Answer(pieces=OK.pieces[:5], then="stall")
ASK = {
    "type": "respond",
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "text", "value": "hi"}]}],
}
_PARENT = """
import subprocess, sys
command, hello, ask = sys.argv[1].split("\x1f"), sys.argv[2], sys.argv[3]
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdin.write((hello + "\\n" + ask + "\\n").encode())
child.stdin.flush()
while b'"parts"' not in child.stdout.readline():
    pass
print(child.pid, flush=True)
child.wait()
"""


async def test_a_line_of_200_megabytes_is_dropped_while_it_arrives(tmp_path: Path) -> None:
    piece = b"x" * MEBIBYTE
    async with native(OK) as server, greeted(tmp_path, server.base_url) as raw:
        before = raw.memory()
        for _ in range(200):
            await raw.send(piece)
        await raw.send(b"\n", {**ASK, "id": 1})
        error = await raw.read()
        got = await raw.read_to_end(1)
        grown = raw.memory() - before
    assert (error["id"], error["error"]["code"]) == (None, "line_too_long")
    assert str(200 * MEBIBYTE) in error["error"]["message"]
    assert got[1][-1]["type"] == "done"
    # At most one line of the allowed length is held.
    assert grown < 80 * MEBIBYTE


async def test_a_count_that_fails_ends_no_other_request(tmp_path: Path) -> None:
    """Some of these depths are too much for what counts, and not for what reads."""
    depths = range(900, 1000, 3)
    call = b'{"type":"tool_call","call_id":"c","name":"f","input":{"x":%b}}'
    counts = [
        b'{"type":"count","id":%d,"model":"gpt-4o","contents":[{"role":"assistant","content":[%b]}]}'
        % (depth, call % (b"[" * depth + b"]" * depth))
        for depth in depths
    ]
    async with native(OK) as server, greeted(tmp_path, server.base_url) as raw:
        await raw.send({"type": "count", "id": 1, "model": "gpt-4o", "contents": ["prepare"]})
        assert (await raw.read())["type"] == "counted"
        await raw.send(*[count + b"\n" for count in counts])
        answers = [await raw.read() for _ in depths]
        await raw.send({**ASK, "id": 2})
        got = await raw.read_to_end(2)
    assert {answer["type"] for answer in answers} <= {"counted", "error"}
    assert got[2][-1]["type"] == "done"


async def test_a_hundred_requests_at_a_time_each_get_their_own_parts(tmp_path: Path) -> None:
    def echo(request: Request) -> Answer:
        asked = msgspec.json.decode(request.body)["input"][0]["content"][0]["text"]
        return response(*(TextGrew(f"{asked}/{n} ") for n in range(50)), COUNTED, STOP)

    async with native(echo) as server, bridge(tmp_path, server.base_url) as client:
        answers = [client.respond("m", [Message.user(f"q{n}")]) for n in range(100)]
        found = await asyncio.gather(*map(read_all, answers))
    for number, parts in enumerate(found):
        assert text_of(parts) == "".join(f"q{number}/{n} " for n in range(50))
    assert all(answer.done is not None for answer in answers)


async def test_a_slow_reader_holds_the_server_back_and_loses_nothing(tmp_path: Path) -> None:
    """Most of 35 MB of events wait at the server while nobody reads, then all parts arrive."""
    delta = event(
        "output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="word"
    )
    block = b"data: %b\n\n" % msgspec.json.encode(delta) * 1000
    blocks, said, sent = 300, "word" * 300_000, 0

    async def script(request: Request, connection: Connection) -> None:
        nonlocal sent
        begun = stream_of(created(), added(message_item(""))).pieces
        ended = stream_of(done(message_item(said)), end(message_item(said))).pieces
        await connection.write(head("text/event-stream"))
        for piece in (*begun, *([block] * blocks), *ended, b"data: [DONE]\n\n", b""):
            await connection.write(chunk(piece))
            sent += len(piece)

    async with raw_server(script) as server, greeted(tmp_path, f"{server.url}/v1") as raw:
        before = raw.memory()
        await raw.send({**ASK, "id": 1})
        held = -1
        while held != sent or not sent:  # until nothing moves any more
            held = sent
            await asyncio.sleep(1)
        assert held < blocks * len(block) / 2
        assert raw.memory() - before < 32 * MEBIBYTE
        got = await raw.read_to_end(1)
    assert got[1][-1]["type"] == "done", got[1][-1]
    parts = [part["value"] for message in got[1][:-1] for part in message["parts"]]
    assert "".join(parts) == said


async def test_a_cancel_is_read_while_nobody_reads(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def script(request: Request, connection: Connection) -> None:
        await connection.write(head("text/event-stream"))
        pieces = response(*(TextGrew("x" * 16_000) for _ in range(2000)), COUNTED, STOP).pieces
        try:
            for piece in pieces:
                await connection.write(chunk(piece))
        except ConnectionError:
            gone.set()

    async with raw_server(script) as server, greeted(tmp_path, f"{server.url}/v1") as raw:
        await raw.send({**ASK, "id": 1})
        assert (await raw.read())["type"] == "parts"
        await raw.send({"type": "cancel", "id": 1})
        async with asyncio.timeout(WAIT_SECONDS):
            await gone.wait()
        got = await raw.read_to_end(1)
    assert got[1][-1]["error"]["code"] == "cancelled"


async def test_the_end_of_the_input_ends_everything(tmp_path: Path) -> None:
    async with native(STALLED) as server, greeted(tmp_path, server.base_url) as raw:
        await raw.send({**ASK, "id": 1})
        assert (await raw.read())["type"] == "parts"
        assert await raw.close() == 0
        await server.raw.closed.wait()
        rest = await raw.read_to_end(1)
        assert await raw.output.read() == b""
        assert await raw.errors.read() == b""
    assert rest[1][-1]["error"]["code"] == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_everything(tmp_path: Path, number: int) -> None:
    """Its input stays open."""
    async with native(STALLED) as server, greeted(tmp_path, server.base_url) as raw:
        await raw.send({**ASK, "id": 1})
        assert (await raw.read())["type"] == "parts"
        raw.process.send_signal(number)
        rest = await raw.read_to_end(1)
        async with asyncio.timeout(WAIT_SECONDS):
            assert await raw.process.wait() == 0
            await server.raw.closed.wait()
        assert await raw.errors.read() == b""
    assert rest[1][-1]["error"]["code"] == "cancelled"


async def test_a_reader_that_goes_while_the_last_lines_are_written(tmp_path: Path) -> None:
    async with native(STALLED) as server, greeted(tmp_path, server.base_url) as raw:
        await raw.send({**ASK, "id": 1})
        assert (await raw.read())["type"] == "parts"
        await raw.send(*[b"{}\n"] * 5000)  # more errors than a pipe holds
        raw.input.close()
        async with asyncio.timeout(WAIT_SECONDS):
            await server.raw.closed.wait()
            await asyncio.sleep(0.5)  # no event shows that only lines are left to write
            raw.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
            assert await raw.process.wait() == 0
        assert await raw.errors.read() == b""


async def test_a_reader_that_is_gone_ends_the_bridge(tmp_path: Path) -> None:
    """Its input stays open: only the write fails."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path)
    )
    assert process.stdin is not None
    transport = process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]
    transport.close()
    process.stdin.write(b'{"type":"hello","version":1}\n')
    async with asyncio.timeout(WAIT_SECONDS):
        await process.wait()
    process.stdin.close()
    assert process.returncode == 0


async def test_a_killed_parent_leaves_no_orphan(tmp_path: Path) -> None:
    async with native(STALLED) as server:
        hello = {"type": "hello", "version": 1, "settings": {"base_url": server.base_url}}
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PARENT, "\x1f".join(COMMAND)),
            *(msgspec.json.encode(it).decode() for it in (hello, {**ASK, "id": 1})),
            stdout=subprocess.PIPE,
            env=environment(tmp_path),
        )
        assert parent.stdout is not None
        orphan = os.pidfd_open(int(await parent.stdout.readline()))
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(orphan, ended.set)
        try:
            assert not ended.is_set()
            parent.send_signal(signal.SIGKILL)
            async with asyncio.timeout(WAIT_SECONDS):
                await parent.wait()
                await ended.wait()
                await server.raw.closed.wait()
        finally:
            asyncio.get_running_loop().remove_reader(orphan)
            os.close(orphan)


def test_what_is_printed_is_never_taken_for_a_message(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys\n"
        "from antiphon.host.bridge.pipes import take_over\n"
        "source, sink = take_over()\n"
        "print('noise', flush=True)\n"
        "subprocess.run(['echo', 'more noise'])\n"
        "assert sys.stdin.read() == ''\n"
        "os.write(sink, os.read(source, 100))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], input="a line\n", capture_output=True, text=True
    )
    assert ran.stdout == "a line\n"
    assert ran.stderr == "noise\nmore noise\n"
