"""The synchronous client: what is its own beside the suite that both clients share."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import threading

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.client import Client
from antiphon.protocol.codec import encode_sse
from antiphon.protocol.deltas import TextGrew
from antiphon.testing import serve_gateway
from tests.building import STOP, build
from tests.client.native import Answer, native


async def test_it_works_inside_a_running_loop() -> None:
    """As in a notebook: the loop of this test is running while the client is used in it."""
    started, stop = threading.Event(), asyncio.Event()
    address: list[str] = []

    async def serve() -> None:
        async with serve_gateway(ScriptedBackend(models=["echo"])) as gateway:
            address.append(gateway.base_url)
            started.set()
            await stop.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60)
        with Client(base_url=address[0], environ={}) as client:
            assert "hi" in client.create(model="echo", input="hi").output_text
            with client.stream(model="echo", input="hi") as stream:
                assert "hi" in "".join(stream.text())
                assert stream.response is not None
                assert stream.deviations == []
                assert stream.skipped_choices == 0
            with client.stream(model="echo", input="hi") as stream:
                assert sum(len(batch) for batch in stream.batches()) > 5
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def test_it_serves_several_threads_at_once() -> None:
    async with serve_gateway(ScriptedBackend(models=["echo"])) as gateway:
        client = Client(base_url=gateway.base_url, environ={})

        def ask(number: int) -> str:
            return client.create(model="echo", input=f"number {number}").output_text

        texts = await asyncio.gather(*(asyncio.to_thread(ask, n) for n in range(8)))
        await asyncio.to_thread(client.close)
    assert all(f"number {n}" in text for n, text in enumerate(texts))


def test_closing_twice_does_nothing_and_a_closed_client_says_so() -> None:
    client = Client(base_url="http://127.0.0.1:1/v1", environ={})
    stream = client.stream(model="m", input="x")
    client.close()
    client.close()
    stream.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.create(model="m", input="x")
    assert not [t for t in threading.enumerate() if t.name == "antiphon-client"]


def test_a_stream_must_be_entered() -> None:
    with Client(base_url="http://127.0.0.1:1/v1", environ={}) as client:
        with pytest.raises(RuntimeError, match="enter the stream first: with client"):
            next(iter(client.stream(model="m", input="x")))
        assert client.base_url == "http://127.0.0.1:1/v1"
        assert client.wire_api == "responses"


PROGRAM = """
import sys
from antiphon.client import Client

client = Client(base_url=sys.argv[1], environ={})
try:
    with client.stream(model="m", input="x") as stream:
        for event in stream:
            print("begun", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
client.close()
"""


async def test_who_is_interrupted_hangs_up_and_goes_on() -> None:
    begun = encode_sse(build([TextGrew("x"), STOP])[0])
    async with native(Answer(pieces=[begun], then="stall")) as server:
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            server.base_url,
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdout is not None
        assert await program.stdout.readline() == b"begun\n"
        program.send_signal(signal.SIGINT)
        assert await program.stdout.readline() == b"interrupted\n"
        await asyncio.wait_for(server.raw.closed.wait(), 60)
        assert await program.wait() == 0


async def test_closing_tells_whoever_waits() -> None:
    begun = encode_sse(build([TextGrew("x"), STOP])[0])
    async with native(Answer(pieces=[begun], then="stall")) as server:
        client = Client(base_url=server.base_url, environ={})
        waiting = threading.Event()

        def read() -> None:
            with client.stream(model="m", input="x") as stream:
                for _ in stream:
                    waiting.set()

        reading = asyncio.create_task(asyncio.to_thread(read))
        await asyncio.to_thread(waiting.wait, 10)
        closers = [asyncio.to_thread(client.close) for _ in range(4)]
        await asyncio.wait_for(asyncio.gather(*closers), 60)
        with pytest.raises(RuntimeError, match="the client is closed"):
            await asyncio.wait_for(reading, 60)
        await asyncio.wait_for(server.raw.closed.wait(), 60)


async def test_a_client_that_nobody_keeps_ends_its_thread() -> None:
    async with serve_gateway(ScriptedBackend(models=["echo"])) as gateway:

        def ask_and_forget() -> threading.Thread:
            client = Client(base_url=gateway.base_url, environ={})
            assert client.create(model="echo", input="hi").status == "completed"
            return client._portal._thread

        thread = await asyncio.to_thread(ask_and_forget)
        gc.collect()
        await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()


async def test_a_program_that_closes_nothing_ends_without_a_word() -> None:
    program = """
import sys
from antiphon.client import Client

client = Client(base_url=sys.argv[1], environ={})
print(client.create(model="echo", input="hi").status)
"""
    async with serve_gateway(ScriptedBackend(models=["echo"])) as gateway:
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, gateway.base_url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert await ran.communicate() == (b"completed\n", b"")
