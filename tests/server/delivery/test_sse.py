"""The stream on the socket: what is written by hand is HTTP all the same, to its end."""

from __future__ import annotations

import asyncio

from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask
from tests.faults.house import PATIENCE, limited

END = b"\r\n0\r\n\r\n"


async def test_a_heartbeat_that_comes_too_late_is_not_written_behind_the_end() -> None:
    backend = ScriptedBackend([[TextGrew("hi"), Stopped("stop")]])
    # A beat is due at once; and a response that has ended is told without a pause.
    async with (
        asyncio.timeout(PATIENCE),
        serve_gateway(backend, settings=limited(heartbeat_seconds=0.0)) as gateway,
    ):
        path = f"/v1/responses/{(await ask(gateway)).json['id']}?stream=true"
        reader, writer = await asyncio.open_connection(*gateway.address)
        answers = []
        for _ in range(2):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            answers.append(await reader.readuntil(END))
        writer.close()

    assert [answer[:15] for answer in answers] == [b"HTTP/1.1 200 OK"] * 2
    assert all(b"[DONE]" in answer for answer in answers)
