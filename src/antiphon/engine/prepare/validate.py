"""What must this gateway refuse?

What can be done with the tools of a request is decided in `plans.assess`, when its context
is known. Here is what no context changes, and strictness: what is degraded is refused when the
caller asked for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse

__all__ = ["refuse_degraded", "refuse_impossible"]


def refuse_degraded(degraded: Sequence[str]) -> None:
    """Raise InvalidRequest for a strict caller if anything could not be honoured."""
    if degraded:
        name = degraded[0].split(":")[0].split(" ")[0]
        raise InvalidRequest(
            f"strict mode: cannot honour {'; '.join(degraded)}",
            code="unsupported_parameter",
            param=name,
        )


def refuse_impossible(request: CreateResponse) -> None:
    """Raise InvalidRequest for what cannot be done here at all."""
    if request.background and request.store is False:
        raise InvalidRequest(
            "a background response must be stored: leave store out, or set it to true",
            code="invalid_value",
            param="store",
        )
    if request.extra.get("messages") is not None:
        raise InvalidRequest(
            "messages belongs to chat completions; send the conversation as input here "
            "(a string, or a list of items such as messages with role and content)",
            code="unsupported_parameter",
            param="messages",
        )
    if request.input is not None:
        return
    has_context = request.previous_response_id or request.conversation
    if not (has_context or request.instructions or request.prompt):
        raise InvalidRequest("input is missing", code="missing_required_parameter", param="input")
