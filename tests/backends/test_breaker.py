"""The circuit breaker: when it opens, how long, and what closes it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon.backends.breaker import FAILURES_TO_OPEN, Breaker
from antiphon.backends.chat import ChatBackend
from antiphon.backends.fault_classes import CLASSES, FaultName
from antiphon.testing import Script, ScriptedUpstream, Status, serve_gateway
from tests.asking import ask
from tests.routing.making import Clock

DOWN = CLASSES["transport"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def test_a_provider_that_is_replaced_starts_with_a_closed_breaker(breaker: Breaker) -> None:
    for name in ("a/m", "ab/m"):
        for _ in range(FAILURES_TO_OPEN):
            breaker.note_failure(name, DOWN)
    breaker.forget("a")
    assert breaker.is_ready("a/m")
    assert not breaker.is_ready("ab/m")


def fail(breaker: Breaker, times: int = FAILURES_TO_OPEN, name: FaultName = "transport") -> None:
    for _ in range(times):
        breaker.note_failure("a/m", CLASSES[name])


def try_it(breaker: Breaker) -> None:
    assert breaker.is_ready("a/m")
    breaker.note_request("a/m")


def test_it_opens_after_three_failures_in_a_row(breaker: Breaker) -> None:
    fail(breaker, FAILURES_TO_OPEN - 1)
    assert breaker.is_ready("a/m")
    fail(breaker, 1)
    assert not breaker.is_ready("a/m")
    assert breaker.is_ready("a/other")


def test_a_success_between_failures_keeps_it_closed(breaker: Breaker) -> None:
    fail(breaker, FAILURES_TO_OPEN - 1)
    breaker.note_success("a/m")
    fail(breaker, FAILURES_TO_OPEN - 1)
    assert breaker.is_ready("a/m")


def test_it_opens_when_half_of_the_requests_fail(breaker: Breaker) -> None:
    for _ in range(4):
        breaker.note_success("a/m")
        fail(breaker, 1)
    assert breaker.is_ready("a/m")
    breaker.note_success("a/m")
    fail(breaker, 1)
    assert not breaker.is_ready("a/m")


def test_less_than_half_does_not_open_it(breaker: Breaker) -> None:
    for _ in range(20):
        breaker.note_success("a/m")
        breaker.note_success("a/m")
        fail(breaker, 1)
    assert breaker.is_ready("a/m")


def test_only_the_last_thirty_seconds_count(breaker: Breaker, clock: Clock) -> None:
    for _ in range(10):
        fail(breaker, 1)
        clock.now += 15.1
    assert breaker.is_ready("a/m")


def test_after_the_deadline_one_request_is_let_through(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += breaker.seconds_left("a/m")
    try_it(breaker)
    assert not breaker.is_ready("a/m")
    breaker.note_answer("a/m")
    assert breaker.is_ready("a/m")


def test_a_failed_trial_doubles_the_wait_up_to_a_minute(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    waits = []
    for _ in range(6):
        waits.append(breaker.seconds_left("a/m"))
        clock.now += waits[-1]
        try_it(breaker)
        fail(breaker, 1)
    assert waits == [5, 10, 20, 40, 60, 60]


def test_an_answer_that_breaks_off_does_not_shorten_the_next_wait(
    breaker: Breaker, clock: Clock
) -> None:
    fail(breaker)
    clock.now += 5
    try_it(breaker)
    breaker.note_answer("a/m")
    fail(breaker)
    assert breaker.seconds_left("a/m") == 10


@pytest.mark.parametrize("name", ["transport", "refused"])
def test_an_upstream_may_fail_for_days(breaker: Breaker, clock: Clock, name: FaultName) -> None:
    fail(breaker)
    for _ in range(2000):  # a day and a half, with one trial a minute
        clock.now += 60
        try_it(breaker)
        fail(breaker, 1, name)
    clock.now += 60
    try_it(breaker)
    fail(breaker, 1)
    assert breaker.seconds_left("a/m") == (60 if name == "transport" else 10)


def test_an_empty_account_is_left_alone_for_longer_each_time(
    breaker: Breaker, clock: Clock
) -> None:
    waits = []
    for _ in range(6):
        fail(breaker, 1, "quota")
        waits.append(breaker.seconds_left("a/m"))
        clock.now += waits[-1]
        try_it(breaker)
    assert waits == [60, 120, 240, 480, 900, 900]


@pytest.mark.parametrize(
    ("name", "retry_after", "seconds"),
    [
        ("busy", 7.0, 7.0),
        ("busy", None, 1.0),
        ("busy", 1e9, 3600.0),
        ("refused", None, 60.0),
        ("no_model", None, 300.0),
        ("quota", 1.0, 60.0),
    ],
)
def test_what_opens_it_at_once_and_for_how_long(
    breaker: Breaker, name: FaultName, retry_after: float | None, seconds: float
) -> None:
    breaker.note_failure("a/m", CLASSES[name], retry_after)
    assert breaker.seconds_left("a/m") == seconds


@pytest.mark.parametrize("name", ["overflow", "caller", "policy", "unusable"])
def test_what_is_not_the_deployments_failure_does_not_count(
    breaker: Breaker, name: FaultName
) -> None:
    fail(breaker, 10, name)
    assert breaker.is_ready("a/m")


def test_a_trial_that_shows_nothing_is_made_again_at_once(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 5
    try_it(breaker)
    fail(breaker, 1, "overflow")
    assert breaker.is_ready("a/m")


def test_a_trial_whose_caller_left_is_made_again(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 5
    try_it(breaker)
    clock.now += 30
    assert breaker.is_ready("a/m")


def test_the_answer_to_a_request_from_before_does_not_close_it(breaker: Breaker) -> None:
    breaker.note_failure("a/m", CLASSES["busy"], 7.0)
    breaker.note_answer("a/m")
    breaker.note_success("a/m")
    assert breaker.seconds_left("a/m") == 7.0


def test_only_so_many_deployments_are_remembered(breaker: Breaker) -> None:
    for number in range(5_000):
        breaker.note_failure(f"a/{number}", CLASSES["refused"])
    assert len(breaker.open_deployments("a")) == 1_000


class BreakerMachine(RuleBasedStateMachine):
    """Requests that begin, answer and fail at any time, against what the header promises."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.breaker = Breaker(self.clock)
        self.trial_since: float | None = None

    @rule(seconds=st.floats(0, 40))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(name=st.sampled_from(list(CLASSES)), after=st.none() | st.floats(0, 100))
    def fail(self, name: FaultName, after: float | None) -> None:
        before = self.breaker.seconds_left("a/m")
        self.breaker.note_failure("a/m", CLASSES[name], after)
        left = self.breaker.seconds_left("a/m")
        assert left >= before, "a deadline moved forward"
        if CLASSES[name].breaker == "none":
            assert left == before
        self.trial_since = None

    @precondition(lambda self: self.breaker.is_ready("a/m"))
    @rule()
    def send(self) -> None:
        self.breaker.note_request("a/m")
        if not self.breaker.is_ready("a/m"):  # it was the trial of a half-open breaker
            since, self.trial_since = self.trial_since, self.clock.now
            assert since is None or self.clock.now >= since + 30, "two trials at once"

    @rule()
    def answer(self) -> None:
        self.breaker.note_answer("a/m")
        self.breaker.note_success("a/m")
        self.trial_since = None

    @invariant()
    def never_open_for_longer_than_allowed(self) -> None:
        assert self.breaker.seconds_left("a/m") <= 900.0 + 1e-6  # a sum of floats is rounded

    @invariant()
    def open_means_not_ready(self) -> None:
        assert not (self.breaker.is_open("a/m") and self.breaker.is_ready("a/m"))


TestBreakerMachine: Any = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=200, deadline=None)


async def test_an_open_breaker_spares_the_upstream_the_retries() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    down = Script(faults=[Status(500)])
    async with (
        ScriptedUpstream([down] * 5 + [Script(text="up again")]) as upstream,
        serve_gateway(ChatBackend(upstream.base_url, sleep=sleep)) as gateway,
    ):
        for _ in range(2):
            refused = await ask(gateway, model="echo", input="hi")
        assert len(upstream.requests) == 4
        assert refused.headers["Retry-After"] == "5"
        waits.clear()

        refused = await ask(gateway, model="echo", input="hi")
        assert (refused.status, waits) == (502, [])
        assert len(upstream.requests) == 5

        answer = await ask(gateway, model="echo", input="hi")
    assert answer.status == 200


@pytest.mark.parametrize(
    ("status", "message", "is_stream"),
    [
        (400, "the context length is exceeded", True),
        (400, "this is wrong", False),
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
