"""The JSON of chat completions, as servers really write it.

What is read here is taken on trust as little as possible: a field of the wrong type counts
as absent, and only what is no completion at all is a fault. Nothing here knows what came
before: which call, which half of a character, which end is the business of `stream`.
"""

from __future__ import annotations

import json
import math
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec

from antiphon.protocol.deltas import StopReason
from antiphon.protocol.errors import BackendError
from antiphon.protocol.halves import join_others
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.wires.faults import fault_from_json, has_error

__all__ = [
    "CallPiece",
    "Choice",
    "Chunk",
    "Function",
    "Message",
    "SlowChunk",
    "has_output",
    "invalid_answer",
    "is_known_reason",
    "read_annotation",
    "read_any",
    "read_arguments",
    "read_chunk",
    "read_reason",
    "read_token",
    "read_usage",
    "said_alone",
]

_IMPOSSIBLE: Final = -9999.0
"""The logprob of what cannot be, as OpenAI writes it: JSON has no infinity."""
_MAX_COUNT: Final = 2**53
_NUMBERS: Final = (int, float)

_REASONS: Final[dict[str, StopReason]] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "sensitive": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "refusal": "content_filter",
}
_STOPS: Final = frozenset(
    {
        "complete",
        "completed",
        "done",
        "end",
        "end_turn",
        "eos",
        "eos_token",
        "finished",
        "function_call",
        "function_calls",
        "stop",
        "stop_sequence",
        "tool_call",
        "tool_calls",
        "tool_use",
    }
)
_FAILURES: Final = frozenset(
    {
        "error",
        "abort",
        "aborted",
        "cancelled",
        "canceled",
        "timeout",
        "network_error",
        "insufficient_system_resource",
        "malformed_function_call",
    }
)
_TEXTS: Final = frozenset(
    {
        "content",
        "text",
        "thinking",
        "reasoning",
        "reasoning_content",
        "summary",
        "refusal",
        "arguments",
    }
)


# The shape of a chunk, and of a whole completion. Any: servers put other things there, and each
# is looked at where it is used; a typed field would refuse the whole chunk.
class Function(msgspec.Struct, gc=False):
    """A piece of a call: its name, or some of its arguments."""

    name: Any = None
    arguments: Any = None


class CallPiece(msgspec.Struct, gc=False):
    """A piece of a call, and the call that it names."""

    index: Any = None
    id: Any = None
    function: Function | None = None


class Message(msgspec.Struct, gc=False):
    """What the model wrote: all of it, or the newest piece."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: list[CallPiece] | None = None
    function_call: Function | None = None
    annotations: Any = None
    images: Any = None
    audio: Any = None
    reasoning_details: Any = None


class Choice(msgspec.Struct, gc=False):
    """One of several answers; `delta` in a stream, `message` in a whole completion."""

    index: Any = None
    delta: Message | None = None
    message: Message | None = None
    finish_reason: str | None = None
    logprobs: Any = None
    usage: Any = None
    error: Any = None


class Chunk(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole completion."""

    choices: list[Choice] | None = None
    usage: Any = None
    service_tier: Any = None
    error: Any = None
    object: Any = None
    message: Any = None
    x_groq: Any = None
    citations: Any = None
    search_results: Any = None


_Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX_COUNT)] | None


class _Details(msgspec.Struct, gc=False):
    cached_tokens: _Count = None
    cache_write_tokens: _Count = None
    reasoning_tokens: _Count = None


class _Counts(msgspec.Struct, gc=False):
    """What is counted, as it should be; servers have several names for the same."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    total_tokens: _Count = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: _Count = None
    cached_tokens: _Count = None
    reasoning_tokens: _Count = None


_NO_DETAILS: Final = _Details()


class SlowChunk(Chunk, gc=False):
    """A chunk that msgspec refused: it may hold halves of characters."""


_SAID: Final = Message.__struct_fields__
_all_said: Final = attrgetter(*_SAID)
_decode_chunk = msgspec.json.Decoder(Chunk).decode


def read_chunk(data: bytes) -> Chunk:
    """Return the chunk. Raise BackendError if it is not a chunk, or holds only an error."""
    try:
        return _decode_chunk(data)
    except msgspec.ValidationError as error:
        raise _misshapen(data, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _read_slowly(data)
    except RecursionError:
        raise invalid_answer("its JSON is too deep") from None


def said_alone(chunk: Chunk) -> tuple[str, str] | None:
    """Return the field and the text of a chunk that holds one text and nothing else, or None.

    Other facts in it (the tier, sources) are noted once and change nothing when they come again.
    """
    choice = chunk.choices[0] if chunk.choices and len(chunk.choices) == 1 else None
    if choice is None or choice.delta is None:
        return None
    values = _all_said(choice.delta)
    said = [*filter(None, values)]
    if (
        len(said) != 1
        or type(said[0]) is not str
        or choice.index not in (0, None)
        or choice.finish_reason
        or type(chunk) is SlowChunk
        or chunk.error
        or chunk.object == "error"
        or not chunk.usage is chunk.x_groq is choice.usage is choice.logprobs is None
    ):
        return None
    return _SAID[values.index(said[0])], said[0]


def _read_slowly(data: bytes) -> Chunk:
    """Read what msgspec refuses and Python servers write: half characters, NaN and Infinity."""
    try:
        value = json.loads(data.decode("utf-8", "replace"), parse_constant=_number_for)
        return msgspec.convert(join_others(value, _TEXTS), SlowChunk)
    except msgspec.ValidationError as error:
        raise _misshapen(data, error) from None
    except ValueError:
        raise invalid_answer("it is not JSON") from None
    except RecursionError:
        raise invalid_answer("its JSON is too deep") from None


def _number_for(constant: str) -> float:
    return _IMPOSSIBLE


def read_any(data: bytes) -> object:
    """Return the JSON value, or the text if it is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode("utf-8", "replace")


def _misshapen(data: bytes, error: msgspec.ValidationError) -> BackendError:
    value = read_any(data)
    return fault_from_json(value) if has_error(value) else invalid_answer(str(error))


def read_reason(reason: str, error: object = None) -> StopReason:
    """Return why the model stopped. Raise BackendError if it did not stop but broke.

    | stop            | stop, tool_calls, function_call, eos, … and any we do not know     |
    | length          | length, max_tokens, model_length, …                                |
    | content_filter  | content_filter, safety, sensitive, …                               |
    | a BackendError  | error, abort, cancelled, insufficient_system_resource, timeout, …  |
    """
    reason = reason.lower()
    if error:
        raise fault_from_json({"error": error})
    if reason in _FAILURES:
        raise BackendError(
            f"the upstream broke off (finish_reason {reason})",
            status=503 if reason == "insufficient_system_resource" else 502,
        )
    return _REASONS.get(reason, "stop")


def is_known_reason(reason: str) -> bool:
    """Return whether it is known what a finish_reason means; any other is taken for a stop."""
    return reason.lower() in _STOPS or reason.lower() in _REASONS


def read_arguments(value: object) -> str:
    """Return arguments as text: some servers send the object itself."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def read_annotation(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return a url_citation in the flat form of the Responses API; any other as it is."""
    if annotation.get("type") != "url_citation":
        return annotation
    nested = annotation.get("url_citation")
    fields = nested if isinstance(nested, dict) else annotation
    blank = {"type": "url_citation", "url": "", "title": "", "start_index": 0, "end_index": 0}
    return blank | {name: value for name, value in fields.items() if value is not None}


def read_token(token: dict[str, Any]) -> dict[str, Any]:
    """Return a token of the logprobs with all the fields that the Responses API requires."""
    top = token.get("top_logprobs")
    others = (
        [_weighed(one) for one in top if isinstance(one, dict)] if isinstance(top, list) else []
    )
    return _weighed(token) | {"top_logprobs": others}


def _weighed(token: dict[str, Any]) -> dict[str, Any]:
    text = str(token.get("token", ""))
    logprob = token.get("logprob")
    sound = isinstance(logprob, int | float) and math.isfinite(logprob)
    return {
        "token": text,
        "logprob": logprob if sound else _IMPOSSIBLE,
        "bytes": token.get("bytes") or list(text.encode()),
    }


def read_usage(raw: dict[str, Any]) -> Usage | None:
    """Return the counts, or None without counts: some servers send zeros until they know.

    An output that is missing is what the total has beyond the input (see `has_output`).
    """
    try:
        told = msgspec.convert(raw, _Counts)
    except msgspec.ValidationError:
        told = msgspec.convert(_straighten(raw), _Counts)
    given, made = told.prompt_tokens or 0, told.completion_tokens
    if made is None:
        made = max(0, (told.total_tokens or 0) - given)
    if not given and not made:
        return None
    prompt = told.prompt_tokens_details or _NO_DETAILS
    completion = told.completion_tokens_details or _NO_DETAILS
    cached = prompt.cached_tokens or told.prompt_cache_hit_tokens or told.cached_tokens
    thought = completion.reasoning_tokens or told.reasoning_tokens
    return Usage(
        input_tokens=given,
        input_tokens_details=InputDetails(cached or 0, prompt.cache_write_tokens or 0),
        output_tokens=made,
        output_tokens_details=OutputDetails(thought or 0),
        total_tokens=told.total_tokens or given + made,
    )


def has_output(raw: dict[str, Any]) -> bool:
    """Return whether a usage has a figure for the output, or a total from which it follows."""
    made, total = raw.get("completion_tokens"), raw.get("total_tokens")
    return type(made) in _NUMBERS or type(total) in _NUMBERS


def _straighten(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the usage with a number for every field that holds something else."""
    straight: dict[str, Any] = {
        name: _count(value) for name, value in raw.items() if value is not None
    }
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        inner = raw.get(name)
        fields = inner.items() if isinstance(inner, dict) else ()
        straight[name] = {key: _count(value) for key, value in fields}
    return straight


def _count(value: object) -> int:
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else 0
    return min(max(int(value), 0), _MAX_COUNT) if isinstance(value, int) else 0


def invalid_answer(why: str) -> BackendError:
    """Return the error for an answer that cannot be understood."""
    return BackendError(
        f"the upstream's answer cannot be used: {why}", code="upstream_invalid_response"
    )
