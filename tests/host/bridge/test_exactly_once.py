"""Each request is answered exactly once, whatever the asker does; planted bugs are noticed.

A bridge without its pipes gets a random mixture of requests, cancels, repeated ids and messages
that are not valid, and then the end of its input.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from antiphon.host.bridge import bridge as bridge_module
from antiphon.host.bridge.bridge import Bridge
from antiphon.host.bridge.logs import LogHandler
from antiphon.protocol.deltas import TextGrew
from tests.building import COUNTED, STOP
from tests.client.native import Answer, NativeServer, native, response
from tests.transport.raw import Request

Fields = dict[str, Any]
OK = response(TextGrew("one"), TextGrew(" two"), COUNTED, STOP)
STALLED = Answer(pieces=OK.pieces[:5], then="stall")
MODELS = Answer(pieces=[b'{"object":"list","data":[{"id":"m"}]}'], content_type="application/json")
MAX_REQUESTS = 8


class _Sink:
    """A reader that is never behind."""

    is_full = False

    def __init__(self) -> None:
        self.messages: list[Fields] = []
        self.arrived = asyncio.Event()

    def write(self, line: bytes) -> None:
        self.messages.append(msgspec.json.decode(line))
        self.arrived.set()

    async def room(self, limit: int = 0) -> None:
        await asyncio.sleep(0)


class _Asker:
    """Asks at random. `running` are the ids whose last message has not come."""

    def __init__(self, seed: int, sink: _Sink) -> None:
        self._dice = random.Random(seed)
        self._sink = sink
        self._asked: list[int] = []
        self._loads: dict[int, int] = {}
        self._endless: set[int] = set()
        self._wrong = 0

    @property
    def running(self) -> set[int]:
        ended = {it.get("id") for it in self._sink.messages if it["type"] != "parts"}
        return {request for request in self._asked if request not in ended}

    async def lines(self) -> AsyncIterator[bytes]:
        yield b'{"type":"hello","version":1}'
        for number in range(40):
            for message in self._choose(number):
                yield msgspec.json.encode(message)
            if self._dice.random() < 0.3:
                self._sink.arrived.clear()
                with_time = asyncio.wait_for(self._sink.arrived.wait(), 0.02)
                await asyncio.gather(with_time, return_exceptions=True)

    def _ask(self, number: int) -> None:
        self._loads[number] = len(self.running)
        self._asked.append(number)

    def _choose(self, number: int) -> list[Fields]:
        respond = {"type": "respond", "id": number, "model": "m", "messages": _say("go")}
        match self._dice.randrange(7):
            case 0:
                self._ask(number)
                return [{"type": "models", "id": number, "refresh": True}]
            case 1:
                self._ask(number)
                return [{"type": "count", "id": number, "model": "m", "contents": ["a"]}]
            case 2 if endless := sorted(self._endless & self.running):
                request = self._dice.choice(endless)
                self._wrong += 2
                return [respond | {"id": request}, {"type": "respond", "id": request}]
            case 3 if running := sorted(self.running):
                request = self._dice.choice(running)
                self._endless.discard(request)
                return [{"type": "cancel", "id": request}]
            case 4:
                self._ask(number)
                return [respond, {"type": "cancel", "id": number}]
            case 5:
                self._ask(number)
                return [respond]
        self._ask(number)
        self._endless.add(number)
        return [respond | {"messages": _say("stall")}]

    def check(self) -> None:
        """Check what came back."""
        last: dict[int | None, list[str]] = {}
        for message in self._sink.messages:
            request, kind = message.get("id"), message["type"]
            if kind == "parts":
                assert request not in last, "a part came after the last message"
            elif kind not in ("usage", "log", "welcome"):
                last.setdefault(request, []).append(kind)
            if message.get("error", {}).get("code") == "too_many_requests":
                assert self._loads[message["id"]] >= MAX_REQUESTS
        assert len(last.pop(None, [])) == self._wrong
        assert sorted(last, key=str) == sorted(self._asked, key=str)
        assert {len(kinds) for kinds in last.values()} == {1}


def _say(text: str) -> list[Fields]:
    return [{"role": "user", "content": [{"type": "text", "value": text}]}]


def _answer(request: Request) -> Answer:
    if request.method == "GET":
        return MODELS
    return STALLED if b'"stall"' in request.body else OK


async def _play(server: NativeServer, seed: int, kind: type[Bridge] = Bridge) -> int:
    """Play a game; return how many requests were refused because too many ran."""
    sink = _Sink()
    asker = _Asker(seed, sink)
    running = kind(sink, server.base_url, max_requests=MAX_REQUESTS)  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        await running.run(asker.lines())
    asker.check()
    codes = [message.get("error", {}).get("code") for message in sink.messages]
    return codes.count("too_many_requests")


@pytest.fixture(autouse=True)
def log_is_released() -> Iterator[None]:
    """A planted bug keeps a bridge from ending, and so from leaving the log."""
    yield
    for handler in list(logging.getLogger("antiphon").handlers):
        if isinstance(handler, LogHandler):
            handler.remove()


async def test_each_request_is_answered_exactly_once() -> None:
    async with native(_answer) as server:
        refused = [await _play(server, seed) for seed in range(25)]
    assert any(refused)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self._refuse(request_id, CANCELLED)", "pass"),
        ("if question.id in self._running:", "if False:"),
        ('self._refuse(None, _fault("duplicate_id"', 'self._refuse(question.id, _fault("d"'),
        ("None if is_taken else question.id", "question.id"),
        ("await self._end()", "pass"),
        ("del self._running[request_id]", "pass"),
        ("self._send(counted)", "self._send(counted); self._send(counted)"),
        ("self._send(task.result())", "pass"),
    ],
)
async def test_a_planted_bug_is_noticed(right: str, wrong: str) -> None:
    source = inspect.getsource(Bridge)
    assert source.count(right) == 1
    names = dict(vars(bridge_module))
    exec("from __future__ import annotations\n" + source.replace(right, wrong), names)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with native(_answer) as server:
        with pytest.raises((AssertionError, TimeoutError)):
            for seed in range(25):
                await _play(server, seed, names["Bridge"])
