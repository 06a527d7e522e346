"""Webhooks: who is told what, how it is signed, and what happens when nobody listens."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

import pytest
from openai import InvalidWebhookSignatureError, OpenAI

from antiphon.engine.keep.webhooks import EVENTS, Endpoint, Webhooks, is_signing_secret, pause, sign
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.response import Response
from antiphon.store import MemoryStore
from antiphon.store.base import Notice
from antiphon.store.memory.notices import MemoryNotices
from antiphon.transport.http import Limits
from antiphon.transport.secret import Secret
from tests import clock
from tests.transport.raw import Connection, Request, raw_server, reply

OWNER = "ann"
SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(b"o" * 32).decode()
PATIENCE = 60.0


class Clock:
    """The time, which stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = int(time.time())

    def __call__(self) -> int:
        return self.now


class Listener:
    """An endpoint: answers with one status after the other, then with 204."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.heard: asyncio.Queue[Request] = asyncio.Queue()
        self.url = ""

    async def answer(self, request: Request, connection: Connection) -> None:
        status, _, header = (self.answers.pop(0) if self.answers else "204 No Content").partition(
            "|"
        )
        self.heard.put_nowait(request)
        await connection.write(reply(b"", *filter(None, [header]), status=status))

    async def next(self) -> Request:
        return await asyncio.wait_for(self.heard.get(), PATIENCE)


@asynccontextmanager
async def listening(*answers: str) -> AsyncIterator[Listener]:
    listener = Listener(*answers)
    async with raw_server(listener.answer) as server:
        listener.url = f"{server.url}/hooks/token-in-the-path"
        yield listener


class WatchedNotices(MemoryNotices):
    """Notices that tell what became of each, and fail as often as they are told."""

    def __init__(self) -> None:
        super().__init__(lambda: None, 1000)
        self.noted: asyncio.Queue[str] = asyncio.Queue()
        self.failures = {"take": 0, "settle": 0}
        self.bugs = 0

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        self._fail("take")
        if self.bugs:
            self.bugs -= 1
            self.noted.put_nowait("take broke")
            raise KeyError(endpoint)
        return await super().take(endpoint, now, hide_until, limit)

    async def postpone(self, notice_id: str, until: int) -> None:
        await super().postpone(notice_id, until)
        self.noted.put_nowait(f"{notice_id} postponed")

    async def settle(self, notice_id: str) -> None:
        self._fail("settle")
        await super().settle(notice_id)
        self.noted.put_nowait(f"{notice_id} settled")

    async def next(self) -> str:
        return await asyncio.wait_for(self.noted.get(), PATIENCE)

    def _fail(self, what: str) -> None:
        if self.failures[what]:
            self.failures[what] -= 1
            self.noted.put_nowait(f"{what} failed")
            raise StoreUnavailable("the disk is full")


class Desk:
    """A notifier on a memory store, with a clock of its own."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        numbers = count(1)
        self.clock = Clock()
        self.store = MemoryStore()
        self.store.notices = self.notices = WatchedNotices()
        self.webhooks = Webhooks(
            endpoints,
            self.store,
            now=self.clock,
            mint=lambda prefix: f"{prefix}_{next(numbers)}",
            jitter=lambda: 0.0,
            poll_seconds=0.005,
            limits=Limits(connect=10 * PATIENCE, first_byte=PATIENCE),
        )

    async def end(self, response_id: str, status: str = "completed") -> None:
        """Store the end of a background response, with what must be told of it."""
        response = Response(id=response_id, status="in_progress", background=True)
        await self.store.begin(OWNER, response, [])
        response = Response(id=response_id, status=status, background=True)
        notices = self.webhooks.notices_for(OWNER, response)
        await self.store.finish(OWNER, response, entries=notices)

    async def due(self, endpoint: Endpoint, later: int = 0) -> list[Notice]:
        now = self.clock.now + later
        return await self.notices.take(endpoint.name, now, now, 100)


@asynccontextmanager
async def desk(*endpoints: Endpoint) -> AsyncIterator[Desk]:
    made = Desk(endpoints)
    running = asyncio.create_task(made.webhooks.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await made.webhooks.close()


def endpoint(
    url: str, *, secrets: Sequence[str] = (SECRET,), is_inside: bool = True, **more: object
) -> Endpoint:
    found = tuple(map(Secret, secrets))
    return Endpoint(url=url, secrets=found, allow_private=is_inside, **more)  # type: ignore[arg-type]


def unwrapped(request: Request, secret: str = SECRET) -> object:
    with OpenAI(api_key="x", base_url="http://127.0.0.1:9/v1") as client:
        return client.webhooks.unwrap(request.body, request.headers, secret=secret)


@pytest.mark.parametrize("status", ["completed", "failed", "incomplete", "cancelled"])
async def test_the_official_sdk_accepts_the_event_of_each_end(status: str) -> None:
    async with listening() as listener, desk(endpoint(listener.url)) as at:
        await at.end("resp_1", status)
        request = await listener.next()
    event = unwrapped(request)
    assert type(event).__name__ == f"Response{status.title()}WebhookEvent"
    assert json.loads(request.body) == {
        "id": "evt_1",
        "object": "event",
        "type": f"response.{status}",
        "created_at": at.clock.now,
        "data": {"id": "resp_1"},
    }
    assert (request.method, request.path) == ("POST", "/hooks/token-in-the-path")
    assert request.headers["webhook-id"] == "evt_1"
    assert request.headers["content-type"] == "application/json"


async def test_a_changed_body_or_another_secret_is_noticed() -> None:
    async with listening() as listener, desk(endpoint(listener.url)) as at:
        await at.end("resp_1")
        request = await listener.next()
    with pytest.raises(InvalidWebhookSignatureError):
        unwrapped(request, OTHER_SECRET)
    request.body = request.body.replace(b"resp_1", b"resp_2")
    with pytest.raises(InvalidWebhookSignatureError):
        unwrapped(request)


async def test_while_secrets_change_either_of_them_verifies() -> None:
    there = endpoint("", secrets=(SECRET, OTHER_SECRET))
    body = b'{"type":"response.completed"}'
    headers = sign(there.secrets, "evt_1", int(time.time()), body)
    for secret in (SECRET, OTHER_SECRET):
        assert unwrapped(Request("POST", "/", headers, body), secret)


def test_only_background_responses_are_told_of() -> None:
    at = Desk([endpoint("https://a.example/")])
    assert at.webhooks.notices_for(OWNER, Response(id="resp_1", status="completed")) == []


def test_an_endpoint_is_told_only_of_the_events_it_names() -> None:
    failures = endpoint("https://a.example/", events=("response.failed",))
    everything = endpoint("https://b.example/")
    at = Desk([failures, everything])
    ended = {
        kind: at.webhooks.notices_for(
            OWNER, Response(status=kind.partition(".")[2], background=True)
        )
        for kind in EVENTS
        if kind.startswith("response.")
    }
    assert {kind: [notice.endpoint for notice in found] for kind, found in ended.items()} == {
        "response.completed": [everything.name],
        "response.failed": [failures.name, everything.name],
        "response.incomplete": [everything.name],
        "response.cancelled": [everything.name],
    }


async def test_what_was_delivered_is_settled() -> None:
    async with listening("200 OK") as listener:
        there = endpoint(listener.url)
        async with desk(there) as at:
            await at.end("resp_1")
            await listener.next()
            assert await at.notices.next() == "evt_1 settled"
    assert listener.heard.empty()


@pytest.mark.parametrize("answer", ["500 Broken", "404 Not Found", "302 Found|Location: /other"])
async def test_any_other_answer_is_tried_again_later_with_the_same_id(
    answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(answer, answer) as listener:
        there = endpoint(listener.url)
        async with desk(there) as at:
            await at.end("resp_1")
            first = await listener.next()
            assert await at.notices.next() == "evt_1 postponed"
            log = caplog.messages[-1]
            assert f"it answered {answer[:3]}; next attempt in 5 s" in log
            at.clock.now += 5
            second = await listener.next()
            assert await at.notices.next() == "evt_1 postponed"
            log = caplog.messages[-1]
            assert "next attempt in 30 s" in log
            at.clock.now += 30
            third = await listener.next()
            assert await at.notices.next() == "evt_1 settled"
    assert first.body == second.body == third.body
    stamps = [int(request.headers["webhook-timestamp"]) for request in (first, second, third)]
    assert [stamp - stamps[0] for stamp in stamps] == [0, 5, 35]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    assert unwrapped(third)


async def test_an_endpoint_that_is_gone_is_given_up_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening("410 Gone") as listener:
        there = endpoint(listener.url)
        async with desk(there) as at:
            await at.end("resp_1")
            await listener.next()
            assert await at.notices.next() == "evt_1 settled"
    assert "it is given up" in caplog.text


async def test_after_three_days_a_notice_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async with listening("500 Broken", "500 Broken") as listener:
        there = endpoint(listener.url)
        async with desk(there) as at:
            await at.end("resp_1")
            assert await at.notices.next() == "evt_1 postponed"
            at.clock.now += 3 * 86_400
            assert await at.notices.next() == "evt_1 settled"
    assert caplog.messages[-1].endswith("(attempt 2): it answered 500; it is given up")


async def test_the_log_holds_neither_secret_nor_path(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "antiphon")
    async with listening("500 Broken") as listener:
        there = endpoint(listener.url)
        async with desk(there) as at:
            await at.end("resp_1")
            assert await at.notices.next() == "evt_1 postponed"
            at.clock.now += 5
            assert await at.notices.next() == "evt_1 settled"
    text = " ".join(record.getMessage() for record in caplog.records if "antiphon" in record.name)
    assert "was delivered to http://127.0.0.1:" in text
    assert "token-in-the-path" not in text
    assert SECRET not in repr(there)
    assert SECRET not in text


async def test_an_endpoint_inside_is_told_only_if_that_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening() as listener, desk(endpoint(listener.url, is_inside=False)) as at:
        await at.end("resp_1")
        assert await at.notices.next() == "evt_1 postponed"
        log = caplog.messages[-1]
    assert "the address is not a public one; next attempt in 5 s" in log
    assert listener.heard.empty()


async def test_a_silent_endpoint_holds_up_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def say_nothing(_: Request, connection: Connection) -> None:
        asked.set()
        await connection.until_closed()

    async with (
        listening() as listener,
        raw_server(say_nothing) as silent,
        desk(endpoint(silent.url), endpoint(listener.url)) as at,
    ):
        for number in range(40):
            await at.end(f"resp_{number}")
        told = [json.loads((await listener.next()).body)["data"]["id"] for _ in range(40)]
        assert sorted(told) == sorted(f"resp_{number}" for number in range(40))
        await asyncio.wait_for(asked.wait(), PATIENCE)
        clock.skip(PATIENCE)
        while not (await at.notices.next()).endswith("postponed"):
            pass
    assert "did not answer in time" in caplog.text


async def test_what_was_cut_off_goes_out_again_when_it_is_hidden_no_more() -> None:
    stuck = asyncio.Event()

    async def hang(_: Request, connection: Connection) -> None:
        stuck.set()
        await connection.until_closed()

    async with raw_server(hang) as silent:
        there = endpoint(silent.url)
        async with desk(there) as at:
            await at.end("resp_1")
            await stuck.wait()
    assert await at.due(there) == []
    (again,) = await at.due(there, later=60)
    assert (again.id, again.attempts) == ("evt_1", 2)


async def test_a_store_that_is_away_for_a_while_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening() as listener, desk(endpoint(listener.url)) as at:
        at.notices.failures |= {"take": 1, "settle": 1}
        assert await at.notices.next() == "take failed"
        await at.end("resp_1")
        await listener.next()
        assert await at.notices.next() == "settle failed"
        at.clock.now += 60
        again = await listener.next()
        assert await at.notices.next() == "evt_1 settled"
    assert again.headers["webhook-id"] == "evt_1"
    assert "webhooks have to wait: the disk is full" in caplog.text
    assert "what became of the webhook evt_1 cannot be noted" in caplog.text


async def test_a_bug_of_ours_does_not_end_the_deliveries(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as listener, desk(endpoint(listener.url)) as at:
        at.notices.bugs = 1
        assert await at.notices.next() == "take broke"
        await at.end("resp_1")
        assert await at.notices.next() == "evt_1 settled"
    assert "delivering webhooks broke" in caplog.text


async def test_endpoints_can_be_replaced_while_notices_are_delivered() -> None:
    async with listening() as first, listening() as second, desk() as at:
        at.webhooks.use([endpoint(first.url)])
        await at.end("resp_1")
        assert json.loads((await first.next()).body)["data"] == {"id": "resp_1"}
        at.webhooks.use([endpoint(second.url)])
        await at.end("resp_2")
        assert json.loads((await second.next()).body)["data"] == {"id": "resp_2"}


def test_pauses_grow_and_then_stay() -> None:
    assert [pause(attempts, None, 0.0) for attempts in range(9)] == [
        5, 5, 30, 120, 600, 3600, 21_600, 21_600, 21_600,
    ]  # fmt: skip


def test_jitter_spreads_a_pause_by_a_fifth() -> None:
    assert [pause(5, None, jitter) for jitter in (0.0, 0.5, 1.0)] == [3600, 3960, 4320]


def test_an_endpoint_may_ask_for_more_time_but_not_for_ever() -> None:
    assert [pause(1, asked, 0.0) for asked in (1.0, 90.0, 1e12)] == [5, 90, 21_600]


async def test_a_wish_in_the_answer_is_heeded(caplog: pytest.LogCaptureFixture) -> None:
    answer = "429 Slow down|Retry-After: 77"
    async with listening(answer) as listener, desk(endpoint(listener.url)) as at:
        await at.end("resp_1")
        assert await at.notices.next() == "evt_1 postponed"
    assert "next attempt in 77 s" in caplog.text


@pytest.mark.parametrize(
    "text",
    ["", "whsec_", "whsec_!", "k" * 44, SECRET[:-1], SECRET.removeprefix("whsec_"), "whsec_a2tr"],
)
def test_what_is_no_signing_secret_is_told_apart(text: str) -> None:
    assert is_signing_secret(SECRET)
    assert not is_signing_secret(text)


def test_an_endpoint_keeps_its_name_while_its_secrets_change() -> None:
    there = endpoint("https://a.example/x")
    assert there.name == endpoint("https://a.example/x", secrets=(OTHER_SECRET,)).name
    assert there.name != endpoint("https://a.example/y").name
