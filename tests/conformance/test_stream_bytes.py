"""What a stream is made of: bytes and headers.

`wire.read_frames` refuses what we must not send, so reading a stream at all is most of the test
here: LF only, `event` equal to `type`, no `id`, one line of data, one `[DONE]` and nothing after.
"""

from __future__ import annotations

from typing import get_args

import aiohttp
import pytest

from antiphon.protocol.codec import Dialect
from tests.conformance.house import House, open_house
from tests.conformance.model import MODEL
from tests.conformance.turns import TURNS, Turn
from tests.conformance.wire import ask, ask_for_events

TRICKY = 'Two lines\nand\r\nthree: "data: [DONE]"\n\nevent: x \u2028 \u0085 \x0b 日本語 🎉'

every_turn = pytest.mark.parametrize("turn", TURNS.values(), ids=list(TURNS))


@every_turn
@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_every_stream_is_made_of_proper_frames(turn: Turn, dialect: Dialect) -> None:
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request, dialect)
    assert len(answer.events) >= 3


@every_turn
async def test_sequence_numbers_count_from_zero(turn: Turn) -> None:
    async with open_house(turn.script) as house:
        answer = await ask_for_events(house.base_url, turn.request)
    numbers = [event["sequence_number"] for event in answer.events]
    assert numbers == list(range(len(numbers)))


async def test_text_that_looks_like_frames_stays_text() -> None:
    body = {"model": MODEL, "input": f"Repeat this text exactly, nothing else: {TRICKY}"}
    async with open_house() as house:
        answer = await ask_for_events(house.base_url, body)
    assert answer.response["output"][0]["content"][0]["text"] == TRICKY


async def test_a_stream_tells_nobody_to_keep_it() -> None:
    async with open_house() as house:
        answer = await ask_for_events(house.base_url, {"model": MODEL, "input": "Hello."})
    assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-cache"
    assert answer.headers["X-Accel-Buffering"] == "no"
    assert answer.headers["x-request-id"].startswith("req_")
    assert "Content-Length" not in answer.headers


async def test_the_callers_request_id_comes_back() -> None:
    async with open_house() as house:
        answer = await ask(
            house.base_url,
            {"model": MODEL, "input": "Hello.", "stream": True},
            headers={"x-request-id": "mine-17"},
        )
    assert answer.headers["x-request-id"] == "mine-17"


async def test_the_connection_can_be_used_again_after_a_stream() -> None:
    async with open_house() as house, aiohttp.ClientSession() as session:
        first = await _stream_once(house, session)
        second = await _stream_once(house, session)
    assert first == second


async def _stream_once(house: House, session: aiohttp.ClientSession) -> object:
    body = {"model": MODEL, "input": "Hello.", "stream": True}
    async with session.post(f"{house.base_url}/responses", json=body) as answer:
        assert answer.connection is not None
        assert answer.connection.transport is not None
        own_address = answer.connection.transport.get_extra_info("sockname")
        await answer.read()
    return own_address
