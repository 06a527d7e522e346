"""Why did a Gemini model stop?

| finishReason                              | becomes                                      |
|-------------------------------------------|----------------------------------------------|
| STOP                                      | stop, whether there are calls or not         |
| MAX_TOKENS                                | length                                       |
| CONTINUATION                              | length, and the state to go on with          |
| SAFETY, RECITATION, IMAGE_SAFETY, …       | content_filter, with the reason as a note    |
| MALFORMED_FUNCTION_CALL and its kind      | a fault; asked again once if nothing came    |
| any other                                 | content_filter, with a note that it is new   |
"""

from __future__ import annotations

from typing import Any, Final

from antiphon.protocol.deltas import NativeState, Stopped
from antiphon.protocol.errors import BackendError
from antiphon.wires.gemini.chunks import Candidate
from antiphon.wires.gemini.signatures import WIRE

__all__ = ["blocked_prompt", "read_end"]

_FILTERS: Final = frozenset(
    {
        "BLOCKLIST",
        "IMAGE_OTHER",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "IMAGE_SAFETY",
        "LANGUAGE",
        "MODEL_ARMOR",
        "NO_IMAGE",
        "PROHIBITED_CONTENT",
        "RECITATION",
        "SAFETY",
        "SPII",
    }
)
_SLIPS: Final = frozenset(
    {
        "MALFORMED_FUNCTION_CALL",
        "MALFORMED_RESPONSE",
        "MISSING_THOUGHT_SIGNATURE",
        "TOO_MANY_TOOL_CALLS",
        "UNEXPECTED_TOOL_CALL",
    }
)
_MAX_SHOWN: Final = 500


def read_end(candidate: Candidate, account: str) -> tuple[Stopped, list[str]]:
    """Return why the model stopped, and notes. Raise BackendError if its output is invalid."""
    reason = candidate.finish_reason or ""
    said = f": {candidate.finish_message[:_MAX_SHOWN]}" if candidate.finish_message else ""
    if reason == "STOP":
        return Stopped("stop"), []
    if reason == "MAX_TOKENS":
        return Stopped("length"), []
    if reason == "CONTINUATION" and candidate.continuation_token:
        token = NativeState(WIRE, candidate.continuation_token.encode(), account=account)
        return Stopped("length", token), []
    if reason in _SLIPS:
        error = BackendError(
            f"the model's output is invalid (finishReason {reason}){said}",
            code="upstream_invalid_response",
        )
        error.is_slip = True
        raise error
    shown = reason[:100]
    if reason in _FILTERS:
        return Stopped("content_filter"), [f"content_filter: the upstream stopped by {shown}{said}"]
    return Stopped("content_filter"), [
        f"finishReason: '{shown}' is not known; taken for 'content_filter'{said}"
    ]


def blocked_prompt(feedback: dict[str, Any]) -> BackendError | None:
    """Return the error for a prompt that was blocked, None if it was not."""
    reason = feedback.get("blockReason")
    if not reason:
        return None
    why = feedback.get("blockReasonMessage")
    said = f": {str(why)[:_MAX_SHOWN]}" if why else ""
    return BackendError(
        f"the upstream blocked the prompt ({str(reason)[:100]}){said}",
        code="content_policy",
        status=400,
        type="invalid_request_error",
        param="input",
    )
