"""Frames that the server writes by itself are what a WebSocket client can read."""

from __future__ import annotations

import aiohttp
import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.server.delivery.frames import text_header
from antiphon.testing.gateway import serve_gateway
from tests.talking import PATIENCE, talk


@pytest.mark.parametrize(
    ("size", "header"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65_535, b"\x81\x7e\xff\xff"),
        (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_the_header_holds_the_length_in_the_shortest_form(size: int, header: bytes) -> None:
    assert text_header(size) == header


async def test_a_client_reads_frames_of_every_length_around_the_limits() -> None:
    sizes = (65_534, 65_535, 65_536, 65_537, 200_000)
    spare = await _delta_length("")
    texts = ["x" * (size - spare) for size in sizes]

    assert [await _delta_length(text) for text in texts] == list(sizes)


async def _delta_length(text: str) -> int:
    """Return how long the frame of a delta with this text is, as a client receives it."""
    steps: list[Step] = [TextGrew("a"), TextGrew(text or "b"), Stopped("stop")]
    async with (
        serve_gateway(ScriptedBackend([steps])) as gateway,
        talk(gateway.base_url) as socket,
    ):
        await socket.ask(input="hi", store=False)
        deltas: list[str] = []
        while len(deltas) < 2:
            message = await socket.wire.receive(timeout=PATIENCE)
            assert message.type is aiohttp.WSMsgType.TEXT
            if b"output_text.delta" in message.data.encode():
                deltas.append(message.data)
    assert msgspec.json.decode(deltas[1])["delta"] == (text or "b")
    return len(deltas[1]) - (0 if text else 1)
