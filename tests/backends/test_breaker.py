"""The circuit breaker: when it opens, how long, and what closes it."""

from __future__ import annotations

import pytest

from antiphon.backends.breaker import FAILURES_TO_OPEN, Breaker
from antiphon.backends.chat import ChatBackend
from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.testing import Script, ScriptedUpstream, Status, serve_gateway
from tests.asking import ask

DOWN = BackendError("it is down", code="upstream_unreachable")


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def fail(breaker: Breaker, times: int = FAILURES_TO_OPEN, error: BackendError = DOWN) -> None:
    for _ in range(times):
        breaker.note_failure("a/m", error)


def test_it_opens_after_three_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, FAILURES_TO_OPEN - 1)
    assert breaker.may_try("a/m")
    fail(breaker, 1)
    assert not breaker.may_try("a/m")
    assert breaker.may_try("a/other")


def test_a_success_between_failures_keeps_it_closed(breaker: Breaker) -> None:
    fail(breaker, FAILURES_TO_OPEN - 1)
    breaker.note_success("a/m")
    fail(breaker, FAILURES_TO_OPEN - 1)
    assert breaker.may_try("a/m")


def test_after_the_deadline_one_request_is_let_through(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += breaker.seconds_left("a/m")
    assert breaker.may_try("a/m")
    assert not breaker.may_try("a/m")
    breaker.note_success("a/m")
    assert breaker.may_try("a/m")


def test_a_failed_trial_doubles_the_wait_up_to_a_minute(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    waits = []
    for _ in range(6):
        waits.append(breaker.seconds_left("a/m"))
        clock.now += waits[-1]
        assert breaker.may_try("a/m")
        fail(breaker, 1)
    assert waits == [5, 10, 20, 40, 60, 60]


@pytest.mark.parametrize("code", ["upstream_unreachable", "upstream_auth"])
def test_an_upstream_may_fail_for_days(breaker: Breaker, clock: Clock, code: str) -> None:
    fail(breaker)
    for _ in range(2000):  # a day and a half, with one trial a minute
        clock.now += 60
        assert breaker.may_try("a/m")
        fail(breaker, 1, BackendError("it is down", code=code))
    clock.now += 60
    assert breaker.may_try("a/m")
    fail(breaker, 1)
    assert breaker.seconds_left("a/m") == 60


def test_a_trial_that_shows_nothing_is_made_again_at_once(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 5
    assert breaker.may_try("a/m")
    breaker.note_failure("a/m", ContextOverflow("the caller's context is too long"))
    assert breaker.may_try("a/m")


def test_a_trial_whose_caller_left_is_made_again(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 5
    assert breaker.may_try("a/m")
    clock.now += 30
    assert breaker.may_try("a/m")


def test_failures_while_open_never_bring_the_deadline_forward(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker, 1, BackendError("no", code="upstream_auth"))
    assert breaker.seconds_left("a/m") == 60
    clock.now += 1
    fail(breaker, 10)
    assert breaker.seconds_left("a/m") == 59


@pytest.mark.parametrize(
    "error",
    [
        ContextOverflow("too long"),
        BackendError("bad", code="upstream_refused", status=400),
        BackendError("slow down", code="rate_limit_exceeded", status=429),
        BackendError("wrong call", code="tool_call_invalid"),
    ],
)
def test_what_is_not_the_deployments_failure_does_not_count(
    breaker: Breaker, error: BackendError
) -> None:
    fail(breaker, 10, error)
    assert breaker.may_try("a/m")


def test_only_so_many_deployments_are_remembered(breaker: Breaker) -> None:
    for number in range(5_000):
        breaker.note_failure(f"a/{number}", BackendError("no", code="upstream_auth"))
    assert len(breaker.open_deployments("a")) == 1_000


async def test_an_open_breaker_spares_the_upstream_the_retries() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    down = Script(faults=[Status(500)])
    async with (
        ScriptedUpstream([down] * 10 + [Script(text="up again")]) as upstream,
        serve_gateway(ChatBackend(upstream.base_url, sleep=sleep)) as gateway,
    ):
        for _ in range(FAILURES_TO_OPEN):
            refused = await ask(gateway, model="echo", input="hi")
        assert len(upstream.requests) == 3 * FAILURES_TO_OPEN
        assert "Retry-After" in refused.headers
        waits.clear()

        refused = await ask(gateway, model="echo", input="hi")
        assert (refused.status, waits) == (502, [])
        assert len(upstream.requests) == 3 * FAILURES_TO_OPEN + 1

        answer = await ask(gateway, model="echo", input="hi")
    assert answer.status == 200


@pytest.mark.parametrize(
    ("status", "message", "is_stream"),
    [
        (400, "the context length is exceeded", True),
        (400, "this is wrong", False),
        (404, "no such model", False),
    ],
)
async def test_an_open_breaker_advises_no_wait_for_a_mistake_of_the_caller(
    status: int, message: str, is_stream: bool
) -> None:
    refused = Script(faults=[Status(status, message)])
    async with (
        ScriptedUpstream([Script(faults=[Status(401)]), refused]) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        first = await ask(gateway, model="echo", input="hi")
        assert first.headers["Retry-After"] == "60"
        second = await ask(gateway, model="echo", input="hi", stream=is_stream)
    assert "Retry-After" not in second.headers
    assert b"try again" not in second.body
