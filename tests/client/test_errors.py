"""Errors: what an answer amounts to, in the words of whoever must act on it."""

from __future__ import annotations

import pytest

from antiphon.client import errors
from antiphon.client.errors import error_from_answer, error_from_transport
from antiphon.protocol.errors import AntiphonError, BackendError


def told(status: int, body: bytes, thread: str | None = None) -> errors.ClientError:
    return error_from_answer(status, body, {}, thread=thread)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"m"}}', "m"),
        (b'{"error":"m"}', "m"),
        (b'{"detail":"m"}', "m"),
        (b'{"message":"m"}', "m"),
        (b"<h1>m</h1>", "<h1>m</h1>"),
        (b"[1]", "[1]"),
        (b'{"error":[]}', '{"error":[]}'),
        (b"", "it gave no reason"),
    ],
)
def test_the_reason_is_found_in_any_shape(body: bytes, message: str) -> None:
    assert str(told(400, body)) == f"the server refused (HTTP 400): {message}"


@pytest.mark.parametrize(
    ("status", "body", "thread", "expected"),
    [
        (400, b'{"error":{"code":"previous_response_not_found"}}', None, errors.ThreadGone),
        (404, b'{"error":{"message":"no previous_response"}}', "resp_1", errors.ThreadGone),
        (404, b'{"error":{"message":"Conversation gone"}}', "conv_1", errors.ThreadGone),
        (404, b'{"error":{"message":"no previous_response"}}', None, errors.ResourceNotFound),
        (404, b'{"error":{"message":"no model m"}}', "resp_1", errors.ResourceNotFound),
        (410, b"", None, errors.ThreadGone),
        (529, b"", None, errors.ServerFailed),
        (400, b'{"error":{"message":"prompt is too long"}}', None, errors.ContextTooLong),
        (429, b'{"error":"insufficient credit"}', None, errors.QuotaExceeded),
    ],
)
def test_an_answer_is_what_it_says_it_is(
    status: int, body: bytes, thread: str | None, expected: type[errors.ClientError]
) -> None:
    assert type(told(status, body, thread)) is expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("upstream_unreachable", errors.ServerUnreachable),
        ("upstream_timeout", errors.TimedOut),
        ("upstream_invalid_response", errors.InvalidAnswer),
        ("upstream_closed", errors.StreamBroken),
        ("something_else", errors.ServerFailed),
    ],
)
def test_the_transport_speaks_of_the_server(code: str, expected: type[errors.ClientError]) -> None:
    error = error_from_transport(BackendError("the upstream fell over", code=code))

    assert type(error) is expected
    assert error.message == "the server fell over"
    assert error.code == code.replace("upstream", "server")


def test_the_tree_in_the_docstring_is_the_tree_there_is() -> None:
    tree = errors.__doc__ or ""
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.ClientError)
    ]
    assert classes
    missing = [cls.__name__ for cls in classes if f"── {cls.__name__} " not in tree]
    assert missing == []
    assert issubclass(errors.ClientError, AntiphonError)


def test_what_is_wrong_with_a_call_is_a_value_error_and_a_timeout_a_timeout() -> None:
    assert issubclass(errors.BadCall, ValueError)
    assert issubclass(errors.TimedOut, TimeoutError)
