"""Chunks of a Gemini answer, and what is counted in them.

A whole answer has the shape of a chunk. Fields that we do not know are skipped; a part of a kind
that we do not know is not (`other_part`). Usage becomes the normal form of ours:

    input = promptTokenCount + toolUsePromptTokenCount, of it cachedContentTokenCount cached
    output = candidatesTokenCount + thoughtsTokenCount, the latter is reasoning
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from antiphon.protocol.errors import BackendError
from antiphon.protocol.halves import decode_torn
from antiphon.protocol.response import InputDetails, OutputDetails, Usage
from antiphon.wires.faults import has_error
from antiphon.wires.gemini.faults import fault_from_error

__all__ = [
    "Candidate",
    "Chunk",
    "Counted",
    "FunctionCall",
    "Part",
    "chunks_of",
    "invalid_answer",
    "other_parts",
    "read_arguments",
    "read_chunk",
    "read_plain",
    "read_tokens",
    "read_usage",
]

_TIERS: Final = {
    "standard": "default",
    "flex": "flex",
    "priority": "priority",
    "ON_DEMAND_FLEX": "flex",
    "ON_DEMAND_PRIORITY": "priority",
}
_IMPOSSIBLE: Final = -9999.0
# Where the end of a piece may be half a character.
_GROWING: Final = frozenset({"text", "stringValue"})
_RAW: Final = frozenset({"args", "usageMetadata"})
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Message(msgspec.Struct, gc=False, rename="camel"):
    """Any object of an answer."""


class FunctionCall(_Message, gc=False):
    """A call, whole or in pieces. Any: JSON of a model."""

    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()
    partial_args: list[dict[str, Any]] | None = None
    will_continue: bool | None = None


class Part(_Message, gc=False):
    """A part of the content. One with no text and no call is looked at as a whole."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class _Content(_Message, gc=False):
    parts: list[Part] | None = None


class Candidate(_Message, gc=False):
    """One answer of the model. Any: read where it is used."""

    content: _Content | None = None
    index: int | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    continuation_token: str | None = None
    grounding_metadata: Any = None
    citation_metadata: Any = None
    logprobs_result: Any = None


class _UsageMetadata(_Message, gc=False):
    """What was counted up to here."""

    prompt_token_count: _Count | None = None
    tool_use_prompt_token_count: _Count | None = None
    cached_content_token_count: _Count | None = None
    candidates_token_count: _Count | None = None
    thoughts_token_count: _Count | None = None
    total_token_count: _Count | None = None
    service_tier: str | None = None
    traffic_type: str | None = None


class Chunk(_Message, gc=False):
    """A chunk of a streamed answer, or a whole one."""

    candidates: list[Candidate] | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()
    """Read at the end: only the last one counts (`read_usage`)."""
    prompt_feedback: dict[str, Any] | None = None
    error: Any = None


class _PlainPart(_Message, gc=False):
    """A piece of the answer, and what a part must not have to be only that."""

    text: str
    thought: None = None
    thought_signature: None = None
    function_call: None = None


class _PlainContent(_Message, gc=False):
    parts: tuple[_PlainPart]


class _PlainCandidate(_Message, gc=False):
    content: _PlainContent
    index: int | None = None
    finish_reason: None = None
    grounding_metadata: None = None
    citation_metadata: None = None
    logprobs_result: None = None


class _PlainChunk(_Message, gc=False):
    candidates: tuple[_PlainCandidate]
    usage_metadata: msgspec.Raw = msgspec.Raw()
    prompt_feedback: None = None
    error: None = None


_decode_plain: Final = msgspec.json.Decoder(_PlainChunk).decode
_decode: Final = msgspec.json.Decoder(Chunk).decode
_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_usage: Final = msgspec.json.Decoder(_UsageMetadata).decode


def read_chunk(data: bytes) -> Chunk:
    """Return the chunk. Raise BackendError if it is none, or holds only an error."""
    try:
        chunk = _decode(data)
    except msgspec.ValidationError as error:
        raise _misshapen(data, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        chunk = _read_torn(data)
    except RecursionError:
        raise invalid_answer("its JSON is too deep") from None
    if chunk.error:
        raise fault_from_error(_read_json(data))
    return chunk


def _read_torn(data: bytes) -> Chunk:
    try:
        return msgspec.convert(decode_torn(data, _GROWING, _RAW), Chunk)
    except msgspec.ValidationError as error:
        raise _misshapen(data, error) from None
    except ValueError:
        raise invalid_answer("it is not JSON") from None
    except RecursionError:
        raise invalid_answer("its JSON is too deep") from None


def _read_json(data: bytes) -> Any:
    """Return the value of JSON without halves of characters; None if it is not JSON."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass
    try:
        return decode_torn(data, ())
    except (ValueError, RecursionError):
        return None


def chunks_of(body: bytes) -> list[bytes]:
    """Return the chunks of an answer that was not streamed: itself, or those of a list."""
    if not body.lstrip().startswith(b"["):
        return [body]
    try:
        return [bytes(chunk) for chunk in _decode_list(body)] or [body]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return [body]


def read_arguments(call: FunctionCall) -> str:
    """Return the arguments as compact JSON: whole answers are indented, streamed ones are not."""
    if bytes(call.args) in (b"", b"null"):
        return "{}"
    try:
        return msgspec.json.format(bytes(call.args), indent=-1).decode(errors="replace")
    except msgspec.DecodeError:
        return msgspec.json.encode(_read_json(bytes(call.args))).decode()


def read_plain(data: bytes) -> tuple[str, msgspec.Raw] | None:
    """Return the text and the usage of a chunk that has nothing else to report, or None."""
    try:
        chunk = _decode_plain(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    candidate = chunk.candidates[0]
    return None if candidate.index else (candidate.content.parts[0].text, chunk.usage_metadata)


def _misshapen(data: bytes, error: msgspec.ValidationError) -> BackendError:
    value = _read_json(data)
    first = value[0] if isinstance(value, list) and value else value
    return fault_from_error(value) if has_error(first) else invalid_answer(str(error))


def other_parts(data: bytes, place: int) -> list[dict[str, Any]]:
    """Return the parts of the candidate at this place as they came: `Part` has not all of them.

    Raise BackendError if a part holds what is no JSON: it was skipped when the chunk was read.
    """
    value = _read_json(data)
    if value is None:
        raise invalid_answer("it is not JSON")
    parts: list[dict[str, Any]] = value["candidates"][place]["content"]["parts"]
    return parts


class Counted(NamedTuple):
    """The usage, the tier that served it, and a note if the counts do not add up."""

    usage: Usage
    tier: str | None
    note: str | None


def read_usage(raw: msgspec.Raw) -> Counted | None:
    """Return what was counted, or None if that cannot be read."""
    try:
        told = _decode_usage(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    given = (told.prompt_token_count or 0) + (told.tool_use_prompt_token_count or 0)
    thought = told.thoughts_token_count or 0
    made = (told.candidates_token_count or 0) + thought
    total = told.total_token_count or given + made
    usage = Usage(
        input_tokens=given,
        input_tokens_details=InputDetails(min(told.cached_content_token_count or 0, given)),
        output_tokens=made,
        output_tokens_details=OutputDetails(thought),
        total_tokens=total,
    )
    tier = _TIERS.get(told.service_tier or told.traffic_type or "")
    if total == given + made:
        return Counted(usage, tier, None)
    note = f"usage: the upstream counts {total} tokens, of which {given + made} are listed"
    return Counted(usage, tier, note)


def read_tokens(result: Any) -> tuple[dict[str, Any], ...]:  # Any: JSON of a server
    """Return the tokens of a text with their logprobs, in the shape of the Responses API."""
    fields = result if isinstance(result, dict) else {}
    chosen, top = fields.get("chosenCandidates"), fields.get("topCandidates")
    others = top if isinstance(top, list) else []
    return tuple(
        _token(token) | {"top_logprobs": _others(others, place)}
        for place, token in enumerate(chosen if isinstance(chosen, list) else ())
        if isinstance(token, dict)
    )


def _others(top: list[Any], place: int) -> list[dict[str, Any]]:
    entry = top[place] if place < len(top) else None
    tokens = entry.get("candidates") if isinstance(entry, dict) else None
    given = tokens if isinstance(tokens, list) else ()
    return [_token(one) for one in given if isinstance(one, dict)]


def _token(token: dict[str, Any]) -> dict[str, Any]:
    text, logprob = str(token.get("token", "")), token.get("logProbability")
    sound = isinstance(logprob, int | float) and math.isfinite(logprob)
    return {
        "token": text,
        "logprob": logprob if sound else _IMPOSSIBLE,
        "bytes": list(text.encode()),
    }


def invalid_answer(why: str) -> BackendError:
    """Return the error for an answer that cannot be understood."""
    return BackendError(
        f"the upstream's answer cannot be used: {why}", code="upstream_invalid_response"
    )
