"""What a store in trouble could not take is owed to it, and paid when it can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import ContextOverflow, StoreUnavailable
from antiphon.protocol.response import Response
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Orphan
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask, events_of, request, terminal
from tests.engine.keep.test_recovery import HELLO, NOW, OWNER, leave_running

STOP = Stopped("stop")


class Failing:
    """Stands for a method that fails a number of times, before or after it has done its work."""

    def __init__(
        self, method: Callable[..., Awaitable[Any]], times: int = 1, *, is_done: bool = False
    ) -> None:
        self._method = method
        self._times = times
        self._is_done = is_done
        self.calls = 0

    async def __call__(self, *args: Any, **more: Any) -> Any:
        self.calls += 1
        if self.calls > self._times:
            return await self._method(*args, **more)
        if self._is_done:
            await self._method(*args, **more)
        raise StoreUnavailable("the disk is tired; nothing was stored")


class Held:
    """Stands for a method that does its work and does not return until it is let."""

    def __init__(self, method: Callable[..., Awaitable[Any]]) -> None:
        self._method = method
        self.is_reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, *args: Any, **more: Any) -> Any:
        result = await self._method(*args, **more)
        self.is_reached.set()
        await self.go_on.wait()
        return result


async def leave_at(held: Held, asking: Awaitable[object]) -> None:
    """Ask, leave when the held method has done its work, and only then let it return."""
    task = asyncio.ensure_future(asking)
    await held.is_reached.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    held.go_on.set()


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes: pending writes are retried once a second."""
    async with asyncio.timeout(30):
        while not await question():  # noqa: ASYNC110 # another task's work, seen from outside
            await asyncio.sleep(0.05)


async def status_of(gateway: Gateway, response_id: str) -> str:
    answer = await request(gateway, "GET", f"/responses/{response_id}")
    status: str = answer.json.get("status", "missing")
    return status


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_end_that_could_not_be_stored_is_stored_later(is_streamed: bool) -> None:
    store = MemoryStore()
    store.finish = Failing(store.finish, 2)  # type: ignore[method-assign]
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        answer = await ask(gateway, input="hello", stream=is_streamed)
        (turn,) = store._turns
        await until(lambda: _is(status_of(gateway, turn[1]), "failed"))
        again = await request(gateway, "GET", f"/responses/{turn[1]}?stream=true")

    if is_streamed:
        assert events_of(again.body) == events_of(answer.body)
    else:
        assert answer.status == 503
    assert terminal(events_of(again.body)).output_text == "hello"


async def _is(asked: Awaitable[str], expected: str) -> bool:
    return await asked == expected


@pytest.mark.parametrize("body", [{"stream": True}, {"background": True}])
async def test_a_beginning_that_was_stored_after_all_comes_to_an_end(body: dict[str, Any]) -> None:
    store = MemoryStore()
    store.begin = Failing(store.begin, is_done=True)  # type: ignore[method-assign]
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        refused = await ask(gateway, input="hello", **body)
        (turn,) = store._turns
        await until(lambda: _is(status_of(gateway, turn[1]), "failed"))
        log = await request(gateway, "GET", f"/responses/{turn[1]}?stream=true")

    assert refused.status == 503
    error = terminal(events_of(log.body)).error
    assert error is not None and error.code == "store_unavailable"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_conversation_does_not_stay_locked(is_stored: bool) -> None:
    store = MemoryStore()
    backend = ScriptedBackend([[TextGrew("a"), STOP], [TextGrew("b"), STOP]])
    async with serve_gateway(backend, store=store) as gateway:
        name = (await request(gateway, "POST", "/conversations")).json["id"]
        conversations = store.conversations
        conversations.unlock = Failing(conversations.unlock)  # type: ignore[method-assign]
        if is_stored:
            store.begin = Failing(store.begin)  # type: ignore[method-assign]
        first = await ask(gateway, input="one", conversation=name, store=is_stored)

        async def is_free() -> bool:
            return (await ask(gateway, input="two", conversation=name)).status == 200

        await until(is_free)
        items = await conversations.items(OWNER, name)

    assert first.status == 503
    assert items is not None and len(items) == 2


async def test_a_key_does_not_stay_taken() -> None:
    store = MemoryStore()
    store.begin = Failing(store.begin)  # type: ignore[method-assign]
    store.claims.release = Failing(store.claims.release)  # type: ignore[method-assign]
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        headers = {"Idempotency-Key": "k1"}
        first = await ask(gateway, headers, input="hello")

        async def works() -> bool:
            return (await ask(gateway, headers, input="hello")).status == 200

        await until(works)

    assert first.status == 503


async def test_a_client_that_leaves_a_beginning_in_doubt_leaves_nothing_stuck() -> None:
    store, begun, go_on = MemoryStore(), asyncio.Event(), asyncio.Event()
    begin = store.begin
    late: list[Callable[[], Awaitable[None]]] = []

    async def doubtful(*args: Any, **more: Any) -> None:
        begun.set()
        await go_on.wait()
        late.append(lambda: begin(*args, **more))
        raise StoreUnavailable("the database did not answer in time")

    store.begin = doubtful  # type: ignore[method-assign]
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        asking = asyncio.create_task(ask(gateway, input="x", stream=True))
        await begun.wait()
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        go_on.set()
        await until(lambda: _is_there(late))
        await late[0]()
        (turn,) = store._turns
        await until(lambda: _is(status_of(gateway, turn[1]), "failed"))


async def _is_there(late: list[Any]) -> bool:
    return bool(late)


async def test_a_claim_in_doubt_does_not_stay() -> None:
    store = MemoryStore()
    store.claims.take = Failing(store.claims.take, is_done=True)  # type: ignore[method-assign]
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        headers = {"Idempotency-Key": "k1"}
        first = await ask(gateway, headers, input="hello")

        async def works() -> bool:
            return (await ask(gateway, headers, input="hello")).status == 200

        await until(works)

    assert first.status == 503


async def test_a_client_that_leaves_while_its_turn_begins_leaves_nothing_stuck() -> None:
    store = MemoryStore()
    store.begin = held = Held(store.begin)  # type: ignore[method-assign]
    backend = ScriptedBackend(lambda _: [TextGrew("a"), asyncio.Event(), STOP])
    async with serve_gateway(backend, store=store) as gateway:
        name = (await request(gateway, "POST", "/conversations")).json["id"]
        await leave_at(held, ask(gateway, input="x", stream=True, conversation=name))
        (turn,) = store._turns
        await until(lambda: _is(status_of(gateway, turn[1]), "cancelled"))
        await until(lambda: _is_free(gateway, name))

    assert backend.stopped_early == 1


async def _is_free(gateway: Gateway, conversation: str) -> bool:
    path = f"/conversations/{conversation}/items"
    items = {"items": [{"role": "user", "content": "by hand"}]}
    return (await request(gateway, "POST", path, items)).status == 200


async def test_recovery_that_meets_trouble_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await leave_running(path, TextGrew("So far"))
    other = SqliteStore(path)
    await other.begin(OWNER, Response(id="resp_other", model="m", created_at=NOW), [HELLO])
    await other.close()
    store = SqliteStore(path)
    store.finish = Failing(store.finish, 3)  # type: ignore[method-assign]
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        for response_id in ("resp_left", "resp_other"):
            await until(lambda name=response_id: _is(status_of(gateway, name), "failed"))  # type: ignore[misc]
    await store.close()


async def test_what_is_owed_does_not_hold_up_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:

        async def never() -> None:
            raise StoreUnavailable("never")

        gateway.app.engine.pending_writes.defer(never)
        await leave_running(path, TextGrew("So far"))
        await until(lambda: _is(status_of(gateway, "resp_left"), "failed"))
    await store.close()


async def test_a_response_deleted_in_the_middle_says_so() -> None:
    said = asyncio.Event()

    def talk(_: Plan) -> Script:
        yield TextGrew("a")
        said.set()
        yield asyncio.Event()

    backend = ScriptedBackend(talk)
    async with serve_gateway(backend) as gateway:
        asking = asyncio.create_task(ask(gateway, input="x"))
        await said.wait()
        (turn,) = gateway.app._turns.values()
        deleted = await request(gateway, "DELETE", f"/responses/{turn.response_id}")
        answer = await asking

    assert deleted.status == 200
    assert (answer.status, answer.error["code"]) == (409, "response_deleted")
    assert answer.headers["x-should-retry"] == "false"
    assert backend.stopped_early == 1


async def test_a_stream_deleted_in_the_middle_ends_as_failed() -> None:
    said = asyncio.Event()

    def talk(_: Plan) -> Script:
        yield TextGrew("a")
        said.set()
        yield asyncio.Event()

    async with (
        serve_gateway(ScriptedBackend(talk)) as gateway,
        aiohttp.ClientSession() as session,
        session.post(
            f"{gateway.base_url}/responses", json={"input": "x", "stream": True}
        ) as answer,
    ):
        await said.wait()
        (turn,) = gateway.app._turns.values()
        await request(gateway, "DELETE", f"/responses/{turn.response_id}")
        events = events_of(await answer.read())

    error = terminal(events).error
    assert error is not None and error.code == "response_deleted"
    assert terminal(events).output_text == "a"


async def test_a_client_that_leaves_an_overflow_behind_leaves_nothing_stuck() -> None:
    store = MemoryStore()
    store.begin = held = Held(store.begin)  # type: ignore[method-assign]
    backend = ScriptedBackend(lambda _: [ContextOverflow("too long")])
    async with serve_gateway(backend, store=store) as gateway:
        await leave_at(held, ask(gateway, input="x", stream=True))
        (turn,) = store._turns
        await until(lambda: _is(status_of(gateway, turn[1]), "cancelled"))


async def test_an_overflow_whose_beginning_is_in_doubt_comes_to_an_end() -> None:
    store = MemoryStore()
    store.begin = Failing(store.begin, is_done=True)  # type: ignore[method-assign]
    backend = ScriptedBackend(lambda _: [ContextOverflow("too long")])
    async with serve_gateway(backend, store=store) as gateway:
        refused = await ask(gateway, input="x", stream=True)
        (turn,) = store._turns
        await until(lambda: _is(status_of(gateway, turn[1]), "failed"))

    assert refused.status == 503


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_turn_that_is_ending_anyway_is_not_interrupted(is_streamed: bool) -> None:
    store, ending, go_on = MemoryStore(), asyncio.Event(), asyncio.Event()
    finish = store.finish

    async def slow(*args: Any, **more: Any) -> None:
        ending.set()
        await go_on.wait()
        await finish(*args, **more)

    store.finish = slow  # type: ignore[method-assign]
    settings = ServerSettings(limits=ServerLimits(drain_seconds=0.01))
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        asking = asyncio.create_task(ask(gateway, input="hello", stream=is_streamed))
        await ending.wait()
        draining = asyncio.create_task(gateway.app.drain())
        await until(lambda: _is_draining(gateway))
        go_on.set()
        answer = await asking
        await draining

    assert answer.status == 200
    if is_streamed:
        assert terminal(events_of(answer.body)).status == "completed"
    else:
        assert answer.json["status"] == "completed"


async def _is_draining(gateway: Gateway) -> bool:
    return gateway.app.is_draining


async def test_a_key_of_a_background_turn_is_kept_when_following_it_fails() -> None:
    store, go_on = MemoryStore(), asyncio.Event()
    store.read_log = Failing(store.read_log)  # type: ignore[method-assign]
    backend = ScriptedBackend(lambda _: [TextGrew("a"), go_on, STOP])
    async with serve_gateway(backend, store=store) as gateway:
        headers = {"Idempotency-Key": "k1"}
        body = {"input": "x", "background": True, "stream": True}
        with suppress(aiohttp.ClientPayloadError):
            await ask(gateway, headers, **body)
        go_on.set()
        again = await ask(gateway, headers, **body)

    assert terminal(events_of(again.body)).output_text == "a"
    assert len(backend.plans) == 1


async def test_a_turn_that_runs_here_is_not_taken_over_from_ourselves() -> None:
    store, said, go_on = MemoryStore(), asyncio.Event(), asyncio.Event()

    def talk(_: Plan) -> Script:
        yield TextGrew("a")
        said.set()
        yield go_on
        yield STOP

    backend = ScriptedBackend(talk)
    async with serve_gateway(backend, store=store) as gateway:
        queued = (await ask(gateway, input="x", background=True)).json
        await said.wait()
        running = await store.get(OWNER, queued["id"])
        assert running is not None
        claimed = [[Orphan(OWNER, running, [])], []]
        store.claim_orphans = lambda _: _give(claimed)  # type: ignore[method-assign,assignment]
        assert await gateway.app.engine.recovery.run() == 1
        go_on.set()
        await until(lambda: _is(status_of(gateway, queued["id"]), "completed"))

    assert len(backend.plans) == 1


async def _give(claimed: list[list[Orphan]]) -> list[Orphan]:
    return claimed.pop(0) if claimed else []
