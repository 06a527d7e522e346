"""The public judge of streams: `antiphon.testing.judge_stream`."""

from __future__ import annotations

import msgspec

from antiphon.protocol.codec import decode_event
from antiphon.protocol.events import Event
from antiphon.testing import ScriptedBackend, Violation, judge_stream, serve_gateway
from tests.asking import request


async def _events_of_a_stream() -> list[Event]:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await request(gateway, "POST", "/responses", {"input": "hello", "stream": True})
    frames = answer.body.decode().split("\n\n")[:-2]
    return [decode_event(frame.partition("data: ")[2]) for frame in frames]


async def test_a_stream_of_the_gateway_breaks_no_rule() -> None:
    assert judge_stream(await _events_of_a_stream()) == []


async def test_a_gap_in_the_sequence_numbers_is_a_violation() -> None:
    events = await _events_of_a_stream()
    events[3] = msgspec.structs.replace(events[3], sequence_number=99)
    found = judge_stream(events)
    assert found and all(isinstance(violation, Violation) for violation in found)
