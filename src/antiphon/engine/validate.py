"""What must this gateway refuse?

What any caller of functions could do with a request is decided in `protocol.checked`. Here it
is held against what this gateway has; what is degraded is refused too when the caller asked
for strictness.
"""

from __future__ import annotations

from antiphon.engine.seal import HOW_TO
from antiphon.protocol.checked import Checked, check_request
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse

__all__ = ["refuse_degraded", "validate"]


def validate(request: CreateResponse, *, can_seal: bool = False) -> Checked:
    """Return what can be run of this request. Raise InvalidRequest otherwise."""
    _refuse(request)
    return check_request(request, can_seal=can_seal, how_to_seal=HOW_TO)


def refuse_degraded(degraded: list[str]) -> None:
    """Raise InvalidRequest for a strict caller if anything could not be honoured."""
    if degraded:
        name = degraded[0].split(":")[0].split(" ")[0]
        raise InvalidRequest(
            f"strict mode: cannot honour {'; '.join(degraded)}",
            code="unsupported_parameter",
            param=name,
        )


def _refuse(request: CreateResponse) -> None:
    if request.background and request.store is False:
        raise InvalidRequest(
            "a background response must be stored: leave store out, or set it to true",
            code="invalid_value",
            param="store",
        )
    if request.prompt is not None:
        raise InvalidRequest(
            "prompt templates live at OpenAI; send instructions and input instead",
            code="unsupported_parameter",
            param="prompt",
        )
    has_context = request.previous_response_id or request.conversation or request.instructions
    if request.input is None and not has_context:
        raise InvalidRequest("input is missing", code="missing_required_parameter", param="input")
