"""A request that is sent again: with a key, or as an SDK's retry. Row by row, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from antiphon.backends.scripted import Script, ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import BackendError, StoreUnavailable
from antiphon.server.api.idempotency import Idempotency
from antiphon.server.auth import new_key
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Claim, Claims
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, events_of, request, terminal

KEY = {"Idempotency-Key": "k-1"}
FIRST = {"x-stainless-retry-count": "0"}
RETRY = {"x-stainless-retry-count": "1"}
STOP = Stopped("stop")
REPLAYED = "x-antiphon-replayed"
STORED = pytest.mark.parametrize("store", [True, False])
STREAMED = pytest.mark.parametrize("stream", [True, False])


def answers(*texts: str) -> ScriptedBackend:
    """Return a model that says one of these texts at each call."""
    return ScriptedBackend([[TextGrew(text), STOP] for text in texts])


def text_in(answer: Answer, stream: bool = False) -> str:
    assert answer.status == 200, answer.body
    if stream:
        return terminal(events_of(answer.body)).output_text
    text: str = answer.json["output"][0]["content"][0]["text"]
    return text


def is_replayed(answer: Answer) -> bool:
    return answer.headers.get(REPLAYED) == "1"


class Held(ScriptedBackend):
    """A model that says "a", waits to be let go, and says "b"; later calls are told at once."""

    def __init__(self, *, is_silent: bool = False) -> None:
        self.began, self.goes_on = asyncio.Event(), asyncio.Event()
        self._is_silent = is_silent
        super().__init__(self._say)

    def _say(self, plan: Plan) -> Script:
        if len(self.plans) > 1:
            yield from (TextGrew("anew"), STOP)
            return
        if not self._is_silent:
            yield TextGrew("a")
        self.began.set()
        yield self.goes_on
        yield from (TextGrew("b"), STOP)


# Keys.


@STORED
@STREAMED
async def test_the_same_key_gets_the_same_answer_and_one_run(store: bool, stream: bool) -> None:
    backend = answers("once", "twice")
    async with serve_gateway(backend) as gateway:
        body = {"store": store, "stream": stream}
        first = await ask(gateway, KEY, **body)
        again = await ask(gateway, KEY, **body)
        third = await ask(gateway, KEY, **body)

    assert len(backend.plans) == 1
    assert text_in(first, stream) == "once"
    assert not is_replayed(first)
    assert is_replayed(again)
    assert is_replayed(third)
    if stream and not store:
        assert terminal(events_of(first.body)) == terminal(events_of(again.body))
    else:
        assert first.body == again.body == third.body


@STORED
async def test_another_key_is_another_request(store: bool) -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        first = await ask(gateway, KEY, store=store)
        other = await ask(gateway, {"Idempotency-Key": "k-2"}, store=store)

    assert (text_in(first), text_in(other)) == ("once", "twice")


@pytest.mark.parametrize("stores", [(True, True), (False, False), (True, False), (False, True)])
async def test_a_key_stands_for_one_body(stores: tuple[bool, bool]) -> None:
    backend = answers("once", "twice")
    async with serve_gateway(backend) as gateway:
        await ask(gateway, KEY, store=stores[0], input="one")
        other = await ask(gateway, KEY, store=stores[1], input="two")

    assert other.status == 422
    assert other.error["code"] == "idempotency_mismatch"
    assert other.error["param"] == "Idempotency-Key"
    assert other.headers["x-should-retry"] == "false"
    assert len(backend.plans) == 1


async def test_a_key_that_another_process_saw_stands_for_one_body() -> None:
    store = MemoryStore()
    async with serve_gateway(answers("once"), store=store) as gateway:
        await ask(gateway, KEY, input="one")
    async with serve_gateway(answers("twice"), store=store) as gateway:
        other = await ask(gateway, KEY, input="two")

    assert other.error["code"] == "idempotency_mismatch"


@STORED
@STREAMED
@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_key_in_flight_is_a_conflict(store: bool, stream: bool, is_silent: bool) -> None:
    backend = Held(is_silent=is_silent)
    async with serve_gateway(backend) as gateway:
        body = {"store": store, "stream": stream}
        running = asyncio.create_task(ask(gateway, KEY, **body))
        await backend.began.wait()
        busy = await ask(gateway, KEY, **body)
        other = await ask(gateway, KEY, input="another", **body)
        backend.goes_on.set()
        first = await running
        again = await ask(gateway, KEY, **body)

    assert (busy.status, busy.error["code"]) == (409, "idempotency_in_flight")
    assert busy.headers["Retry-After"] == "1"
    assert busy.headers["x-should-retry"] == "true"
    assert other.status == 422
    assert text_in(first, stream) == text_in(again, stream) == ("b" if is_silent else "ab")
    assert len(backend.plans) == 1


@STORED
async def test_of_many_at_once_one_runs(store: bool) -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        running = asyncio.create_task(ask(gateway, KEY, store=store))
        await backend.began.wait()
        others = await asyncio.gather(*(ask(gateway, KEY, store=store) for _ in range(20)))
        backend.goes_on.set()
        await running
        later = await asyncio.gather(*(ask(gateway, KEY, store=store) for _ in range(20)))

    assert {answer.status for answer in others} == {409}
    assert {text_in(answer) for answer in later} == {"ab"}
    assert len(backend.plans) == 1


@STORED
async def test_what_fails_before_it_has_begun_leaves_the_key_free(store: bool) -> None:
    backend = ScriptedBackend([[BackendError("busy", status=503)], [TextGrew("once"), STOP]])
    async with serve_gateway(backend) as gateway:
        missing = await ask(gateway, KEY, store=store, previous_response_id="resp_0")
        failed = await ask(gateway, KEY, store=store)
        answer = await ask(gateway, KEY, store=store)

    assert (missing.status, failed.status) == (400, 503)
    assert text_in(answer) == "once"
    assert not is_replayed(answer)


@STORED
@STREAMED
async def test_what_the_model_failed_at_is_answered_the_same(store: bool, stream: bool) -> None:
    failing: Script = [TextGrew("half"), BackendError("broke", code="upstream_closed")]
    backend = ScriptedBackend([failing, [TextGrew("whole"), STOP]])
    async with serve_gateway(backend) as gateway:
        first = await ask(gateway, KEY, store=store, stream=stream)
        again = await ask(gateway, KEY, store=store, stream=stream)

    assert first.status == again.status == 200
    assert is_replayed(again)
    assert len(backend.plans) == 1


@STORED
@STREAMED
async def test_a_client_that_left_may_ask_again(store: bool, stream: bool) -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        await leave(gateway, KEY, backend.began, store=store, stream=stream)
        await backend.stopped.wait()
        answer = await ask_until_free(gateway, KEY, store=store, stream=stream)

    assert text_in(answer, stream) == "anew"
    assert not is_replayed(answer)


async def leave(
    gateway: Gateway, headers: Mapping[str, str], when: asyncio.Event, **body: Any
) -> None:
    """Ask and go away."""
    task = asyncio.create_task(ask(gateway, headers, **body))
    await when.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def ask_until_free(gateway: Gateway, headers: Mapping[str, str], **body: Any) -> Answer:
    """Ask as an SDK does, which tries a 409 again."""
    for _ in range(100):
        answer = await ask(gateway, headers, **body)
        if answer.status != 409:
            return answer
    raise AssertionError("the key never became free")


async def test_a_client_that_left_before_anything_was_said_may_ask_again() -> None:
    backend = Held(is_silent=True)
    async with serve_gateway(backend) as gateway:
        await leave(gateway, KEY, backend.began)
        await backend.stopped.wait()
        answer = await ask_until_free(gateway, KEY)

    assert text_in(answer) == "anew"


async def test_an_answer_that_was_stored_but_never_arrived_is_given_again() -> None:
    class SlowStore(MemoryStore):
        """Takes long to say that a response was stored."""

        stored, goes_on = asyncio.Event(), asyncio.Event()

        async def finish(self, *args: Any, **more: Any) -> None:
            await super().finish(*args, **more)
            self.stored.set()
            await self.goes_on.wait()

    store, backend = SlowStore(), answers("once", "twice")
    async with serve_gateway(backend, store=store) as gateway:
        await leave(gateway, KEY, store.stored)
        store.goes_on.set()
        answer = await ask_until_free(gateway, KEY)

    assert text_in(answer) == "once"
    assert is_replayed(answer)


@pytest.mark.parametrize(
    ("key", "is_good"),
    [
        ("a", True),
        ("a" * 255, True),
        ("a b", True),
        ("", False),
        ("a" * 256, False),
        ("\u200b", False),
    ],
)
async def test_a_key_is_a_short_printable_text(key: str, is_good: bool) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        answer = await ask(gateway, {"Idempotency-Key": key})

    assert answer.status == (200 if is_good else 400)
    if not is_good:
        assert answer.error["param"] == "Idempotency-Key"


async def test_two_keys_at_once_are_refused() -> None:
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        aiohttp.ClientSession() as session,
        session.post(
            f"{gateway.base_url}/responses",
            data=b'{"input":"x"}',
            headers=[
                ("Content-Type", "application/json"),
                ("Idempotency-Key", "a"),
                ("Idempotency-Key", "b"),
            ],
        ) as answer,
    ):
        assert answer.status == 400


@STORED
async def test_the_same_key_of_two_owners_is_two_keys(store: bool) -> None:
    kept = MemoryStore()
    headers = []
    for owner in ("ann", "bob"):
        key, record = new_key(owner, 0)
        await kept.add_key(record)
        headers.append({"Authorization": f"Bearer {key}"})
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(answers("once", "twice"), store=kept, settings=settings) as gateway:
        ann = await ask(gateway, headers[0] | KEY, store=store)
        bob = await ask(gateway, headers[1] | KEY, store=store)
        again = await ask(gateway, headers[1] | KEY, store=store)

    assert (text_in(ann), text_in(bob), text_in(again)) == ("once", "twice", "twice")


async def test_a_key_is_kept_for_a_day() -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        now = gateway.app.engine.now()
        await ask(gateway, KEY)
        gateway.app.engine.now = lambda: now + 86_390
        same = await ask(gateway, KEY)
        gateway.app.engine.now = lambda: now + 86_500
        new = await ask(gateway, KEY)

    assert (text_in(same), text_in(new)) == ("once", "twice")


async def test_a_deleted_response_leaves_the_key_free() -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        first = await ask(gateway, KEY)
        await request(gateway, "DELETE", f"/responses/{first.json['id']}")
        again = await ask(gateway, KEY)

    assert text_in(again) == "twice"


@STREAMED
async def test_a_background_response_is_answered_as_it_stands(stream: bool) -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        first = asyncio.create_task(ask(gateway, KEY, background=True, stream=stream))
        await backend.began.wait()
        again = asyncio.create_task(ask(gateway, KEY, background=True, stream=stream))
        if not stream:
            assert (await first).json["id"] == (await again).json["id"]
        backend.goes_on.set()
        answers = [await first, await again]

    assert len(backend.plans) == 1
    assert is_replayed(answers[1])
    if stream:
        assert answers[0].body == answers[1].body


async def test_a_cancelled_background_response_is_answered_as_cancelled() -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        first = await ask(gateway, KEY, background=True)
        await backend.began.wait()
        await request(gateway, "POST", f"/responses/{first.json['id']}/cancel")
        again = await ask(gateway, KEY, background=True)

    assert (again.json["id"], again.json["status"]) == (first.json["id"], "cancelled")


async def test_a_background_stream_that_is_left_goes_on_under_its_key() -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        await leave(gateway, KEY, backend.began, background=True, stream=True)
        backend.goes_on.set()
        again = await ask(gateway, KEY, background=True, stream=True)

    assert text_in(again, stream=True) == "ab"
    assert len(backend.plans) == 1


async def test_a_request_without_a_key_is_run_each_time() -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        first, second = await ask(gateway), await ask(gateway)

    assert (text_in(first), text_in(second)) == ("once", "twice")


async def test_what_the_gateway_failed_at_is_run_anew() -> None:
    store, backend = MemoryStore(), Held()
    hasty = ServerSettings(limits=ServerLimits(drain_seconds=0))
    async with serve_gateway(backend, store=store, settings=hasty) as gateway:
        running = asyncio.create_task(ask(gateway, KEY))
        await backend.began.wait()
        await gateway.app.drain()
        failed = await running
    async with serve_gateway(answers("anew"), store=store) as gateway:
        answer = await ask(gateway, KEY)

    assert failed.json["error"]["code"] == "server_overloaded"
    assert text_in(answer) == "anew"
    assert not is_replayed(answer)


# Restarts.


@STREAMED
async def test_a_key_outlives_the_process(tmp_path: Path, stream: bool) -> None:
    answered = []
    for text in ("once", "twice"):
        store = SqliteStore(tmp_path / "db")
        async with serve_gateway(answers(text), store=store) as gateway:
            answered.append(await ask(gateway, KEY, stream=stream))
        await store.close()

    assert text_in(answered[0], stream) == "once"
    assert answered[0].body == answered[1].body
    assert is_replayed(answered[1])


async def test_a_claim_of_a_process_that_died_too_early_gives_way(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    assert await store.claims.take("local", "key:k-1", b"", "resp_never", 0) is None
    await store.close()
    store = SqliteStore(tmp_path / "db")
    async with serve_gateway(answers("once"), store=store) as gateway:
        answer = await ask(gateway, KEY)
    await store.close()

    assert text_in(answer) == "once"


async def test_nothing_of_an_unstored_answer_is_written_down(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "db")
    async with serve_gateway(answers("unwritten-answer"), store=store) as gateway:
        headers = {"Idempotency-Key": "unwritten-key"}
        for _ in range(2):
            answer = await ask(gateway, headers, store=False, input="unwritten-question")
            assert text_in(answer) == "unwritten-answer"
        await ask(gateway, RETRY, store=False, input="unwritten-question")
        found = await store.claims.find("local", "key:unwritten-key")
    await store.close()

    assert found is None
    assert b"unwritten" not in await asyncio.to_thread(written_in, tmp_path)


def written_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_a_store_that_cannot_claim_is_told_and_leaves_nothing() -> None:
    store = MemoryStore()
    async with serve_gateway(answers("once"), store=store) as gateway:
        await store.close()
        broken = [await ask(gateway, headers) for headers in (KEY, FIRST, RETRY)]

    assert {(answer.status, answer.error["code"]) for answer in broken} == {
        (503, "store_unavailable")
    }


class OddClaims:
    """The claims of a store, of which some methods are done by others."""

    def __init__(self, kept: Claims, **others: Any) -> None:
        self.__dict__ |= {"_kept": kept, **others}

    def __getattr__(self, name: str) -> Any:  # whatever the kept one has
        return getattr(self._kept, name)


def odd_store(**others: Any) -> MemoryStore:
    store = MemoryStore()
    store.claims = OddClaims(store.claims, **others)  # type: ignore[assignment]
    return store


async def test_a_claim_that_cannot_be_released_hides_no_error() -> None:
    async def release(*args: Any) -> None:
        raise StoreUnavailable("the disk is full")

    backend = ScriptedBackend([[BackendError("busy", status=503)]])
    async with serve_gateway(backend, store=odd_store(release=release)) as gateway:
        failed = await ask(gateway, KEY)

    assert (failed.status, failed.error["message"]) == (503, "busy")


async def test_a_claim_on_what_was_cancelled_gives_way_even_if_it_stayed() -> None:
    plain, tries = MemoryStore().claims, iter((False, True))

    async def release(*args: Any) -> None:
        if not next(tries):
            raise StoreUnavailable("the disk is full")
        await plain.release(*args)

    backend, store = Held(), odd_store(take=plain.take, release=release)
    async with serve_gateway(backend, store=store) as gateway:
        await leave(gateway, KEY, backend.began)
        answer = await ask_until_free(gateway, KEY)

    assert text_in(answer) == "anew"


async def test_a_client_that_leaves_while_it_claims_takes_its_claim_along() -> None:
    plain, taken = MemoryStore().claims, asyncio.Event()

    async def take(*args: Any) -> Claim | None:
        claim = await plain.take(*args)
        if not taken.is_set():
            taken.set()
            await asyncio.Event().wait()
        return claim

    store = odd_store(take=take, release=plain.release)
    async with serve_gateway(answers("once"), store=store) as gateway:
        await leave(gateway, KEY, taken)
        answer = await ask_until_free(gateway, KEY)

    assert text_in(answer) == "once"


async def test_a_key_that_others_keep_taking_is_a_conflict() -> None:
    async def take(owner: str, token: str, digest: bytes, response_id: str, now: int) -> Claim:
        return Claim(digest, "resp_gone", now, is_held=False)

    async with serve_gateway(answers("never"), store=odd_store(take=take)) as gateway:
        busy = await ask(gateway, KEY)

    assert (busy.status, busy.error["code"]) == (409, "idempotency_in_flight")


# Retries without a key.


@STORED
@STREAMED
async def test_a_retry_gets_the_answer_of_the_first_try(store: bool, stream: bool) -> None:
    backend = answers("once", "twice")
    async with serve_gateway(backend) as gateway:
        body = {"store": store, "stream": stream}
        first = await ask(gateway, FIRST, **body)
        retry = await ask(gateway, RETRY, **body)
        third = await ask(gateway, {"x-stainless-retry-count": "2"}, **body)

    assert len(backend.plans) == 1
    assert text_in(first, stream) == text_in(retry, stream) == text_in(third, stream) == "once"
    assert is_replayed(retry)
    assert not is_replayed(first)


@STORED
async def test_equal_requests_that_are_no_retries_are_run_each_time(store: bool) -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        first = await ask(gateway, FIRST, store=store)
        second = await ask(gateway, FIRST, store=store)
        retry = await ask(gateway, RETRY, store=store)

    assert [text_in(answer) for answer in (first, second, retry)] == ["once", "twice", "twice"]


@STORED
async def test_a_retry_of_another_body_is_run(store: bool) -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        await ask(gateway, FIRST, store=store, input="one")
        retry = await ask(gateway, RETRY, store=store, input="two")

    assert text_in(retry) == "twice"


@STORED
@STREAMED
@pytest.mark.parametrize("is_silent", [True, False])
async def test_a_retry_joins_a_run_on_its_way(store: bool, stream: bool, is_silent: bool) -> None:
    backend = Held(is_silent=is_silent)
    quiet = ServerSettings(limits=ServerLimits(heartbeat_seconds=3600))
    async with serve_gateway(backend, settings=quiet) as gateway:
        body = {"store": store, "stream": stream}
        running = asyncio.create_task(ask(gateway, FIRST, **body))
        await backend.began.wait()
        retries = [asyncio.create_task(ask(gateway, RETRY, **body)) for _ in range(3)]
        async with asyncio.timeout(60):
            await until_all_are_in(gateway, 4)
        backend.goes_on.set()
        first, *joined = [await running, *[await retry for retry in retries]]

    assert len(backend.plans) == 1
    assert text_in(first, stream) == ("b" if is_silent else "ab")
    assert {text_in(answer, stream) for answer in joined} == {text_in(first, stream)}
    assert all(is_replayed(answer) for answer in joined)
    if stream and store:
        assert {answer.body for answer in joined} == {first.body}


async def until_all_are_in(gateway: Gateway, count: int) -> None:
    """Wait until the gateway has read so many requests."""
    for _ in range(count * 25):
        await request(gateway, "GET", "/models")  # whoever asked before has been heard by now


@STORED
async def test_a_retry_does_not_wait_for_ever(store: bool) -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        gateway.app.idempotency = Idempotency(gateway.app.engine, join_seconds=0.01)
        running = asyncio.create_task(ask(gateway, FIRST, store=store))
        await backend.began.wait()
        retry = await ask(gateway, RETRY, store=store)
        backend.goes_on.set()
        await running

    assert (retry.status, retry.error["code"]) == (409, "idempotency_in_flight")


@STORED
async def test_a_retry_of_what_was_left_is_run_anew(store: bool) -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        await leave(gateway, FIRST, backend.began, store=store)
        answer = await ask(gateway, RETRY, store=store)

    assert text_in(answer) == "anew"


@STORED
async def test_a_retry_that_waits_for_what_is_left_then_runs(store: bool) -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        first = asyncio.create_task(ask(gateway, FIRST, store=store))
        await backend.began.wait()
        retries = [asyncio.create_task(ask(gateway, RETRY, store=store)) for _ in range(2)]
        await until_all_are_in(gateway, 3)
        first.cancel()
        texts = {text_in(await retry) for retry in retries}

    assert texts == {"anew"}


@STORED
async def test_a_retry_of_what_failed_is_run_anew(store: bool) -> None:
    failing: Script = [TextGrew("half"), BackendError("broke", code="upstream_closed")]
    backend = ScriptedBackend([failing, [TextGrew("whole"), STOP]])
    async with serve_gateway(backend) as gateway:
        first = await ask(gateway, FIRST, store=store)
        retry = await ask(gateway, RETRY, store=store)

    assert first.json["status"] == "failed"
    assert text_in(retry) == "whole"


@STORED
async def test_a_retry_of_what_never_began_is_run(store: bool) -> None:
    backend = ScriptedBackend([[BackendError("busy", status=503)], [TextGrew("once"), STOP]])
    async with serve_gateway(backend) as gateway:
        first = await ask(gateway, FIRST, store=store)
        retry = await ask(gateway, RETRY, store=store)

    assert first.status == 503
    assert text_in(retry) == "once"


async def test_a_retry_follows_a_background_stream() -> None:
    backend = Held()
    async with serve_gateway(backend) as gateway:
        body = {"background": True, "stream": True}
        await leave(gateway, FIRST, backend.began, **body)
        retry = asyncio.create_task(ask(gateway, RETRY, **body))
        backend.goes_on.set()
        answer = await retry

    assert text_in(answer, stream=True) == "ab"
    assert len(backend.plans) == 1


@pytest.mark.parametrize(("store", "seconds"), [(True, 900), (False, 600)])
async def test_a_retry_is_one_only_for_some_minutes(store: bool, seconds: int) -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        now = gateway.app.engine.now()
        gateway.app.engine.now = lambda: now
        await ask(gateway, FIRST, store=store)
        gateway.app.engine.now = lambda: now + seconds - 1
        same = await ask(gateway, RETRY, store=store)
        gateway.app.engine.now = lambda: now + seconds
        new = await ask(gateway, RETRY, store=store)

    assert (text_in(same), text_in(new)) == ("once", "twice")


@pytest.mark.parametrize("count", ["", "x", "-1", "1.5", "9" * 5000])
async def test_a_count_that_is_none_is_no_count(count: str) -> None:
    async with serve_gateway(answers("once", "twice")) as gateway:
        headers = {"x-stainless-retry-count": count}
        first, second = await ask(gateway, headers), await ask(gateway, headers)

    assert (text_in(first), text_in(second)) == ("once", "twice")


async def test_a_large_body_is_the_same_request_too() -> None:
    backend = answers("once", "twice")
    async with serve_gateway(backend) as gateway:
        for _ in range(2):
            await ask(gateway, KEY, input="x" * 300_000)

    assert len(backend.plans) == 1


async def test_the_sdk_retries_and_one_run_answers() -> None:
    """The SDK gives up waiting, tries again, and gets what the first try led to."""
    backend = Held()
    async with (
        serve_gateway(backend) as gateway,
        openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client,
    ):
        first = asyncio.create_task(client.responses.create(model="echo", input="hello"))
        await backend.began.wait()
        retry = asyncio.create_task(
            client.responses.create(model="echo", input="hello", extra_headers=RETRY)
        )
        await until_all_are_in(gateway, 2)
        backend.goes_on.set()
        answered = [await first, await retry]

    assert answered[0].id == answered[1].id
    assert answered[0] == answered[1]
    assert len(backend.plans) == 1
