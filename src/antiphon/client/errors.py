"""How a call to a server can fail. Both wires, Responses and chat, raise the same errors.

    AntiphonError                   anything antiphon raises on purpose; `antiphon` exports it
    └── ClientError                 any error of the client; `status` is 0 if no answer arrived
        │
        │   the caller's mistake: all are CallerErrors too
        │
        ├── BadCall                 the call is wrong; nothing was sent (also a ValueError)
        │   ├── AmbiguousInput      more than one of input, messages and prompt
        │   ├── MissingInput        none of them, or nothing that is new
        │   ├── UnsupportedParameter    the Responses API has no such parameter: `name`
        │   ├── BadTool             a tool breaks a rule: `tool`
        │   └── TooManyTools        over the hard cap: `count`, `size`, and the caps
        ├── ServerRefused           any other 4xx; only RateLimited may pass by itself
        │   ├── ValidationFailed    400, 422: `param` names what
        │   │   ├── ContextTooLong  the context is longer than the model takes
        │   │   └── OutputMissing   a call in the context has no output
        │   ├── AuthFailed          401, 403
        │   ├── ResourceNotFound    404: no such response, model or path
        │   ├── ThreadGone          404, 410, 400, 422, 500: the server lost what we continue from
        │   ├── Conflict            409
        │   └── RateLimited         429: `retry_after` seconds, if the server gives them
        │       └── QuotaExceeded   429 or 402 because no credit is left: never retried
        │
        │   the peer's fault: all are PeerFaults too
        │
        ├── ServerFailed            5xx, or a 200 that holds an error which names no status
        ├── ServerUnreachable       no connection: refused, unknown host, TLS
        ├── TimedOut                silent for too long (also a TimeoutError); never a cancel
        ├── InvalidAnswer           an answer that cannot be read; check the base URL
        ├── StreamBroken            no terminal event: `partial` holds what arrived
        └── InvalidArguments        a call's arguments cannot be used (also a ValueError)

The third branch, OurFault, is not the client's own: OutOfFiles, when no file descriptor is left.
What the model produced before a fault is in `partial`. A response that the server ends as failed
or incomplete is no error: it is returned, and its `status` says so.

`client.sender` decides what is retried. Messages never hold keys. Of a list of problems they
show the place and the reason of each, without the input that the server repeats.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import (
    AntiphonError,
    BackendError,
    BrokenStream,
    CallerError,
    PeerFault,
)
from antiphon.protocol.events import ErrorEvent
from antiphon.protocol.machines.partial_items import string_of
from antiphon.protocol.response import Response
from antiphon.transport.retry import read_retry_after
from antiphon.wires.faults import fault_from_body, fault_from_json, has_error

__all__ = [
    "UNREADABLE",
    "AmbiguousInput",
    "AuthFailed",
    "BadCall",
    "BadTool",
    "ClientError",
    "Conflict",
    "ContextTooLong",
    "InvalidAnswer",
    "InvalidArguments",
    "MissingInput",
    "OutputMissing",
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
    "error_from_body",
    "error_from_event",
    "error_from_stream",
    "error_from_transport",
    "unreadable",
]

UNREADABLE: Final = "server_invalid_response"
"""The code of every error about an answer that cannot be read."""


_MAX_SHOWN: Final = 500
_MAX_MESSAGE: Final = 2000
_MAX_CODE: Final = 200
# Under a 404 any mention will do. Elsewhere the thread itself must be what is wrong: models
# whose template is strict say that "conversation roles must alternate".
_THREAD_WORDS: Final = re.compile(r"previous[_ ]response|conversation", re.IGNORECASE)
_LOST_WORDS: Final = re.compile(
    r"previous[_ ]response|['\"`]conversation['\"`]"
    r"|\bconversation\b.{0,120}\b(?:not found|not exist|no longer|not support|deleted|expired)"
    r"|(?:unknown|unsupported|unrecognized|not support|no such)\b.{0,60}\bconversation\b",
    re.IGNORECASE,
)
# OpenAI's words, those of its chat completions, and those of Anthropic's Messages.
_OUTPUT_WORDS: Final = re.compile(
    r"no tool output found|must be followed by tool messages"
    r"|tool_use.{0,80}without.{0,40}tool_result",
    re.IGNORECASE | re.DOTALL,
)
_MAY_BE_LOST: Final = frozenset({400, 404, 422, 500})
# How pydantic prints its errors, which vLLM puts into its message: the input comes after.
_PROBLEM: Final = re.compile(r"'loc': \(([^)]*)\), 'msg': (?:'([^']*)'|\"([^\"]*)\")")
_STEP: Final = re.compile(r"[^', ]+")
_INPUT_VALUE: Final = re.compile(r"input_value=.*?, (?=input_type=)", re.DOTALL)
_NO_REASON: Final = "it gave no reason"
_SHOULD_RETRY: Final = {"true": True, "false": False}
_THREAD_CODES: Final = frozenset({"previous_response_not_found", "conversation_not_found"})


class ClientError(AntiphonError):
    """A call that failed. `request_id` is what to quote to the server's operator.

    `partial` holds what the model produced before a stream broke, and `should_retry` what the
    server itself says about a retry. Both are None most of the time.
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


class BadCall(ClientError, CallerError, ValueError):
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

    def __init__(
        self, *, count: int, size: int, max_count: int | None, max_size: int | None
    ) -> None:
        caps = [(max_count, "tools"), (max_size, "bytes")]
        allowed = " and ".join(f"{cap} {what}" for cap, what in caps if cap is not None)
        super().__init__(
            f"{count} tools of {size} bytes of JSON; at most {allowed} are allowed "
            "(ToolLimits raises the caps)",
            param="tools",
        )
        self.count = count
        self.size = size
        self.max_count = max_count
        self.max_size = max_size


class ServerRefused(ClientError, CallerError):
    """The server refused (4xx). Only RateLimited may pass by itself."""


class ValidationFailed(ServerRefused):
    """The request cannot be used; `param` names what, if the server does."""


class ContextTooLong(ValidationFailed):
    """The context is longer than the model takes; a shorter one would work."""


class OutputMissing(ValidationFailed):
    """A call in the context has no output. Give one, or continue with a message after it.

    Where the whole history is known it is sent once, with an output for each such call that
    says that there is none.
    """


class AuthFailed(ServerRefused):
    """No key, a wrong one, or one that may not do this."""


class ResourceNotFound(ServerRefused):
    """There is no such response, model or path."""


class ThreadGone(ServerRefused):
    """The server no longer knows what we continue from.

    The conversation cache forgets the thread. Where the whole history is known it is sent once
    instead of raising this error; otherwise send the full history yourself.
    """

    thread: str | None = None


class Conflict(ServerRefused):
    """Another request uses the same conversation, or the same idempotency key."""


class RateLimited(ServerRefused):
    """Too many requests; `retry_after` is how long to wait, if the server gives it."""


class QuotaExceeded(RateLimited):
    """No credit is left. Waiting does not help, so it is not retried."""


class ServerFailed(ClientError, PeerFault):
    """The server failed (5xx)."""


class ServerUnreachable(ClientError, PeerFault):
    """No connection to the server could be made."""


class TimedOut(ClientError, PeerFault, TimeoutError):
    """The server was silent for too long. This is not a cancellation by the caller."""


class InvalidAnswer(ClientError, PeerFault):
    """The answer is not one of this API and cannot be read; check the base URL."""


class InvalidArguments(ClientError, PeerFault, ValueError):
    """The model wrote arguments that cannot be read, or that are not what was asked for."""


class StreamBroken(ClientError, PeerFault):
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
# Servers word these in many ways; `wires.faults` knows the wordings.
_SPECIAL: Final[dict[str, type[ServerRefused]]] = {
    "context_length_exceeded": ContextTooLong,
    "insufficient_quota": QuotaExceeded,
}
# For these `wires.faults` has the status of the gateway; the server's is in the message.
_RESTATED: Final = frozenset(
    {"upstream_auth", "upstream_refused", "upstream_error", "upstream_overloaded"}
)
_STATUS_IN_MESSAGE: Final = re.compile(r"the upstream [a-z ]{1,40}\(HTTP (\d{3})\)")
_IS_STATUS: Final = re.compile(r"[45][0-9][0-9]")
# Codes and types of errors under a 200, beyond those that `wires.faults` knows.
_STATUS_OF: Final = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "previous_response_not_found": 404,
    "conversation_not_found": 404,
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
    thread: str | None = None,
    redact: Callable[[str], str] = str,
) -> ClientError:
    """Return the error of an HTTP answer that is not a 2xx.

    `thread` is the response or conversation that the request continued, if it did: only then
    can a 404 mean that the thread is gone. `redact` removes the key from the server's message
    before it is shortened, so that no part of a key stays.
    """
    verb = "refused" if status < 500 else "failed"
    answer = _ErrorAnswer(status, body, headers, thread, redact)
    return _error(answer, f"the server {verb} (HTTP {status})")


def error_from_body(
    body: bytes, headers: Mapping[str, str], *, redact: Callable[[str], str] = str
) -> ClientError | None:
    """Return the error in the body of a 2xx, or None if there is no error in it.

    Its status is the one it names, by number or by type; without one the server has failed. A
    response that failed is an answer, not an error.
    """
    fields = decode_json(body)
    if not has_error(fields) or "output" in fields or fields.get("object") == "response":
        return None
    answer = _ErrorAnswer(_named_status(fields), body, headers, None, redact)
    return _error(answer, "the server answered with an error")


def error_from_event(
    event: ErrorEvent, headers: Mapping[str, str], *, redact: Callable[[str], str] = str
) -> ClientError:
    """Return the error for an `error` event that comes instead of an answer."""
    fields = {"message": event.message, "code": event.code, "param": event.param}
    if event.kind:
        fields["type"] = event.kind
    data = msgspec.json.encode({"error": fields})
    error = error_from_body(data, headers, redact=redact)
    return error or ServerFailed(redact(event.message), code=event.code, param=event.param)


def error_from_stream(error: BackendError | BrokenStream) -> ClientError:
    """Return why a stream that has begun cannot be read further."""
    if isinstance(error, BrokenStream):
        return StreamBroken(f"the server's answer cannot be used: {error.message}", code=UNREADABLE)
    found = error_from_transport(error)
    return StreamBroken(found.message, code=UNREADABLE) if found.code == UNREADABLE else found


def error_from_transport(error: BackendError) -> ClientError:
    """Return a fault of the transport as an error of the client.

    It has no status, because no answer arrived. The transport writes of upstreams, because it
    serves the gateway too.
    """
    code = error.code or ""
    return _BY_TRANSPORT.get(code, ServerFailed)(
        error.message.replace("the upstream", "the server"),
        code=code.replace("upstream_", "server_") or None,
        param=error.param,
        retry_after=error.retry_after,
    )


def unreadable(status: int, headers: Mapping[str, str], why: str) -> InvalidAnswer:
    """Return the error for an answer that cannot be read and had no event."""
    return InvalidAnswer(
        f"{why}; check the base URL",
        status=status,
        code=UNREADABLE,
        request_id=headers.get("x-request-id"),
    )


def _server_status(error: BackendError) -> int:
    heard = _STATUS_IN_MESSAGE.match(error.message) if error.code in _RESTATED else None
    return int(heard[1]) if heard else error.status


def _by_status(status: int) -> type[ClientError]:
    if status >= 500:
        return ServerFailed
    if status < 400:
        return InvalidAnswer
    return _BY_STATUS.get(status, ServerRefused)


class _ErrorAnswer(msgspec.Struct, frozen=True):
    """An error as the server answered it, and what is known of its request."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    thread: str | None
    redact: Callable[[str], str]


def _error(answer: _ErrorAnswer, lead: str) -> ClientError:
    headers, fields = answer.headers, _error_fields(decode_json(answer.body))
    code = string_of(fields, "code") or string_of(fields, "type")
    message, param = string_of(fields, "message"), string_of(fields, "param")
    kind = _SPECIAL.get(fault_from_body(answer.status, answer.body).code or "")
    if kind is None and _is_thread_gone(answer, code, f"{message} '{param}'"):
        kind = ThreadGone
    if kind is None and answer.status in (400, 422) and _OUTPUT_WORDS.search(message):
        kind = OutputMissing
    shown = answer.redact(message)[:_MAX_MESSAGE] or _shown(answer) or _NO_REASON
    error = (kind or _by_status(answer.status))(
        f"{lead}: {shown}",
        status=answer.status,
        code=answer.redact(code)[:_MAX_CODE] or None,
        param=answer.redact(param)[:_MAX_CODE] or None,
        retry_after=read_retry_after(headers, time.time()),
        request_id=headers.get("x-request-id"),
    )
    error.should_retry = _SHOULD_RETRY.get(headers.get("x-should-retry", ""))
    if isinstance(error, ThreadGone):
        error.thread = answer.thread
    return error


def _is_thread_gone(answer: _ErrorAnswer, code: str, words: str) -> bool:
    if code in _THREAD_CODES:
        return answer.status < 500
    if not answer.thread or answer.status not in _MAY_BE_LOST or code == "model_not_found":
        return False
    if answer.status != 404:
        return bool(_LOST_WORDS.search(words))
    named = re.search(rf"(?<![\w-]){re.escape(answer.thread)}(?![\w-])", words)
    return bool(named or _THREAD_WORDS.search(words))


def _named_status(fields: dict[str, Any]) -> int:
    """Return the status that an error under a 2xx would have had."""
    error = _error_fields(fields)
    code = str(error.get("code"))
    if _IS_STATUS.fullmatch(code):
        return int(code)
    named = _STATUS_OF.get(code) or _STATUS_OF.get(string_of(error, "type"))
    return named or _server_status(fault_from_json(fields))


def _error_fields(fields: object) -> dict[str, Any]:
    """Return the error object of a body in OpenAI's shape, or what comes close to it."""
    if not isinstance(fields, dict):
        return {}
    error = next((fields[name] for name in ("error", "detail", "errors") if fields.get(name)), None)
    error = fields if error is None else error
    if not isinstance(error, dict):
        error = {"message": error}
    return error | {"message": _reason(error.get("message"))}


def _reason(message: object) -> str:
    """Return a message as one text; of a list of problems, where and what each of them is."""
    if isinstance(message, list):
        problems = [_problem(entry) for entry in message if isinstance(entry, dict)]
        return "; ".join(filter(None, problems)) or _NO_REASON
    return _without_input(message) if isinstance(message, str) else ""


def _without_input(message: str) -> str:
    """Return a message without the input that pydantic repeats when its errors are printed."""
    message = _INPUT_VALUE.sub("", message)
    before, mark, _ = message.partition("'input': ")
    if not mark or "'loc': " not in before:
        return message
    found = _PROBLEM.findall(message)
    problems = [f"{'.'.join(_STEP.findall(place))}: {one or other}" for place, one, other in found]
    # vLLM prints them twice.
    return "; ".join(dict.fromkeys(problems)) or before


def _problem(entry: dict[str, Any]) -> str:
    """Return a problem in FastAPI's form, without the input that it repeats."""
    place = entry.get("loc")
    where = ".".join(str(step) for step in place) if isinstance(place, list) else ""
    why = string_of(entry, "msg") or string_of(entry, "message")
    return f"{where}: {why}" if where and why else where or why


def _shown(answer: _ErrorAnswer) -> str:
    text = answer.redact(answer.body.decode("utf-8", "replace"))
    return " ".join(text[:_MAX_SHOWN].split())
