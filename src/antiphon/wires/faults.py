"""What an upstream's refusal means, and which error the caller gets.

The caller must be able to act on it: a context that is too long, a model that does not exist
or a parameter that is wrong are the caller's to fix and stay a 4xx; a key that is not accepted
is for the operator to fix and becomes a 502, because the caller did nothing wrong.

    | upstream answers                   | the caller gets                                   |
    |------------------------------------|---------------------------------------------------|
    | context too long, in any wording   | 400 context_length_exceeded                       |
    | no such model (404, or 400)        | 404 model_not_found                               |
    | no money (400, 402, 429)           | 429 insufficient_quota                            |
    | 429                                | 429 rate_limit_exceeded, with its Retry-After     |
    | 400, 413, 422                      | 400 (413), the upstream's message, code and param |
    | 401, 403                           | 502 upstream_auth                                 |
    | any other 4xx                      | 502 upstream_refused                              |
    | 3xx                                | 502 upstream_invalid_response                     |
    | 408, 504                           | 504 upstream_error                                |
    | 503, 529                           | 503 upstream_error, with its Retry-After          |
    | any other 5xx                      | 502 upstream_error                                |
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.protocol.errors import BackendError, ContextOverflow, ErrorObject

__all__ = ["fault_from_body", "fault_from_json", "has_error"]

_MAX_MESSAGE: Final = 2000
_CALLERS: Final = frozenset({400, 413, 422})
_BUSY: Final = frozenset({503, 529})
_OVERFLOW_CODES: Final = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "prompt_too_long",
    }
)
# How OpenAI, vLLM, SGLang, llama.cpp, LM Studio, TGI, Mistral, Anthropic, Gemini, Moonshot, xAI,
# Cohere and Qwen put it, in this order.
_OVERFLOW: Final = re.compile(
    r"maximum context length"
    r"|maximum model length|longer than the maximum model"
    r"|(?:exceed|longer|greater|larger|beyond).{0,60}context (?:length|size|window|limit)"
    r"|context (?:length|size|window|limit).{0,40}(?:exceed|overflow)|context overflows?\b"
    r"|inputs?` tokens \+ `?max_new_tokens"
    r"|too large for model with"
    r"|(?:prompt|input) is too long"
    r"|input token count.{0,60}exceeds"
    r"|exceeded model token limit"
    r"|maximum prompt length"
    r"|too many tokens:.{0,60}(?:prompt|messages)"
    r"|range of input length should be",
    re.IGNORECASE,
)
# Under a 404 any mention of a model will do; under a 400 the model itself must be what is missing.
_NO_MODEL: Final = re.compile(
    r"\bmodel:? ?['\"`]?[^\s'\"`]{1,200}['\"`]?,? (?:was |is |does |has )?"
    r"(?:not found|not exist|not available|not been found)"
    r"|(?:no such|unknown) model\b|invalid model(?: name| id|:)|no model named",
    re.IGNORECASE,
)
_ANY_MODEL: Final = re.compile(r"\bmodels?\b", re.IGNORECASE)
_NO_MONEY: Final = re.compile(
    r"exceeded your current quota|insufficient (?:balance|credit|quota|funds)"
    r"|credit balance is too low|reached your specified .{0,20}usage limits",
    re.IGNORECASE,
)
_NO_MONEY_CODES: Final = frozenset({"insufficient_quota", "billing_error"})
# What errors in mid-stream are called, where there is no HTTP status to go by.
_STATUS_OF: Final = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "resource_exhausted": 429,
    "insufficient_quota": 429,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "overloaded_error": 503,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "invalid_prompt": 400,
    "unavailable": 503,
    "timeout_error": 504,
    "billing_error": 402,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}
# Codes stand in the log, where no text of an upstream may be.
_CODE: Final = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_NO_KEY: Final = (
    "the upstream wants a key (HTTP 401) and none is configured; name the environment variable "
    "that holds it with --upstream-key-env NAME, or with key_env in the provider's table"
)


class _Words(msgspec.Struct, frozen=True):
    """The facts of an error, from any place where an upstream puts them."""

    message: str = ""
    code: str | None = None
    kind: str | None = None
    param: str | None = None
    status: int | None = None


def has_error(value: object) -> bool:
    """Return whether a JSON value is an error in one of the shapes that servers use."""
    if not isinstance(value, dict):
        return False
    return bool(value.get("error")) or value.get("object") == "error"


def fault_from_body(
    status: int, body: bytes, retry_after: float | None = None, *, has_key: bool = True
) -> BackendError:
    """Return the error for an HTTP answer with this status and body.

    `has_key` is False if the request was sent without a key, because none is configured.
    """
    value = decode_json(body)  # the page of a proxy does not help a caller
    if status == 401 and not has_key:
        error = BackendError(_NO_KEY, code="upstream_auth")
    else:
        error = _fault(status, _read_words(value), retry_after)
    error.upstream_status = status
    return error


def fault_from_json(value: object) -> BackendError:
    """Return the error for an error object in mid-stream, or in an answer with status 200."""
    words = _read_words(value)
    names = {(words.code or "").lower(), (words.kind or "").lower()}
    named = next((_STATUS_OF[name] for name in names if name in _STATUS_OF), 502)
    error = _fault(words.status or named, words, None)
    code = words.code or (str(words.status) if words.status else None)
    error.reported = ErrorObject(words.message, words.kind, code, words.param)
    return error


def _fault(status: int, words: _Words, retry_after: float | None) -> BackendError:
    special = _overflow(status, words) or _no_model(status, words) or _no_money(status, words)
    if special is not None:
        return special
    said = f": {words.message}" if words.message else ""
    if status in {401, 403}:
        # The message of a 401 may hold part of the key.
        said = said if status == 403 else ""
        return BackendError(
            f"the upstream does not accept our key (HTTP {status}); check its key{said}",
            code="upstream_auth",
        )
    if status == 429:
        return BackendError(
            words.message or "the upstream's rate limit is reached; try again later",
            code="rate_limit_exceeded",
            status=429,
            type="rate_limit_error",
            retry_after=retry_after,
        )
    if status in _CALLERS:
        return BackendError(
            words.message or f"the upstream refused the request (HTTP {status})",
            code=_as_code(words.code) or "upstream_refused",
            status=413 if status == 413 else 400,
            type="invalid_request_error",
            param=words.param,
        )
    return _plain_fault(status, said, retry_after)


def _plain_fault(status: int, said: str, retry_after: float | None) -> BackendError:
    if status < 400:
        return BackendError(
            f"the upstream answers with HTTP {status} instead of an answer; check its base_url",
            code="upstream_invalid_response",
        )
    if status == 404:
        return BackendError(
            f"the upstream has no such path (HTTP 404); check its base_url and wire_api{said}",
            code="upstream_refused",
        )
    message = f"the upstream failed (HTTP {status}){said}"
    if status < 500 and status != 408:
        return BackendError(message, code="upstream_refused")
    if status in _BUSY:
        return BackendError(
            message, code="upstream_overloaded", status=503, retry_after=retry_after
        )
    return BackendError(message, status=504 if status in {408, 504} else 502)


def _overflow(status: int, words: _Words) -> BackendError | None:
    if status in {401, 403, 404, 429}:
        return None
    if {words.code, words.kind} & _OVERFLOW_CODES or _OVERFLOW.search(words.message):
        return ContextOverflow(words.message or "the context is longer than the model takes")
    return None


def _no_model(status: int, words: _Words) -> BackendError | None:
    pattern = _ANY_MODEL if status == 404 else _NO_MODEL
    is_told = status in {400, 404, 422} and pattern.search(words.message)
    if not is_told and words.code != "model_not_found":
        return None
    return BackendError(
        words.message or "the upstream does not have this model",
        code="model_not_found",
        status=404,
        type="invalid_request_error",
        param="model",
    )


def _no_money(status: int, words: _Words) -> BackendError | None:
    named = {words.code, words.kind} & _NO_MONEY_CODES
    # Anthropic refuses with a 400 when its limits of spending are reached.
    is_told = status in {400, 429} and _NO_MONEY.search(words.message)
    if status != 402 and not named and not is_told:
        return None
    return BackendError(
        words.message or "the upstream's account is out of credit",
        code="insufficient_quota",
        status=429,
        type="insufficient_quota",
    )


def _read_words(value: object) -> _Words:
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict) and value.get("error"):
        value = value["error"]
    if isinstance(value, str):
        return _Words(message=value[:_MAX_MESSAGE])
    if not isinstance(value, dict):
        return _Words()
    code = value.get("code")
    return _Words(
        message=_message_in(value),
        code=_text(code),
        kind=_text(value.get("type")) or _text(value.get("status")),
        param=_text(value.get("param")),
        status=_status(code),
    )


def _message_in(fields: dict[str, Any]) -> str:
    for name in ("message", "detail", "error_msg", "msg"):
        value = fields.get(name)
        if isinstance(value, list | dict) and value:
            return msgspec.json.encode(value).decode()[:_MAX_MESSAGE]
        if isinstance(value, str) and value:
            return value[:_MAX_MESSAGE]
    return ""


def _text(value: object) -> str | None:
    return value[:200] if isinstance(value, str) and value and not value.isdigit() else None


def _as_code(text: str | None) -> str | None:
    """Return a code that is one plain word. Anything else may quote a conversation."""
    return text if text and _CODE.fullmatch(text) else None


def _status(code: object) -> int | None:
    number = int(code) if isinstance(code, str) and code.isdecimal() else code
    return number if isinstance(number, int) and 400 <= number < 600 else None
