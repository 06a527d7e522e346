"""Which failure is retried, and after how long."""

from __future__ import annotations

import pytest

from antiphon.client import errors
from antiphon.client.sender import Attempts

UNREACHABLE = errors.ServerUnreachable("no")


def refusal(status: int, **facts: float) -> errors.ServerFailed:
    return errors.ServerFailed("no", status=status, **facts)  # type: ignore[arg-type]  # a wait


def test_the_wait_doubles_until_the_last_attempt() -> None:
    attempts = Attempts(3)
    waits = [attempts.wait_after(UNREACHABLE, jitter=0.0) for _ in range(3)]
    assert (waits, attempts.failed) == ([0.5, 1.0, None], 3)


@pytest.mark.parametrize(
    "error",
    [
        errors.TimedOut("slow"),
        errors.InvalidAnswer("what", status=503),
        errors.QuotaExceeded("spent", status=429),
        errors.ValidationFailed("bad", status=400),
    ],
)
def test_what_another_attempt_does_not_help_is_given_up(error: errors.ClientError) -> None:
    assert Attempts(3).wait_after(error, jitter=0.0) is None


@pytest.mark.parametrize(("wish", "wait"), [(True, 0.5), (False, None)])
def test_the_server_has_the_last_word_about_a_retry(wish: bool, wait: float | None) -> None:
    error = refusal(418 if wish else 503)
    error.should_retry = wish
    assert Attempts(3).wait_after(error, jitter=0.0) == wait


def test_all_waits_together_stay_within_the_budget() -> None:
    attempts = Attempts(10, budget=5.0)
    assert attempts.wait_after(refusal(503, retry_after=3.0), jitter=0.0) == 3.0
    assert attempts.wait_after(refusal(503, retry_after=3.0), jitter=0.0) is None


def test_a_success_counts_from_the_beginning() -> None:
    attempts = Attempts(2)
    assert attempts.wait_after(UNREACHABLE, jitter=0.0) == 0.5
    attempts.start_over()
    assert attempts.wait_after(UNREACHABLE, jitter=0.0) == 0.5
    assert attempts.wait_after(UNREACHABLE, jitter=0.0) is None


def test_a_follower_retries_silence_and_waits_no_longer_than_its_limit() -> None:
    attempts = Attempts(9, gives_up_on=(), budget=float("inf"), longest_wait=2.0)
    waits = [attempts.wait_after(errors.TimedOut("slow"), jitter=0.0) for _ in range(4)]
    assert waits == [0.5, 1.0, 2.0, 2.0]
    assert attempts.wait_after(refusal(503, retry_after=60.0), jitter=0.0) == 60.0
