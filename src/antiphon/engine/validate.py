"""What must this gateway refuse?

What any caller of functions could do with a request is decided in `protocol.checked`. Here it
is held against what this gateway has; what is degraded is refused too when the caller asked
for strictness.
"""

from __future__ import annotations

from antiphon.protocol.checked import Checked, check_request
from antiphon.protocol.errors import InvalidRequest, NotBuilt
from antiphon.protocol.request import CreateResponse

__all__ = ["refuse_degraded", "validate"]


def validate(request: CreateResponse) -> Checked:
    """Return what can be run of this request. Raise InvalidRequest or NotBuilt otherwise."""
    _refuse_unbuilt(request)
    return check_request(request)


def refuse_degraded(degraded: list[str]) -> None:
    """Raise InvalidRequest for a strict caller if anything could not be honoured."""
    if degraded:
        name = degraded[0].split(":")[0].split(" ")[0]
        raise InvalidRequest(
            f"strict mode: cannot honour {'; '.join(degraded)}",
            code="unsupported_parameter",
            param=name,
        )


def _refuse_unbuilt(request: CreateResponse) -> None:
    if request.background:
        raise NotBuilt("background responses are not in this version", param="background")
    if request.conversation is not None:
        raise NotBuilt(
            "conversations are not in this version; use previous_response_id",
            param="conversation",
        )
    if request.prompt is not None:
        raise InvalidRequest(
            "prompt templates live at OpenAI; send instructions and input instead",
            code="unsupported_parameter",
            param="prompt",
        )
    if request.input is None and not request.previous_response_id and not request.instructions:
        raise InvalidRequest("input is missing", code="missing_required_parameter", param="input")
