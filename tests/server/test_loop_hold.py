"""Large requests do not hold up the event loop.

The gateway runs in a thread of its own. A profile function sees every call in that thread, and a
selector when the loop has come round. So it is known, on any machine and under any load, which
work was done on the loop, and how many calls were made before others had their turn.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from types import CodeType, FrameType
from typing import Any, Final

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.engine.prepare.history import refuse_orphans
from antiphon.plans.assess import assess
from antiphon.plans.estimate import estimate_usage
from antiphon.plans.plan import Plan
from antiphon.protocol.body import decode_body
from antiphon.protocol.pieces import PieceDecoder, encode_long
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.server.delivery.frames import read_create, read_turn
from antiphon.store.base import Store
from antiphon.store.encoding import decode_item, encode_items
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.upstream import ScriptedUpstream
from antiphon.wires.chat.messages import write_messages, write_thread
from antiphon.wires.chat.request import encode_request
from tests.asking import ask, request

_PATIENCE: Final = 120.0
_CHARACTERS: Final = 2_000_000
_LARGE: Final = _CHARACTERS // 2
_MANY: Final = 10_000
# To add up their sizes takes two calls for each of many items; all other work takes more.
_MOST_CALLS: Final = 3 * _MANY
# What goes through a whole request, context or list of items.
_LARGE_WORK: Final[dict[CodeType, str]] = {
    work.__code__: work.__qualname__
    for work in (
        decode_body,
        PieceDecoder.decode,
        encode_long,
        read_request,
        read_create,
        read_turn,
        refuse_orphans,
        assess,
        write_messages,
        write_thread,
        encode_request,
        estimate_usage,
        encode_items,
        decode_item,
    )
}


def weigh(value: object) -> int:
    """Return how many bytes and characters there are in a value, about."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, Plan):
        return weigh(value.items)
    if isinstance(value, CreateResponse):
        return weigh(value.input)
    if isinstance(value, dict):
        return sum(map(weigh, value.values()))
    return sum(map(weigh, value)) if isinstance(value, list | tuple) else 0


class Probe(selectors.DefaultSelector):
    """Notes what the thread of a loop does."""

    def __init__(self) -> None:
        super().__init__()
        self.most_calls = 0
        """Between two selects."""
        self.large_work: list[str] = []
        """What was done on the loop with large values."""
        self._calls = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.most_calls = max(self.most_calls, self._calls)
        self._calls = 0
        return super().select(timeout)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Be the profile function of the thread."""
        if event in ("call", "c_call"):
            self._calls += 1
            name = _LARGE_WORK.get(frame.f_code) if event == "call" else None
            calls = self._calls
            if name and sum(map(weigh, frame.f_locals.values())) > _LARGE:
                self.large_work.append(name)
            self._calls = calls

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Fail if the loop is held up meanwhile."""
        self.most_calls, self.large_work = 0, []
        yield
        assert not self.large_work
        assert 0 < self.most_calls < _MOST_CALLS


class _Served:
    """A gateway in a thread of its own."""

    def __init__(self, make_store: Callable[[], Store], upstream: str) -> None:
        self.probe = Probe()
        self.ready: Future[Gateway] = Future()
        self._make_store = make_store
        self._upstream = upstream
        self._loop = asyncio.SelectorEventLoop(self.probe)
        self._stop = asyncio.Event()
        self.thread = Thread(target=self._run, daemon=True)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        sys.setprofile(self.probe.note)
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        store = self._make_store()
        try:
            async with serve_gateway(ChatBackend(self._upstream), store=store) as gateway:
                self.ready.set_result(gateway)
                await self._stop.wait()
        finally:
            await store.close()


@asynccontextmanager
async def served(make_store: Callable[[], Store]) -> AsyncIterator[tuple[Gateway, Probe]]:
    async with ScriptedUpstream() as upstream:
        serving = _Served(make_store, upstream.base_url)
        serving.thread.start()
        try:
            gateway = await asyncio.wait_for(asyncio.wrap_future(serving.ready), _PATIENCE)
            await ask(gateway)  # what is done once
            yield gateway, serving.probe
        finally:
            serving.stop()
            await asyncio.to_thread(serving.thread.join, _PATIENCE)


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    return MemoryStore if request.param == "memory" else lambda: SqliteStore(tmp_path / "db")


def messages(count: int) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "word " * (_CHARACTERS // count // 5)} for _ in range(count)
    ]


def image() -> list[dict[str, Any]]:
    part = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * _CHARACTERS}
    return [{"role": "user", "content": [part]}]


def calls(count: int) -> list[dict[str, Any]]:
    output = "word " * (_CHARACTERS // count // 5)
    items: list[dict[str, Any]] = []
    for number in range(count):
        call = {"call_id": f"call_{number}", "name": "look", "arguments": "{}"}
        items.append({"type": "function_call", **call})
        items.append({"type": "function_call_output", "call_id": call["call_id"], "output": output})
    return items


INPUTS: Final[dict[str, Callable[[], list[dict[str, Any]]]]] = {
    "many messages": lambda: messages(_MANY),
    "a few messages": lambda: messages(10),
    "one image": image,
    "many calls": lambda: calls(_MANY // 2),
}


@pytest.mark.parametrize("kind", INPUTS)
async def test_the_loop_goes_on_while_a_large_request_is_answered(
    kind: str, make_store: Callable[[], Store]
) -> None:
    body = msgspec.json.encode({"input": INPUTS[kind]()})
    async with served(make_store) as (gateway, probe):
        with probe.watching():
            answer = await request(gateway, "POST", "/responses", body)
        assert answer.status == 200, answer.body[:500]
        with probe.watching():
            later = await ask(gateway, previous_response_id=answer.json["id"])
        assert later.status == 200, later.body[:500]


@pytest.mark.parametrize("kind", ["a few messages", "one image"])
async def test_the_loop_goes_on_while_large_items_are_added_and_read(
    kind: str, make_store: Callable[[], Store]
) -> None:
    items = INPUTS[kind]()
    body = msgspec.json.encode({"items": items})
    async with served(make_store) as (gateway, probe):
        with probe.watching():
            made = await request(gateway, "POST", "/conversations", body)
        assert made.status == 200, made.body[:500]
        path = f"/conversations/{made.json['id']}"
        with probe.watching():
            answer = await ask(gateway, conversation=made.json["id"])
        assert answer.status == 200, answer.body[:500]
        with probe.watching():
            page = await request(gateway, "GET", f"{path}/items?order=asc&limit=10")
        assert page.status == 200
        assert len(page.json["data"]) >= len(items)
