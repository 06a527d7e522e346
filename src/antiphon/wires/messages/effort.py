"""How hard a model is asked to think, in the words of the Messages API.

    | effort         | a model that adapts               | one with a budget    | neither          |
    |----------------|-----------------------------------|----------------------|------------------|
    | none           | disabled, or between_tools        | disabled             | nothing          |
    | minimal to max | adaptive, and the level of effort | enabled, with tokens | level of effort  |

How thinking is displayed is set only if the caller asks for a summary: to show one makes answers
slower.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from antiphon.wires.messages.traits import Traits

__all__ = ["Effort", "choose_effort"]

_LEVELS: Final = {
    "minimal": ("low",),
    "low": ("low",),
    "medium": ("medium", "low"),
    "high": ("high", "medium"),
    "xhigh": ("xhigh", "max", "high"),
    "max": ("max", "xhigh", "high"),
}
_BUDGETS: Final = {
    "minimal": 1024,
    "low": 2048,
    "medium": 10_000,
    "high": 16_384,
    "xhigh": 32_768,
    "max": 32_768,
}
_LEAST_BUDGET: Final = 1024
_NO_SETTING: Final = "reasoning.effort: this model has no such setting"


class Effort(NamedTuple):
    """What is sent: the `thinking` object, the level of `output_config`, and what is reported."""

    thinking: dict[str, Any] | None = None
    level: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def thinks(self) -> bool:
        """Whether the model is asked to think: then it takes fewer other parameters."""
        return self.thinking is not None and self.thinking["type"] in ("enabled", "adaptive")


def choose_effort(
    effort: str | None, traits: Traits, max_tokens: int, *, is_shown: bool = False
) -> Effort:
    """Return how an effort is sent to a model whose answer may have so many tokens.

    `is_shown` is whether the caller asks for a summary of what the model thinks.
    """
    chosen = _choose(effort, traits, max_tokens)
    if chosen.thinking is None or not (chosen.thinks and is_shown and traits.summarises):
        return chosen
    return chosen._replace(thinking={**chosen.thinking, "display": "summarized"})


def _choose(effort: str | None, traits: Traits, max_tokens: int) -> Effort:
    if effort is None:
        return Effort()
    if effort == "none":
        return _none(traits)
    if effort not in _LEVELS:
        return Effort(notes=(f"reasoning.effort: '{effort[:50]}' is not known",))
    level = next((one for one in _LEVELS[effort] if one in traits.efforts), None)
    if traits.adaptive:
        return Effort({"type": "adaptive"}, level)
    if traits.budget:
        return _budget(effort, level, max_tokens)
    return Effort(level=level) if level else Effort(notes=(_NO_SETTING,))


def _none(traits: Traits) -> Effort:
    if traits.disabled:
        return Effort({"type": "disabled"})
    if traits.between_tools:
        return Effort({"type": "between_tools"})
    note = "reasoning.effort: this model always thinks; it is asked for the least"
    return Effort(level=traits.efforts[0] if traits.efforts else None, notes=(note,))


def _budget(effort: str, level: str | None, max_tokens: int) -> Effort:
    tokens = min(_BUDGETS[effort], max_tokens - 1)
    if tokens < _LEAST_BUDGET:
        note = f"reasoning.effort: max_output_tokens leaves no room for {_LEAST_BUDGET} to think"
        return Effort(level=level, notes=(note,))
    return Effort({"type": "enabled", "budget_tokens": tokens}, level)
