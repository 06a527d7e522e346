"""How a call to a Responses server can end badly.

    AntiphonError
    └── ClientError                 any of these; `status` is the server's, 0 if none was heard
        ├── BadCall                 the call is wrong; nothing was sent (also a ValueError)
        │   ├── AmbiguousInput      more than one of input, messages and prompt
        │   ├── MissingInput        none of them, or nothing that is new
        │   ├── UnsupportedParameter    the Responses API has no such parameter: `name`
        │   ├── BadTool             a tool breaks a rule: `tool`
        │   └── TooManyTools        over the hard cap: `count`, `size`, and the caps
        ├── ServerRefused           any other 4xx; only RateLimited may pass by itself
        │   ├── ValidationFailed    400, 422: `param` names what
        │   │   └── ContextTooLong  the context is longer than the model takes
        │   ├── AuthFailed          401, 403
        │   ├── ResourceNotFound    404: no such response, model or path
        │   ├── ThreadGone          404, 410, 400: the server lost what we continue from
        │   ├── Conflict            409
        │   └── RateLimited         429: `retry_after` seconds, if the server says
        │       └── QuotaExceeded   429 or 402 for lack of money: never tried again
        ├── ServerFailed            5xx
        ├── ServerUnreachable       no connection
        ├── TimedOut                silent for too long (also a TimeoutError); never a cancel
        ├── InvalidAnswer           what came back is no answer of a Responses server
        └── StreamBroken            no terminal event: `partial` holds what arrived

Whether something is worth another try is decided in `transport.retry`, before the first event
only. Messages never hold keys or what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.chat.faults import fault_from_body
from antiphon.protocol.errors import AntiphonError, BackendError
from antiphon.protocol.response import Response

__all__ = [
    "AmbiguousInput",
    "AuthFailed",
    "BadCall",
    "BadTool",
    "ClientError",
    "Conflict",
    "ContextTooLong",
    "InvalidAnswer",
    "MissingInput",
    "QuotaExceeded",
    "RateLimited",
    "ResourceNotFound",
    "ServerFailed",
    "ServerRefused",
    "ServerUnreachable",
    "StreamBroken",
    "ThreadGone",
    "TimedOut",
    "TooManyTools",
    "UnsupportedParameter",
    "ValidationFailed",
    "error_from_answer",
    "error_from_transport",
]

_MAX_SHOWN: Final = 500
_MAX_MESSAGE: Final = 2000
_THREAD_WORDS: Final = re.compile(r"previous[_ ]response|conversation", re.IGNORECASE)
_SHOULD_RETRY: Final = {"true": True, "false": False}
_THREAD_CODES: Final = frozenset({"previous_response_not_found", "conversation_not_found"})


class ClientError(AntiphonError):
    """A call that did not end well. `request_id` is what to quote to the server's operator.

    `partial` holds what a stream had told before it broke, and `should_retry` what the server
    itself says about another try; both are None most of the time.
    """

    status = 0
    type = "client_error"
    partial: Response | None = None
    should_retry: bool | None = None

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = self.status if status is None else status
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.request_id = request_id


class BadCall(ClientError, ValueError):
    """The call is wrong; nothing was sent."""


class AmbiguousInput(BadCall):
    """More than one of input, messages and prompt was given."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"give one of input, messages and prompt, not {' and '.join(names)}")
        self.names = names


class MissingInput(BadCall):
    """There is nothing to answer."""


class UnsupportedParameter(BadCall):
    """The Responses API has no such parameter."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} is not a parameter of the Responses API: {why}", param=name)
        self.name = name


class BadTool(BadCall):
    """A tool's name, description or schema breaks a rule."""

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(f"tool {tool!r}: {why}", param="tools")
        self.tool = tool


class TooManyTools(BadCall):
    """The tools are over a hard cap, in number or in bytes of JSON."""

    def __init__(self, *, count: int, size: int, max_count: int, max_size: int) -> None:
        super().__init__(
            f"{count} tools of {size} bytes of JSON; at most {max_count} tools and {max_size} "
            "bytes are allowed (ToolLimits raises the caps)",
            param="tools",
        )
        self.count = count
        self.size = size
        self.max_count = max_count
        self.max_size = max_size


class ServerRefused(ClientError):
    """The server said no. Only RateLimited may pass by itself."""


class ValidationFailed(ServerRefused):
    """The request cannot be used; `param` names what, if the server says."""


class ContextTooLong(ValidationFailed):
    """The context is longer than the model takes; a shorter one would work."""


class AuthFailed(ServerRefused):
    """No key, a wrong one, or one that may not do this."""


class ResourceNotFound(ServerRefused):
    """There is no such response, model or path."""


class ThreadGone(ServerRefused):
    """The server no longer knows what we continue from.

    The conversation cache forgets the thread. Where the whole history is at hand it is sent
    once, and nobody sees this error; otherwise send the full history yourself.
    """

    thread: str | None = None


class Conflict(ServerRefused):
    """Somebody else is at it: the same conversation, or the same idempotency key."""


class RateLimited(ServerRefused):
    """Too many requests; `retry_after` says how long to wait, if the server does."""


class QuotaExceeded(RateLimited):
    """No money left. Waiting does not help, so nobody tries again."""


class ServerFailed(ClientError):
    """The server broke (5xx)."""


class ServerUnreachable(ClientError):
    """Nobody answers at the address."""


class TimedOut(ClientError, TimeoutError):
    """The server was silent for too long. This is no cancel: nobody asked to stop."""


class InvalidAnswer(ClientError):
    """What came back is no answer of a Responses server; check the base URL."""


class StreamBroken(ClientError):
    """The stream ended without its terminal event, or cannot be read further."""


_BY_STATUS: Final[dict[int, type[ServerRefused]]] = {
    400: ValidationFailed,
    401: AuthFailed,
    402: QuotaExceeded,
    403: AuthFailed,
    404: ResourceNotFound,
    409: Conflict,
    410: ThreadGone,
    422: ValidationFailed,
    429: RateLimited,
}
# What servers say in many words is recognised where those of chat servers are.
_SPECIAL: Final[dict[str, type[ServerRefused]]] = {
    "context_length_exceeded": ContextTooLong,
    "insufficient_quota": QuotaExceeded,
}
_BY_TRANSPORT: Final[dict[str, type[ClientError]]] = {
    "upstream_unreachable": ServerUnreachable,
    "upstream_timeout": TimedOut,
    "upstream_invalid_response": InvalidAnswer,
    "upstream_closed": StreamBroken,
}


def error_from_answer(
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    *,
    retry_after: float | None = None,
    thread: str | None = None,
) -> ClientError:
    """Return what an HTTP answer that is no 2xx amounts to.

    `thread` is the response or conversation that the request continued, if it did: only then
    can a 404 mean that the thread is gone.
    """
    fields = _error_fields(body)
    message = _string(fields, "message")[:_MAX_MESSAGE] or _shown(body) or "it gave no reason"
    code = _string(fields, "code") or _string(fields, "type") or None
    kind = _SPECIAL.get(fault_from_body(status, body).code or "") or _classify(
        status, code, message, thread
    )
    error = kind(
        f"the server refused (HTTP {status}): {message}"
        if status < 500
        else f"the server failed (HTTP {status}): {message}",
        status=status,
        code=code,
        param=_string(fields, "param") or None,
        retry_after=retry_after,
        request_id=headers.get("x-request-id"),
    )
    error.should_retry = _SHOULD_RETRY.get(headers.get("x-should-retry", ""))
    if isinstance(error, ThreadGone):
        error.thread = thread
    return error


def error_from_transport(error: BackendError) -> ClientError:
    """Return a fault of the transport in the client's words."""
    kind = _BY_TRANSPORT.get(error.code or "", ServerFailed)
    return kind(
        # The transport speaks of upstreams, because that is whom the gateway talks to.
        error.message.replace("the upstream", "the server"),
        code=(error.code or "").replace("upstream_", "server_") or None,
        retry_after=error.retry_after,
    )


def _classify(status: int, code: str | None, message: str, thread: str | None) -> type[ClientError]:
    if status >= 500:
        return ServerFailed
    if status < 400:
        return InvalidAnswer
    if code in _THREAD_CODES or (status == 404 and thread and _THREAD_WORDS.search(message)):
        return ThreadGone
    return _BY_STATUS.get(status, ServerRefused)


def _error_fields(body: bytes) -> dict[str, Any]:
    """Return the error object of a body in OpenAI's shape, or what comes close to it."""
    try:
        fields: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(fields, dict):
        return {}
    error = fields.get("error", fields.get("detail", fields))
    if isinstance(error, dict):
        return error
    return {"message": error} if isinstance(error, str) else {}


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _shown(body: bytes) -> str:
    return " ".join(body[:_MAX_SHOWN].decode("utf-8", "replace").split())
