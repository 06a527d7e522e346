"""What Gemini's errors mean for the caller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from antiphon.protocol.errors import ContextOverflow
from antiphon.wires.gemini.faults import fault_from_error, refusal

QUOTA = "You exceeded your current quota, please check your plan and billing details."
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"}


def quota(name: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": name}],
    }


def error(code: int, status: str, message: str = "no", *details: Any) -> bytes:
    fields = {"code": code, "status": status, "message": message, "details": [*details]}
    return json.dumps([{"error": fields}]).encode()


def test_limit_of_a_minute_may_be_asked_again_after_its_delay() -> None:
    body = error(429, "RESOURCE_EXHAUSTED", QUOTA, quota("RequestsPerMinutePerProject"), RETRY)
    fault = refusal(429, body, None, has_key=True)
    assert (fault.code, fault.type, fault.retry_after) == (
        "rate_limit_exceeded",
        "rate_limit_error",
        34.07,
    )


def test_limit_of_a_day_is_an_empty_purse() -> None:
    body = error(
        429, "RESOURCE_EXHAUSTED", "slow", quota("GenerateRequestsPerDayPerProject"), RETRY
    )
    fault = refusal(429, body, 3.0, has_key=True)
    assert (fault.code, fault.type, fault.retry_after) == (
        "insufficient_quota",
        "insufficient_quota",
        None,
    )


def test_limit_without_details_has_the_delay_of_the_header() -> None:
    fault = refusal(429, error(429, "RESOURCE_EXHAUSTED", "slow"), 3.0, has_key=True)
    assert (fault.code, fault.retry_after) == ("rate_limit_exceeded", 3.0)


@pytest.mark.parametrize(
    ("code", "status", "seen", "ours"),
    [
        (503, "UNAVAILABLE", 503, "upstream_overloaded"),
        (500, "INTERNAL", 502, "upstream_error"),
        (504, "DEADLINE_EXCEEDED", 504, "upstream_error"),
        (400, "INVALID_ARGUMENT", 400, "upstream_refused"),
        (400, "FAILED_PRECONDITION", 400, "upstream_refused"),
        (401, "UNAUTHENTICATED", 502, "upstream_auth"),
        (403, "PERMISSION_DENIED", 502, "upstream_auth"),
    ],
)
def test_error_by_status(code: int, status: str, seen: int, ours: str) -> None:
    fault = refusal(code, error(code, status), None, has_key=True)
    assert (fault.status, fault.code) == (seen, ours)
    streamed = fault_from_error(json.loads(error(code, status)))
    assert (streamed.status, streamed.code) == (seen, ours)


def test_model_that_does_not_exist() -> None:
    body = error(404, "NOT_FOUND", "models/gemini-9 is not found for API version v1beta")
    fault = refusal(404, body, None, has_key=True)
    assert (fault.status, fault.code) == (404, "model_not_found")


def test_key_that_is_not_valid_is_the_operators() -> None:
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    body = error(400, "INVALID_ARGUMENT", "API key not valid.", info)
    assert refusal(400, body, None, has_key=True).code == "upstream_auth"


def test_context_that_is_too_long() -> None:
    said = "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."
    assert isinstance(
        refusal(400, error(400, "INVALID_ARGUMENT", said), None, has_key=True), ContextOverflow
    )


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error":7}', b'[{"error":{"details":3}}]']
)
def test_any_body_is_an_error(body: bytes) -> None:
    assert refusal(500, body, None, has_key=True).status == 502
