"""What all doors share: the error of an answer that cannot be given, in OpenAI's shape."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.response import Failure, Response
from antiphon.wires.door import failure_of, openai_error


@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_an_answer_is_no_failure(status: str) -> None:
    assert failure_of(Response(status=status)) is None


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("upstream_closed", 502),
        ("output_format_violated", 502),
        ("rate_limit_exceeded", 429),
        ("server_error", 500),
        ("server_overloaded", 503),
    ],
)
def test_a_failed_response_becomes_an_error_with_a_status(code: str, status: int) -> None:
    error = failure_of(Response(status="failed", error=Failure(code, "it broke")))

    assert error is not None
    assert (error.status, error.code, error.message) == (status, code, "it broke")


def test_a_cancelled_response_is_an_error_too() -> None:
    error = failure_of(Response(status="cancelled"))

    assert error is not None
    assert error.code == "cancelled"


def test_an_error_has_the_four_fields_of_openai() -> None:
    body = msgspec.json.decode(openai_error(InvalidRequest("no", param="input")))

    assert body == {
        "error": {
            "message": "no",
            "type": "invalid_request_error",
            "param": "input",
            "code": "invalid_request",
        }
    }
