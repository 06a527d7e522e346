"""What Gemini's errors mean, beyond what all servers have in common.

    | error                                        | the caller gets                         |
    |----------------------------------------------|-----------------------------------------|
    | RESOURCE_EXHAUSTED, quota of a day           | 429 insufficient_quota                  |
    | RESOURCE_EXHAUSTED, otherwise                | 429, after `RetryInfo.retryDelay`       |
    | INVALID_ARGUMENT, the key is not valid       | 502 upstream_auth                       |
    | an error of a stream or in a list            | by its `code`, like an HTTP status      |

The rest is `wires.faults`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import BackendError
from antiphon.wires.faults import fault_from_body, fault_from_json

__all__ = ["fault_from_error", "refusal"]

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)s")
_PER_DAY: Final = re.compile(r"per_?day", re.IGNORECASE)
_BAD_KEY: Final = frozenset({"API_KEY_INVALID", "API_KEY_EXPIRED", "API_KEY_SERVICE_BLOCKED"})
_MAX_WAIT: Final = 86_400.0


def refusal(status: int, body: bytes, retry_after: float | None, *, has_key: bool) -> BackendError:
    """Return the error that an answer with this status stands for."""
    details = _details(decode_json(body))
    if status == 400 and any(one.get("reason") in _BAD_KEY for one in details):
        status = 401
    error = fault_from_body(status, body, retry_after, has_key=has_key)
    _specify(error, details)
    return error


def fault_from_error(value: object) -> BackendError:
    """Return the error for an error object in mid-stream, or in an answer with status 200."""
    error = fault_from_json(value)
    _specify(error, _details(value))
    return error


def _specify(error: BackendError, details: list[dict[str, Any]]) -> None:
    """Put the details of a limit into its error.

    A limit of a minute and an empty purse have the same message: only the details differ.
    """
    if error.status == 503:
        error.retry_after = error.retry_after or _delay(details)
    if error.status != 429:
        return
    quotas, delay = list(_quotas(details)), _delay(details)
    if any(_PER_DAY.search(name) for name in quotas):
        error.code = error.type = "insufficient_quota"
        error.retry_after = None
    elif quotas or delay is not None:
        error.code, error.type = "rate_limit_exceeded", "rate_limit_error"
        error.retry_after = delay or error.retry_after


def _details(value: Any) -> list[dict[str, Any]]:  # Any: JSON of a server
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error") if isinstance(value, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    return [one for one in (details if isinstance(details, list) else ()) if isinstance(one, dict)]


def _delay(details: list[dict[str, Any]]) -> float | None:
    for one in details:
        found = _DURATION.fullmatch(str(one.get("retryDelay")))
        if found is not None:
            return min(float(found[1]), _MAX_WAIT)
    return None


def _quotas(details: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the names of the quotas that were exceeded."""
    for one in details:
        violations = one.get("violations")
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, dict):
                yield str(violation.get("quotaId") or violation.get("subject") or "")
