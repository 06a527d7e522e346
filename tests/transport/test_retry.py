"""Retry policy: who gets another try, and when."""

from __future__ import annotations

import pytest

from antiphon.transport.retry import (
    MAX_ATTEMPTS,
    WAIT_BUDGET,
    read_limit_reset,
    read_retry_after,
    retry_delay,
)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 410, 422, 501, 505, 525])
def test_what_stays_wrong_is_not_retried(status: int) -> None:
    assert retry_delay(status, attempt=1, retry_after=None, jitter=0.0) is None


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529])
def test_a_passing_fault_is_retried(status: int) -> None:
    assert retry_delay(status, attempt=1, retry_after=None, jitter=0.0) == 0.5


def test_wait_doubles_with_each_attempt() -> None:
    waits = [retry_delay(503, attempt, None, jitter=0.0) for attempt in range(1, MAX_ATTEMPTS + 1)]
    assert waits == [0.5, 1.0, None]


def test_jitter_stretches_the_wait_up_to_twice() -> None:
    assert retry_delay(503, 1, None, jitter=1.0) == 1.0


def test_the_servers_own_wish_wins() -> None:
    assert retry_delay(429, 1, 7.0, jitter=0.5) == 7.0


def test_a_wish_beyond_the_budget_is_not_waited_for() -> None:
    assert retry_delay(429, 1, WAIT_BUDGET + 1, jitter=0.0) is None
    assert retry_delay(429, 2, 2.0, jitter=0.0, budget=1.5) is None


def test_our_own_back_off_keeps_to_the_budget_too() -> None:
    assert retry_delay(503, 2, None, jitter=0.0, budget=0.9) is None


@pytest.mark.parametrize(
    "code", ["insufficient_quota", "upstream_timeout", "upstream_invalid_response"]
)
def test_what_would_fail_again_fails_at_once(code: str) -> None:
    assert retry_delay(429, 1, None, 0.0, code=code) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:10 GMT"}, 6.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers, now=4.0) == seconds


def _limit(name: str, reset: str, remaining: str | None = None) -> dict[str, str]:
    left = {} if remaining is None else {f"anthropic-ratelimit-{name}-remaining": remaining}
    return {f"anthropic-ratelimit-{name}-reset": reset, **left}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"anthropic-ratelimit-requests-remaining": "0"}, None),
        (_limit("requests", "soon", "0"), None),
        (_limit("requests", "1970-01-01T00:00:10Z", "0"), 6.0),
        (_limit("requests", "1970-01-01T00:00:10", "0"), 6.0),
        (_limit("requests", "1970-01-01T00:00:01Z", "0"), 0.0),
        (
            _limit("requests", "1970-01-01T00:00:10Z", "5")
            | _limit("input-tokens", "1970-01-01T00:00:30Z", "0")
            | _limit("tokens", "1970-01-01T00:00:20Z", "0"),
            26.0,
        ),
        (
            _limit("requests", "1970-01-01T00:00:10Z")
            | _limit("tokens", "1970-01-01T00:00:20Z", "7"),
            6.0,
        ),
    ],
)
def test_a_limit_that_is_used_up_is_waited_for(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert read_limit_reset(headers, now=4.0) == seconds
