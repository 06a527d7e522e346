"""What does an error of an editor mean, and which error does the caller get?

    | code of the editor                        | the caller gets                            |
    |-------------------------------------------|--------------------------------------------|
    | context_too_long                          | 400 context_length_exceeded                |
    | bad_request, unsupported_content          | 400 invalid_request                        |
    | line_too_long                             | 413 request_too_large                      |
    | blocked                                   | 400 content_policy                         |
    | not_found                                 | 404 model_not_found                        |
    | auth_failed, no_consent                   | 502 upstream_auth                          |
    | rate_limited                              | 429 rate_limit_exceeded, with its delay    |
    | quota_exceeded                            | 429 insufficient_quota                     |
    | unreachable                               | 502 upstream_unreachable                   |
    | timed_out                                 | 504 upstream_timeout                       |
    | stream_cut                                | 502 upstream_closed                        |
    | too_many_requests                         | 503 upstream_overloaded                    |
    | invalid_answer, damaged_text, …           | 502 upstream_invalid_response              |
    | invalid_message, unknown_type, …          | 502 upstream_refused                       |
    | server_failed, response_failed, internal  | 502 upstream_error                         |
    | cancelled                                 | 502 upstream_error                         |

The caller did nothing wrong if the user has not given consent: that is for the user of the editor
to change, and another provider may answer until then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from antiphon.protocol.errors import BackendError, ContextOverflow
from antiphon.wires.host.messages import ErrorCode, Fault

__all__ = ["fault_of", "invalid_answer"]

_MAX_MESSAGE: Final = 2000
_CALLER: Final = "invalid_request_error"


class _Kind(NamedTuple):
    code: str
    status: int = 502
    type: str | None = None
    param: str | None = None


_INVALID: Final = _Kind("upstream_invalid_response")
_REFUSED: Final = _Kind("upstream_refused")
_FAILED: Final = _Kind("upstream_error")
_KINDS: Final[dict[ErrorCode, _Kind]] = {
    "invalid_message": _REFUSED,
    "unknown_type": _REFUSED,
    "duplicate_id": _REFUSED,
    "unsupported_version": _REFUSED,
    "not_greeted": _REFUSED,
    "line_too_long": _Kind("request_too_large", 413, _CALLER, "input"),
    "too_many_requests": _Kind("upstream_overloaded", 503),
    "bad_request": _Kind("invalid_request", 400, _CALLER),
    "unsupported_content": _Kind("invalid_request", 400, _CALLER, "input"),
    "auth_failed": _Kind("upstream_auth"),
    "no_consent": _Kind("upstream_auth"),
    "not_found": _Kind("model_not_found", 404, _CALLER, "model"),
    "rate_limited": _Kind("rate_limit_exceeded", 429, "rate_limit_error"),
    "quota_exceeded": _Kind("insufficient_quota", 429, "insufficient_quota"),
    "unreachable": _Kind("upstream_unreachable"),
    "timed_out": _Kind("upstream_timeout", 504),
    "stream_cut": _Kind("upstream_closed"),
    "blocked": _Kind("content_policy", 400, _CALLER, "input"),
    "invalid_answer": _INVALID,
    "malformed_call": _INVALID,
    "changed_call": _INVALID,
    "damaged_text": _INVALID,
    "server_failed": _FAILED,
    "response_failed": _FAILED,
    "cancelled": _FAILED,
    "internal": _FAILED,
}


def fault_of(fault: Fault) -> BackendError:
    """Return the error that the caller gets; its message ends with what the user can do."""
    said = fault.message or f"the editor reports {fault.code}"
    message = f"the editor: {said.rstrip('.')}"
    message += f"; {fault.action.rstrip('.')}" if fault.action else ""
    if fault.code == "context_too_long":
        return ContextOverflow(message[:_MAX_MESSAGE])
    kind = _KINDS[fault.code]
    error = BackendError(
        message[:_MAX_MESSAGE],
        code=kind.code,
        status=kind.status,
        type=kind.type,
        param=kind.param,
        retry_after=fault.retry_after,
    )
    error.is_slip = fault.code == "malformed_call"
    error.upstream_status = fault.status or None
    return error


def invalid_answer(why: str) -> BackendError:
    """Return the error for an answer that cannot be understood."""
    return BackendError(
        f"the editor's answer cannot be used: {why}", code="upstream_invalid_response"
    )
