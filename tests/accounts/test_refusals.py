"""How refusals and limits are worded."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.accounts.refusals import describe_refusal, limit_headers, refusal_of, reset_text
from antiphon.models.prices import NANO
from antiphon.store.base.ledger import LimitState, Refused


def refused(**fields: Any) -> Refused:
    known: dict[str, Any] = {"by": "budget", "scope": "project", "scope_id": "acme", "id": "bud_1"}
    return Refused(**{**known, "limit": 10 * NANO, "used": 10 * NANO, "period": "month", **fields})


def test_a_budget_is_named_with_its_limit_and_what_is_used() -> None:
    said = describe_refusal(refused())
    assert said == "budget bud_1 of project acme: 10.00 USD per month, 10.00 used"


def test_a_budget_with_a_rest_explains_why_it_refuses() -> None:
    said = describe_refusal(refused(used=9 * NANO))
    assert said.endswith("9.00 used; this request may need more than the rest")


def test_what_a_caller_named_itself_stands_without_its_project() -> None:
    said = describe_refusal(refused(scope="run", scope_id="acme/job/1", period="total"))
    assert said == "budget bud_1 of run job/1: 10.00 USD, 10.00 used"


def test_what_others_have_used_is_not_shown() -> None:
    said = describe_refusal(refused(scope="organization", scope_id="", used=7 * NANO))
    assert "7" not in said


@pytest.mark.parametrize(
    ("by", "retry_after", "code", "waits"),
    [
        ("budget", None, "insufficient_quota", False),
        ("unpriced", None, "insufficient_quota", False),
        ("too_large", None, "rate_limit_exceeded", False),
        ("requests", 0.25, "rate_limit_exceeded", True),
        ("tokens", 12.0, "rate_limit_exceeded", True),
        ("concurrent", None, "rate_limit_exceeded", True),
    ],
)
def test_a_retry_is_advised_only_where_it_can_help(
    by: str, retry_after: float | None, code: str, waits: bool
) -> None:
    error = refusal_of(refused(by=by, retry_after=retry_after, unit="tokens", period="minute"))
    assert (error.status, error.code) == (429, code)
    assert (error.retry_after is not None) is waits
    assert ("retry-after-ms" in error.headers) is waits
    assert (error.headers.get("x-should-retry") == "false") is not waits


def test_limits_are_written_as_openai_writes_them() -> None:
    headers = limit_headers(LimitState(60, 59, 0.012), LimitState(1000, -5, 360))
    assert headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "6m0s",
    }


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (1, "1s"), (1.5, "1.5s"), (61, "1m1s"), (3723, "1h2m3s")]
)
def test_times_have_units(seconds: float, text: str) -> None:
    assert reset_text(seconds) == text
