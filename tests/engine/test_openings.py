"""The beginning of a streamed turn is written down while the model is asked.

So it is shown that much earlier; and nobody must ever notice anything else.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Batch, Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.faults import Stall, Status
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.transport.http import Limits
from tests.asking import ask, ask_stream, terminal
from tests.transport.raw import Connection, Request, chunk, head, raw_server

OVERFLOW = Status(400, "too many tokens", "context_length_exceeded")
REFUSED = Status(400, "no such thing")


class HeldStore(MemoryStore):
    """A store that begins turns when the test says so, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()
        self.has_begun = asyncio.Event()
        self.has_forgotten = asyncio.Event()
        self.begun: list[str] = []
        self.forgotten: list[str] = []
        self.trouble: StoreUnavailable | None = None

    async def begin(
        self,
        owner: str,
        response: Response,
        items: Sequence[Item],
        *,
        batch: Batch | None = None,
        request: bytes | None = None,
    ) -> None:
        self.asked.set()
        await self.go_on.wait()
        await super().begin(owner, response, items, batch=batch, request=request)
        self.begun.append(response.id)
        self.has_begun.set()

    async def forget(self, owner: str, response_id: str) -> None:
        self.forgotten.append(response_id)
        if self.trouble is not None:
            raise self.trouble
        await super().forget(owner, response_id)
        self.has_forgotten.set()


@asynccontextmanager
async def house(script: Any, store: Store) -> AsyncIterator[tuple[Gateway, ScriptedUpstream]]:
    async with (
        asyncio.timeout(30),
        ScriptedUpstream(script) as upstream,
        serve_gateway(
            ChatBackend(upstream.base_url, limits=Limits(idle=20.0)), store=store
        ) as gateway,
    ):
        yield gateway, upstream


async def replayed(gateway: Gateway, response_id: str) -> bytes:
    url = f"{gateway.base_url}/responses/{response_id}?stream=true"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.read()


async def streamed(gateway: Gateway, **body: Any) -> tuple[int, bytes]:
    asked = {"input": "x", "stream": True, **body}
    url = f"{gateway.base_url}/responses"
    async with aiohttp.ClientSession() as session, session.post(url, json=asked) as answer:
        return answer.status, await answer.read()


async def new_conversation(gateway: Gateway) -> str:
    url = f"{gateway.base_url}/conversations"
    async with aiohttp.ClientSession() as session, session.post(url, json={}) as answer:
        return str((await answer.json())["id"])


def contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_nothing_is_shown_before_the_beginning_is_durable() -> None:
    store = HeldStore()
    async with house(Script(text="hello"), store) as (gateway, upstream):
        asking = asyncio.create_task(streamed(gateway))
        await upstream.received()
        await store.asked.wait()
        assert store.begun == []
        assert not asking.done()
        store.go_on.set()
        status, told = await asking
        assert status == 200
        assert await replayed(gateway, store.begun[0]) == told


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tools": [{"type": "function", "name": "f"}]},
        {"text": {"format": {"type": "json_object"}}},
        {"truncation": "auto"},
    ],
)
async def test_the_beginning_is_written_down_before_the_model_has_spoken(
    body: dict[str, Any],
) -> None:
    store = HeldStore()
    store.go_on.set()
    async with house(Script(text="hi", faults=[Stall(0)]), store) as (gateway, upstream):
        asking = asyncio.create_task(streamed(gateway, **body))
        await (await upstream.received()).stalled.wait()
        await store.has_begun.wait()
        assert not asking.done()
        upstream.release()
        status, _ = await asking
    assert status == 200


async def test_a_model_that_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    async with house(Script(faults=[REFUSED]), store) as (gateway, _):
        status, told = await streamed(gateway)
        await store.close()
    assert (status, b"no such thing" in told) == (400, True)
    with sqlite3.connect(path) as file:
        counts = [
            file.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("responses", "items", "log", "logs", "jobs")
        ]
    file.close()
    assert counts == [0, 0, 0, 0, 0]


async def test_a_client_that_leaves_before_the_first_word_leaves_nothing_behind() -> None:
    store = HeldStore()
    store.go_on.set()
    async with house(Script(text="hi", faults=[Stall(0)]), store) as (gateway, upstream):
        asking = asyncio.create_task(streamed(gateway))
        request = await upstream.received()
        await request.stalled.wait()
        await store.has_begun.wait()
        asking.cancel()
        await request.client_left.wait()
        await store.has_forgotten.wait()
        assert await store.get("local", store.begun[0]) is None


async def test_a_store_that_cannot_undo_it_is_asked_again_later() -> None:
    store = HeldStore()
    store.go_on.set()
    store.trouble = StoreUnavailable("locked")
    async with house(Script(faults=[REFUSED]), store) as (gateway, _):
        status, _told = await streamed(gateway)
        assert status == 400
        assert await store.get("local", store.begun[0]) is not None
        store.trouble = None
        await gateway.app.engine.pending_writes.settle()
        assert await store.get("local", store.begun[0]) is None


async def test_a_turn_that_begins_otherwise_than_was_thought_is_told_as_it_is_kept() -> None:
    """The context had to be shortened after the beginning had been written down without that."""
    store = HeldStore()
    store.go_on.set()
    scripts = [Script(faults=[OVERFLOW]), Script(text="short")]
    items = [{"role": "user", "content": f"message {number}"} for number in range(4)]
    async with house(scripts, store) as (gateway, _):
        status, told = await streamed(gateway, input=items, truncation="auto")
        assert status == 200
        assert b"oldest items were left out" in told.partition(b"\n\n")[0]
        assert await replayed(gateway, store.begun[-1]) == told
    assert len(store.begun) == 2
    assert store.begun[0] == store.forgotten[0]


async def test_what_is_reported_before_the_model_is_asked_is_in_the_beginning() -> None:
    store = HeldStore()
    store.go_on.set()
    async with house(Script(text="hi"), store) as (gateway, _):
        status, told = await streamed(gateway, moderation={"mode": "low"})
        assert status == 200
        assert b"moderation: this backend cannot send it" in told.partition(b"\n\n")[0]
        assert await replayed(gateway, store.begun[-1]) == told
    assert store.forgotten == []


async def test_a_request_that_others_may_know_of_begins_with_its_first_word() -> None:
    """Its key leads to its id: a follower must not be told of a turn that never began."""
    store = HeldStore()
    store.go_on.set()
    async with house(Script(text="hi", faults=[Stall(0)]), store) as (gateway, upstream):
        asking = asyncio.create_task(ask(gateway, {"Idempotency-Key": "once"}, stream=True))
        await (await upstream.received()).stalled.wait()
        assert store.begun == []
        upstream.release()
        await asking
    assert len(store.begun) == 1


async def test_an_answer_that_is_not_streamed_begins_with_its_first_word() -> None:
    store = HeldStore()
    store.go_on.set()
    async with house(Script(text="hi", faults=[Stall(0)]), store) as (gateway, upstream):
        asking = asyncio.create_task(ask(gateway))
        await (await upstream.received()).stalled.wait()
        assert store.begun == []
        upstream.release()
        assert (await asking).json["status"] == "completed"


async def test_an_overflow_that_is_told_as_a_stream_is_kept_as_it_was_told() -> None:
    store = HeldStore()
    store.go_on.set()
    async with house(Script(faults=[OVERFLOW]), store) as (gateway, _):
        events = await ask_stream(gateway)  # the referee counts
        response = terminal(events)
        assert response.status == "failed"
        kept = await store.get("local", response.id)
        assert kept is not None
        assert kept.status == "failed"


ITEMS = [{"role": "user", "content": f"message {number}"} for number in range(4)]


async def test_a_beginning_that_cannot_be_undone_is_not_begun_again_under_its_name() -> None:
    """What is owed would remove the turn that runs."""
    store = HeldStore()
    store.go_on.set()
    store.trouble = StoreUnavailable("locked")
    scripts = [Script(faults=[OVERFLOW]), Script(text="short")]
    async with house(scripts, store) as (gateway, _):
        status, told = await streamed(gateway, input=ITEMS, truncation="auto")
        assert (status, b"store_unavailable" in told) == (503, True)
        store.trouble = None
        await gateway.app.engine.pending_writes.settle()
        assert await store.get("local", store.begun[0]) is None
    assert len(store.begun) == 1


async def test_a_client_that_leaves_while_a_beginning_is_undone_leaves_nothing_behind() -> None:
    class Slow(HeldStore):
        def __init__(self) -> None:
            super().__init__()
            self.undo = asyncio.Event()
            self.is_undoing = asyncio.Event()
            self.is_undoing_again = asyncio.Event()

        async def forget(self, owner: str, response_id: str) -> None:
            (self.is_undoing_again if self.is_undoing.is_set() else self.is_undoing).set()
            await self.undo.wait()
            await super().forget(owner, response_id)

    store = Slow()
    store.go_on.set()
    scripts = [Script(faults=[OVERFLOW]), Script(text="short")]
    async with house(scripts, store) as (gateway, _):
        asking = asyncio.create_task(streamed(gateway, input=ITEMS, truncation="auto"))
        await store.is_undoing.wait()
        asking.cancel()
        await store.is_undoing_again.wait()
        store.undo.set()
        await store.has_forgotten.wait()
        assert await store.get("local", store.begun[0]) is None


async def test_a_beginning_that_failed_is_owed_its_end_when_the_model_refuses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(HeldStore):
        async def begin(self, *args: Any, **more: Any) -> None:
            raise StoreUnavailable("locked")

    store = Failing()
    gc.collect()  # what other tests left is not about this one
    caplog.clear()
    async with house(Script(faults=[REFUSED]), store) as (gateway, _):
        status, _told = await streamed(gateway)
        gc.collect()
        await gateway.app.engine.pending_writes.settle()
    assert status == 400
    assert len(store.forgotten) >= 2  # at once, and again while it is in doubt
    assert "never retrieved" not in caplog.text


async def test_after_a_refusal_nothing_is_begun_in_advance_for_a_while() -> None:
    store = HeldStore()
    store.go_on.set()
    scripts = [Script(faults=[REFUSED]), Script(faults=[REFUSED])]
    async with house(scripts, store) as (gateway, _):
        assert [(await streamed(gateway))[0] for _ in range(2)] == [400, 400]
    assert (len(store.begun), len(store.forgotten)) == (1, 1)


async def test_the_words_of_a_request_that_was_refused_are_erased(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    secret = "the owl flies at seven"
    async with house(Script(faults=[REFUSED]), store) as (gateway, _):
        status, _told = await streamed(gateway, input=secret, instructions=secret)
        await store.close()
    assert status == 400
    assert secret.encode() not in contents(tmp_path)


async def test_what_is_suppressed_in_the_first_batch_is_in_the_header() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "nope", "arguments": "{}"}}
    said = {"choices": [{"index": 0, "delta": {"content": "hi", "tool_calls": [call]}}]}
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events = b"".join(b"data: %b\n\n" % json.dumps(data).encode() for data in (said, ended))

    async def script(request: Request, connection: Connection) -> None:
        body = chunk(events + b"data: [DONE]\n\n") + chunk(b"")
        await connection.write(head("text/event-stream") + body)

    async with raw_server(script) as server, serve_gateway(ChatBackend(server.url)) as gateway:
        answers = [
            await ask(gateway, model="test/m", stream=True, store=stored)
            for stored in (True, False)
        ]
    told = [answer.headers["x-antiphon-degraded"] for answer in answers]
    assert told[0] == told[1]
    assert "'nope'" in told[0]


async def test_the_model_is_hung_up_on_before_a_failed_beginning_is_cleaned_up() -> None:
    class Failing(HeldStore):
        async def begin(self, *args: Any, **more: Any) -> None:
            raise StoreUnavailable("locked")

    store = Failing()
    async with house(Script(text=["a"] * 9, faults=[Stall(4)]), store) as (gateway, upstream):
        talk = await new_conversation(gateway)
        held = asyncio.Event()
        unlock = store.conversations.unlock

        async def unlock_later(*args: Any, **more: Any) -> bool:
            await held.wait()
            return await unlock(*args, **more)

        store.conversations.unlock = unlock_later  # type: ignore[method-assign] # slowed down
        asking = asyncio.create_task(streamed(gateway, conversation=talk))
        await (await upstream.received()).client_left.wait()
        assert not asking.done()
        held.set()
        assert (await asking)[0] == 503
