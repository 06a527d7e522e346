"""Damaged streams through the whole bridge: no call is lost, doubled or altered.

Every event of a stream with text and two calls is lost, repeated under its number, repeated
under a new number, or swapped with the next one. What arrives must be what the adapter gives for
the same events, and no call may be another than the two that the model made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec

from antiphon.host import Message, ToolCallPart
from antiphon.host.bridge.client import BridgeAnswer, BridgeClient, BridgeError
from antiphon.host.bridge.faults import fault_of
from antiphon.host.errors import HostError
from antiphon.wires.host.parts import ResponsePart
from tests.client.native import Answer, native
from tests.host.bridge.bridging import bridge, stream_of
from tests.host.streams import (
    Fields,
    call,
    call_item,
    created,
    end,
    message,
    message_item,
    tell,
    tool_calls,
)
from tests.transport.raw import Request

BONN = '{"city":"Bonn"}'
CALLS = [
    ToolCallPart("call_1", "weather", {"city": "Ulm"}),
    ToolCallPart("call_2", "weather", {"city": "Bonn"}),
]
WHOLE: list[Fields] = [
    created(),
    *message("Let ", "me ", "look."),
    *call("call_1", "fc_1", 1),
    *call("call_2", "fc_2", 2, BONN),
    end(message_item("Let me look."), call_item(), call_item("call_2", "fc_2", BONN)),
]
NUMBERED = [{"sequence_number": place} | event for place, event in enumerate(WHOLE)]


def _damaged() -> Iterator[list[Fields]]:
    yield NUMBERED
    for place, event in enumerate(NUMBERED):
        before, after = NUMBERED[:place], NUMBERED[place + 1 :]
        yield [*before, *after]
        yield [*before, event, event, *after]
        yield [
            {**it, "sequence_number": n} for n, it in enumerate([*before, event, *NUMBERED[place:]])
        ]
        if after:
            yield [*before, after[0], event, *after[1:]]
        yield [*before]


STREAMS = list(_damaged())


def _expected(stream: list[Fields]) -> tuple[list[ResponsePart], str]:
    """Return the parts of the adapter, and the code of its end."""
    told = tell(*stream)
    try:
        told.finish()
    except HostError as error:
        return told.parts, fault_of(error).code
    return told.parts, ""


async def _read(answer: BridgeAnswer) -> tuple[list[ResponsePart], str]:
    parts = []
    try:
        async for part in answer:
            parts.append(part)
    except BridgeError as error:
        return parts, error.fault.code
    return parts, ""


async def test_no_call_is_lost_doubled_or_altered(tmp_path: Path) -> None:
    def play(request: Request) -> Answer:
        place = msgspec.json.decode(request.body)["input"][0]["content"][0]["text"]
        return stream_of(*STREAMS[int(place)])

    async def ask(client: BridgeClient, place: int) -> tuple[list[ResponsePart], str]:
        return await _read(client.respond("m", [Message.user(str(place))]))

    async with native(play) as server, bridge(tmp_path, server.base_url) as client:
        found = await asyncio.gather(*(ask(client, place) for place in range(len(STREAMS))))

    assert len(found) > 80
    for stream, (parts, code) in zip(STREAMS, found, strict=True):
        expected, expected_code = _expected(stream)
        calls = tool_calls(parts)
        assert all(made in CALLS for made in calls)
        assert len({made.call_id for made in calls}) == len(calls)
        if not stream:
            assert code == "stream_cut"
            continue
        assert (parts, code) == (expected, expected_code), stream
        if not code:
            assert sorted(calls, key=lambda made: made.call_id) == CALLS
    assert found[0] == (_expected(NUMBERED)[0], "")
