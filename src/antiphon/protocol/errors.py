"""What can go wrong.

Errors are raised low and translated once, at the edge (`server/errors.py`).

    AntiphonError
    ├── CallerError           the caller's mistake: a 4xx with type, code and param
    │   ├── InvalidRequest    400: the body or a parameter cannot be used
    │   ├── Unauthorized      401: no key, or one that is not valid
    │   │   └── KeyRevoked    the key was revoked while its turn was running
    │   ├── Forbidden         403: a foreign Host or Origin, or a proxy
    │   ├── NotFound          404: no such thing for this owner
    │   ├── Conflict          409: somebody else is at it
    │   │   ├── ConversationLocked   another turn is writing to the conversation
    │   │   └── ResponseDeleted   the response was deleted while it was being made
    │   ├── BodyTooLarge      413: over a size limit
    │   ├── SlowRequest       408: the request did not arrive in time
    │   ├── LimitReached      429: a budget or a rate limit has no room
    │   └── NotBuilt          501: part of the API this version does not have
    ├── PeerFault             the other side's fault
    │   ├── BackendError      the model's side refused, broke or talked nonsense
    │   │   └── ContextOverflow   the context is longer than the model takes
    │   └── BrokenStream      an event stream that cannot be read further
    └── OurFault              ours: the disk, the load, a bug
        ├── StoreUnavailable  503: nothing was acknowledged, try again
        │   └── TurnLost      the response was deleted, ended or taken over under its writer
        └── Overloaded        503: no room or no time for another turn
            ├── OutOfFiles    503: this process has no file descriptor left
            └── QueueFull     429: the queue of background turns is full

Messages are written for the person who reads them: what is wrong and what to do. They never
hold keys, cookies or bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = [
    "AntiphonError",
    "BackendError",
    "BodyTooLarge",
    "BrokenStream",
    "CallerError",
    "Conflict",
    "ContextOverflow",
    "ConversationLocked",
    "ErrorObject",
    "Forbidden",
    "InvalidRequest",
    "KeyRevoked",
    "LimitReached",
    "NotBuilt",
    "NotFound",
    "OurFault",
    "OutOfFiles",
    "Overloaded",
    "PeerFault",
    "QueueFull",
    "ResponseDeleted",
    "SlowRequest",
    "StoreUnavailable",
    "TurnLost",
    "Unauthorized",
    "invalid",
    "no_conversation",
    "no_response",
]


class AntiphonError(Exception):
    """Anything antiphon raises on purpose. `status`, `type`, `code`, `param` go on the wire."""

    status = 500
    type = "server_error"
    code: str | None = None
    param: str | None = None
    retry_after: float | None = None

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CallerError(AntiphonError):
    """The caller's mistake. Trying again unchanged gives the same answer."""

    status = 400
    type = "invalid_request_error"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.param = param


class InvalidRequest(CallerError):
    """The body or a parameter cannot be used; `param` names it."""

    code = "invalid_request"


class ContextTooLarge(InvalidRequest):
    """The context of a turn is larger than this server assembles. Nothing of it was read."""

    code = "context_too_large"


class Unauthorized(CallerError):
    """No key, or one that is unknown, expired or revoked."""

    status = 401
    code = "invalid_api_key"


class KeyRevoked(Unauthorized):
    """The key was revoked while the turn that it began was running."""

    code = "key_revoked"

    def __init__(self) -> None:
        super().__init__("the API key was revoked while this response was being made")


class Forbidden(CallerError):
    """The request came from a place it must not come from: a page, a proxy, a foreign Host."""

    status = 403
    code = "forbidden"


class StorageForbidden(CallerError):
    """The request needs something to be stored, and nothing may be stored for its caller."""

    status = 403
    code = "storage_forbidden"


class NotFound(CallerError):
    """There is no such thing for this owner. Missing and foreign read alike."""

    status = 404
    code = "not_found"


class Conflict(CallerError):
    """Somebody else is at it; the same request may work in a moment."""

    status = 409
    code = "conflict"


class ConversationLocked(Conflict):
    """Another turn is writing to the conversation: there is one writer at a time."""

    code = "conversation_locked"

    def __init__(self, conversation_id: str) -> None:
        super().__init__(
            f"Another turn is writing to the conversation '{conversation_id}'; "
            "try again when it has ended.",
            param="conversation",
        )


class ResponseDeleted(Conflict):
    """The response was deleted while it was being made."""

    code = "response_deleted"

    def __init__(self) -> None:
        super().__init__("the response was deleted while it was being made; nothing of it is kept")


class BodyTooLarge(CallerError):
    """A size limit was passed."""

    status = 413
    code = "request_too_large"


class SlowRequest(CallerError):
    """The request did not arrive in time."""

    status = 408
    code = "request_timeout"


class LimitReached(CallerError):
    """A budget or a rate limit has no room for the request. No upstream was asked.

    `code` is `insufficient_quota` or `rate_limit_exceeded`. Without `retry_after`, to wait does
    not help.
    """

    status = 429

    def __init__(
        self,
        message: str,
        *,
        code: str,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.type = failure_type(code)
        self.retry_after = retry_after
        self.headers = headers or {}
        """What the headers of the answer state about the limits."""


class NotBuilt(CallerError):
    """Part of the API that this version does not have; nothing was done."""

    status = 501
    code = "not_implemented"


class PeerFault(AntiphonError):
    """The other side of a connection did something we cannot repair."""

    status = 502
    type = "upstream_error"


class ErrorObject(NamedTuple):
    """An error object that an upstream put into its answer, in the upstream's own words."""

    message: str
    type: str | None = None
    code: str | None = None
    param: str | None = None


class BackendError(PeerFault):
    """The model's side refused, broke off or talked nonsense.

    `status` is the HTTP status to answer with if nothing has gone out yet. `code` is one of
    `upstream_unreachable`, `upstream_timeout`, `upstream_closed`, `upstream_invalid_response`,
    `upstream_auth`, `upstream_refused`, `upstream_error`, `upstream_overloaded`,
    `rate_limit_exceeded`, `insufficient_quota`, `model_not_found`, `tool_choice_violated`,
    `tool_call_invalid`, `output_format_violated`, `reader_too_slow`, or the upstream's own.
    """

    code = "upstream_error"
    upstream_status: int | None = None
    """The HTTP status that the upstream answered with, if it refused by one."""
    is_slip: bool = False
    """Whether the model only slipped: asked again, once, it may do better."""
    is_torn: bool = False
    """Whether an answer broke off inside a character, a tag or a call that is written as text.

    What was received of that is reported as text, and nothing can go on with it.
    """
    has_answered: bool = False
    """Whether the upstream had accepted the request, and so may bill what it has done."""
    reported: ErrorObject | None = None
    """The error object in the stream or under the 200 that this error comes from, if any."""
    ended_in_order: bool
    """Whether a stream ended properly, but without the mark that its answer is complete."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int = 502,
        type: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        ended_in_order: bool = False,
    ) -> None:
        super().__init__(message)
        self.ended_in_order = ended_in_order
        self.code = code or self.code
        self.status = status
        self.type = type or self.type
        self.param = param
        self.retry_after = retry_after


class ContextOverflow(BackendError):
    """The context is longer than the model takes; shorter would work."""

    def __init__(self, message: str) -> None:
        super().__init__(
            message,
            code="context_length_exceeded",
            status=400,
            type="invalid_request_error",
            param="input",
        )


# The types of failures whose code is not that of a fault of the upstream.
_FAILURE_TYPES: Final = {
    **dict.fromkeys(
        ("context_length_exceeded", "key_revoked", "model_not_found", "response_deleted"),
        "invalid_request_error",
    ),
    **dict.fromkeys(
        (
            *("cancelled", "server_error", "server_restarted", "server_overloaded"),
            *("store_unavailable", "out_of_file_descriptors"),
        ),
        "server_error",
    ),
    "rate_limit_exceeded": "rate_limit_error",
    "insufficient_quota": "insufficient_quota",
}


def failure_type(code: str | None) -> str:
    """Return the type of the error that a response failed with: its failure has only the code."""
    if code is None:
        return AntiphonError.type
    return _FAILURE_TYPES.get(code, PeerFault.type)


class BrokenStream(PeerFault):
    """A stream of events that cannot be read further; `code` is the reason."""

    def __init__(self, message: str, *, code: str = "stream_broken") -> None:
        super().__init__(message)
        self.code = code


class OurFault(AntiphonError):
    """Ours, not the caller's and not the model's."""


class StoreUnavailable(OurFault):
    """The store cannot be read or written now; nothing was acknowledged."""

    status = 503
    code = "store_unavailable"
    retry_after = 1.0


class TurnLost(StoreUnavailable):
    """The response is not its writer's any more: it was deleted, has ended, or was taken over.

    Whoever runs it must stop: nothing it says from here on is kept.
    """


class Overloaded(OurFault):
    """No room for another turn, or no time: the server is full or going away."""

    status = 503
    code = "server_overloaded"
    retry_after = 1.0


class OutOfFiles(Overloaded):
    """This process has no file descriptor left for a connection."""

    code = "out_of_file_descriptors"

    def __init__(self) -> None:
        super().__init__(
            "this process has no file descriptor left for another connection; raise its limit "
            "(ulimit -n, or LimitNOFILE= of its systemd unit)"
        )


class QueueFull(Overloaded):
    """As many background turns wait as may wait."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    retry_after = 5.0


def invalid(param: str, why: str, code: str = "invalid_value") -> InvalidRequest:
    """Return the error for a parameter. The message is its name and `why`."""
    return InvalidRequest(f"{param} {why}", code=code, param=param)


def no_response(response_id: str) -> NotFound:
    """Return the error for a response that this owner does not have."""
    return NotFound(f"Response with id '{response_id}' not found.", code="response_not_found")


def no_conversation(conversation_id: str, param: str | None = None) -> NotFound:
    """Return the error for a conversation that this owner does not have."""
    return NotFound(
        f"Conversation with id '{conversation_id}' not found.",
        code="conversation_not_found",
        param=param,
    )
