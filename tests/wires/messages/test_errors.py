"""Errors in Anthropic's shape, and the words that make a client compact."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.protocol.errors import (
    AntiphonError,
    BackendError,
    ContextOverflow,
    InvalidRequest,
    NotFound,
    Overloaded,
    Unauthorized,
)
from antiphon.wires.messages.ask import read_ask
from antiphon.wires.messages.door import write_error
from antiphon.wires.messages.errors import overflow_words, status_of


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("no"), "invalid_request_error"),
        (Unauthorized("no"), "authentication_error"),
        (NotFound("no"), "not_found_error"),
        (Overloaded("no"), "overloaded_error"),
        (BackendError("no", status=429, code="rate_limit_exceeded"), "rate_limit_error"),
        (BackendError("no", code="insufficient_quota", status=429), "billing_error"),
        (BackendError("no", code="upstream_timeout", status=504), "timeout_error"),
        (BackendError("no"), "api_error"),
    ],
)
def test_an_error_has_its_type(error: AntiphonError, kind: str) -> None:
    assert msgspec.json.decode(write_error(error, "req_1")) == {
        "type": "error",
        "error": {"type": kind, "message": "no"},
        "request_id": "req_1",
    }


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 "
            "tokens (4000 in the messages, 1000 in the completion).",
            "prompt is too long: 5000 tokens > 4096 maximum",
        ),
        (
            "The input token count (1,200,000) exceeds the maximum number of tokens allowed "
            "(1,048,576).",
            "prompt is too long: 1200000 tokens > 1048576 maximum",
        ),
        (
            "The prompt (length 5000) is longer than the maximum model length of 4096.",
            "prompt is too long: 5000 tokens > 4096 maximum",
        ),
        (
            "Prompt is too long: 210000 tokens > 200000 maximum",
            "Prompt is too long: 210000 tokens > 200000 maximum",
        ),
        ("it does not fit", "prompt is too long: it does not fit"),
    ],
)
def test_an_overflow_has_the_words_that_clients_look_for(message: str, words: str) -> None:
    body = msgspec.json.decode(write_error(ContextOverflow(message), "req_1"))
    assert body["error"] == {"type": "invalid_request_error", "message": words}


@pytest.mark.parametrize(
    ("estimate", "window", "words"),
    [
        (5000, 4096, "prompt is too long: 5000 tokens > 4096 maximum"),
        (4000, 4096, "prompt is too long: it does not fit"),
        (5000, None, "prompt is too long: it does not fit"),
    ],
)
def test_an_estimate_stands_in_only_where_it_agrees(
    estimate: int, window: int | None, words: str
) -> None:
    assert overflow_words(ContextOverflow("it does not fit"), estimate, window) == words


def test_a_busy_server_has_the_status_that_anthropic_has_for_it() -> None:
    assert (status_of(503), status_of(502), status_of(429)) == (529, 502, 429)


def test_a_lost_thread_has_the_code_that_makes_a_client_send_its_history() -> None:
    with pytest.raises(NotFound) as caught:
        read_ask({"messages": [], "thread": {"type": "continue", "previous_message_id": "msg_1"}})

    error = msgspec.json.decode(write_error(caught.value, "req_1"))["error"]
    assert (error["type"], error["details"]) == (
        "not_found_error",
        {"error_code": "thread_not_found"},
    )
