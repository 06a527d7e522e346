"""Which options does a model take on the command line (`-o name value`)?

Names are those of llm's other plugins where they have one for it. Bounds are those of the
Responses API; what a model makes of a value is for the gateway to judge.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import llm
from pydantic import Field

__all__ = ["GatewayOptions", "parameters"]

# A gateway accepts these for the chat servers behind it; the Responses API has no place for them.
_EXTRA: Final = ("stop", "seed")
_REASONING: Final = ("reasoning_effort", "reasoning_summary")


class GatewayOptions(llm.Options):
    """The options of one prompt. What is not given is not sent."""

    temperature: float | None = Field(
        default=None, ge=0, le=2, description="How varied the answer is, from 0 to 2."
    )
    top_p: float | None = Field(
        default=None, ge=0, le=1, description="Sample from this share of probability, 0 to 1."
    )
    max_tokens: int | None = Field(
        default=None, ge=1, description="The most tokens that the answer may have."
    )
    frequency_penalty: float | None = Field(
        default=None, ge=-2, le=2, description="Above 0, the model repeats words less often."
    )
    presence_penalty: float | None = Field(
        default=None, ge=-2, le=2, description="Above 0, the model turns to new topics earlier."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        Field(default=None, description="How much the model reasons, from none to max.")
    )
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = Field(
        default=None, description="A summary of the reasoning: auto, concise or detailed."
    )
    verbosity: Literal["low", "medium", "high"] | None = Field(
        default=None, description="How long the answer is: low, medium or high."
    )
    json_object: bool | None = Field(
        default=None, description="Answer with a JSON object. The prompt must ask for JSON."
    )
    parallel_tool_calls: bool | None = Field(
        default=None, description="Whether the model may call several tools at once."
    )
    tool_choice: Literal["auto", "required", "none"] | None = Field(
        default=None, description="Whether tools are called: auto, required or none."
    )
    service_tier: str | None = Field(
        default=None, description="The tier of the provider, such as flex or priority."
    )
    truncation: Literal["auto", "disabled"] | None = Field(
        default=None, description="With auto, the oldest messages are left out if need be."
    )
    store: bool | None = Field(
        default=None, description="With false, the gateway does not keep the answer."
    )
    stop: str | None = Field(default=None, description="A text that ends the answer.")
    seed: int | None = Field(default=None, description="Sample the same way again, if possible.")


def parameters(options: GatewayOptions, *, summary: str | None) -> dict[str, Any]:
    """Return the options as parameters of a request. `summary` is the one to ask for by default."""
    given: dict[str, Any] = options.model_dump(exclude_none=True)
    extra = {name: given.pop(name) for name in _EXTRA if name in given}
    effort, chosen = (given.pop(name, None) for name in _REASONING)
    reasoning = {"effort": effort, "summary": chosen or summary}
    if any(reasoning.values()):
        given["reasoning"] = {name: value for name, value in reasoning.items() if value}
    if given.pop("json_object", False):
        given["response_format"] = {"type": "json_object"}
    return given | ({"extra_body": extra} if extra else {})
