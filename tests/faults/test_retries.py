"""Who gets another attempt from the only deployment, before its first word."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.testing import Cut, ErrorChunk, Fault, Reset, Script, Status
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, ask_stream, terminal
from tests.faults.house import chat_chunk, frames, open_house, send_events, until
from tests.faults.listening import open_request
from tests.transport.raw import Connection, Request, raw_server

GOOD = Script(text="one two three")


def bad(fault: Fault) -> Script:
    return Script(text="one two three", faults=[fault])


both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@both_ways
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
async def test_a_fault_that_passes_is_never_seen(status: int, stream: bool) -> None:
    async with open_house([bad(Status(status)), GOOD]) as house:
        answer = await ask(house.gateway, stream=stream)

    assert answer.status == 200
    assert answer.body.count(b"three") == (5 if stream else 1)  # its delta and four done events
    assert len(house.upstream.requests) == 2
    assert house.waits == [0.5]


@both_ways
@pytest.mark.parametrize(
    ("fault", "status", "code", "attempts"),
    [
        (Status(429, headers={"Retry-After": "7"}), 429, "rate_limit_exceeded", 3),
        (Status(503, headers={"Retry-After": "7"}), 503, "upstream_overloaded", 2),
        (Status(500), 502, "upstream_error", 2),
        (Reset(), 502, "upstream_closed", 1),
        (Cut(), 502, "upstream_closed", 1),
    ],
    ids=["429", "503", "500", "reset", "cut"],
)
async def test_how_often_a_deployment_without_others_is_asked(
    fault: Fault, status: int, code: str, attempts: int, stream: bool
) -> None:
    async with open_house(bad(fault)) as house:
        answer = await ask(house.gateway, stream=stream)

    assert (answer.status, answer.error["code"]) == (status, code)
    assert len(house.upstream.requests) == attempts


async def test_retry_after_is_obeyed_and_passed_on() -> None:
    busy = Status(429, headers={"Retry-After": "7"})
    async with open_house(bad(busy)) as house:
        answer = await ask(house.gateway)

    assert house.waits == [7.0, 7.0]
    assert answer.headers["Retry-After"] == "7"


async def test_a_wait_over_the_budget_is_not_made_but_passed_on() -> None:
    busy = Status(429, headers={"Retry-After": "3600"})
    async with open_house(bad(busy)) as house:
        answer = await ask(house.gateway, stream=True)

    assert (answer.status, answer.headers["Retry-After"]) == (429, "3600")
    assert house.waits == []
    assert len(house.upstream.requests) == 1


@both_ways
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Status(429, error_code="insufficient_quota"), 429, "insufficient_quota"),
        (Status(402), 429, "insufficient_quota"),
        (Status(401), 502, "upstream_auth"),
        (Status(400), 400, "upstream_refused"),
        (Status(404), 502, "upstream_refused"),
    ],
    ids=["no quota", "no money", "no key", "refused", "no path"],
)
async def test_what_would_fail_again_fails_at_once(
    fault: Fault, status: int, code: str, stream: bool
) -> None:
    async with open_house(bad(fault)) as house:
        answer = await ask(house.gateway, stream=stream)

    assert (answer.status, answer.error["code"]) == (status, code)
    assert len(house.upstream.requests) == 1


@pytest.mark.parametrize("fault", [Reset(2), Cut(2), ErrorChunk(2)], ids=["reset", "cut", "error"])
async def test_after_the_first_word_there_is_no_other_attempt(fault: Fault) -> None:
    async with open_house([bad(fault), GOOD]) as house:
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("failed", "one")
    assert len(house.upstream.requests) == 1
    assert house.waits == []


@pytest.mark.parametrize("fault", [Status(500), ErrorChunk(1)], ids=["status", "error"])
async def test_an_attempt_that_said_nothing_leaves_no_trace_in_the_next(fault: Fault) -> None:
    async with open_house([bad(fault), GOOD]) as house:
        response = terminal(await ask_stream(house.gateway))

    assert (response.status, response.output_text) == ("completed", "one two three")
    assert len(response.output) == 1


async def test_each_attempt_asks_the_same() -> None:
    async with open_house([bad(Status(500)), GOOD]) as house:
        await ask(house.gateway, instructions="be brief", temperature=0.5)

    first, *others = [received.body for received in house.upstream.requests]
    assert others == [first]


async def test_a_caller_who_leaves_between_two_attempts_stops_them() -> None:
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with open_house([bad(Status(500)), GOOD], between=wait) as house:
        _, writer = await open_request(house.gateway.address, {"input": "x"})
        await waiting.wait()
        writer.transport.abort()
        await until(lambda: house.gateway.app.metrics.turns == 0)

    assert len(house.upstream.requests) == 1


async def test_one_callers_retries_do_not_hold_up_another() -> None:
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await go_on.wait()

    async with open_house([bad(Status(500)), GOOD, GOOD], between=wait) as house:
        first = asyncio.create_task(ask(house.gateway))
        await waiting.wait()
        other = terminal(await ask_stream(house.gateway))
        go_on.set()
        answer = await first

    assert other.output_text == "one two three"
    assert answer.status == 200


async def test_an_idle_connection_that_the_upstream_closed_costs_the_caller_nothing() -> None:
    """A healthy upstream: each connection answers once, and the next request finds it closing."""
    answered: set[asyncio.StreamWriter] = set()
    waits: list[float] = []

    async def serve(_: Request, connection: Connection) -> None:
        if connection.writer in answered:
            raise ConnectionError  # it hangs up
        answered.add(connection.writer)
        await send_events(frames(chat_chunk({"content": "hi"}, "stop")))(connection)

    async def note(seconds: float) -> None:
        waits.append(seconds)

    async with raw_server(serve) as server:
        backend = ChatBackend(f"{server.url}/v1", sleep=note)
        async with serve_gateway(backend) as gateway:
            answers = [await ask(gateway, model="echo", stream=True) for _ in range(5)]

    assert [answer.status for answer in answers] == [200] * 5
    assert len(server.requests) > len(answers), "no connection was stale"
    assert waits == []
