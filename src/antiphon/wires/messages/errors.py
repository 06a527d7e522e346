"""Errors in Anthropic's shape, and the words that clients of the API look for.

A client that reads "prompt is too long" shortens its conversation and asks again; it reads the
numbers too, if there are any. They are those of the upstream, or an estimate against the window of
the model that is known; if neither is there, the upstream's own words stand instead.
"""

from __future__ import annotations

import re
from typing import Any, Final

from antiphon.protocol.errors import AntiphonError

__all__ = [
    "OVERFLOW_CODES",
    "THREAD_LOST",
    "error_body",
    "error_type",
    "overflow_words",
    "status_of",
]

OVERFLOW_CODES: Final = frozenset({"context_length_exceeded", "context_too_large"})
THREAD_LOST: Final = "thread_not_found"
"""The code of a thread that cannot be continued: a client then sends its whole history."""

_OVERLOADED: Final = 529
_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    _OVERLOADED: "overloaded_error",
}
# What an error is called where there is no status: in the middle of a stream.
_BY_CODE: Final = {
    "rate_limit_exceeded": "rate_limit_error",
    "rate_limit_error": "rate_limit_error",
    "insufficient_quota": "billing_error",
    "overloaded_error": "overloaded_error",
    "server_overloaded": "overloaded_error",
    "store_unavailable": "overloaded_error",
    "upstream_overloaded": "overloaded_error",
    "upstream_timeout": "timeout_error",
    "timeout_error": "timeout_error",
    "model_not_found": "not_found_error",
    "invalid_request_error": "invalid_request_error",
}
_TOO_LONG: Final = "prompt is too long"
_NUMBER: Final = re.compile(r"\d[\d,]*")
_LIMIT: Final = re.compile(
    r"(?:maxim\w*|context (?:size|length|window)|\bn_ctx\b|limit)\D{0,60}?(\d[\d,]*)", re.IGNORECASE
)


def status_of(status: int) -> int:
    """Return the HTTP status: Anthropic has one of its own for a server that is too busy."""
    return _OVERLOADED if status == 503 else status


def error_type(*words: str | None, status: int = 0) -> str:
    """Return the type of an error, by the first code that is known, or else by its status."""
    for word in words:
        if word in _BY_CODE:
            return _BY_CODE[word]
    known = _TYPES.get(status)
    if known is not None:
        return known
    return "invalid_request_error" if 400 <= status < 500 else "api_error"


def error_body(kind: str, message: str, request_id: str | None = None) -> dict[str, Any]:
    """Return the error object, as the body of an answer or as the data of an event."""
    body: dict[str, Any] = {"type": "error", "error": {"type": kind, "message": message}}
    return body if request_id is None else {**body, "request_id": request_id}


def overflow_words(
    error: AntiphonError, estimate: int | None = None, window: int | None = None
) -> str:
    """Return how an overflow is reported: "prompt is too long: N tokens > M maximum".

    `estimate` and `window` stand for numbers that the error does not give.
    """
    message = error.message
    if _TOO_LONG in message.lower():
        return message
    limit = _number(_LIMIT.search(message)) or window
    if limit is None:
        return f"{_TOO_LONG}: {message}"
    counts = (_count(found[0]) for found in _NUMBER.finditer(message))
    asked = max((count for count in counts if count > limit), default=estimate or 0)
    if asked <= limit:
        return f"{_TOO_LONG}: {message}"
    return f"{_TOO_LONG}: {asked} tokens > {limit} maximum"


def _number(found: re.Match[str] | None) -> int | None:
    return _count(found[1]) if found else None


def _count(digits: str) -> int:
    return int(digits.replace(",", "")[:18])
