"""What a turn took, as one line for a person."""

from __future__ import annotations

from antiphon.host.usage import TurnStarted, Update
from antiphon.models.prices import Price

__all__ = ["status_line"]


def status_line(update: Update, price: Price | None = None) -> str:
    """Return an update as one line: model, tokens, context fill and cost where they are known.

    A tilde marks figures that rest on an estimate:
    `gpt-5 · in 1,234 (800 cached) · out 567 (123 reasoning) · context 12% · $0.0042`.
    """
    if isinstance(update, TurnStarted):
        tokens = update.estimated_input
        words = [update.model, f"in ~{tokens:,}", _fill(tokens, update.max_input, "~")]
        return " · ".join(word for word in words if word)
    turn, usage = update.turn, update.turn.counted
    if turn.status == "not_run":
        return f"{turn.model} · {turn.status}"
    mark = "~" if turn.is_estimate else ""
    words = [
        turn.model,
        "" if turn.status == "completed" else turn.status,
        f"in {mark}{usage.input_tokens:,}"
        + _aside(usage.input_tokens_details.cached_tokens, "cached"),
        f"out {mark}{usage.output_tokens:,}"
        + _aside(usage.output_tokens_details.reasoning_tokens, "reasoning"),
        _fill(usage.input_tokens, turn.max_input, mark),
        _money(price.cost(usage), mark) if price else "",
    ]
    return " · ".join(word for word in words if word)


def _aside(tokens: int, what: str) -> str:
    return f" ({tokens:,} {what})" if tokens else ""


def _fill(tokens: int, max_input: int | None, mark: str) -> str:
    return f"context {mark}{tokens / max_input:.0%}" if max_input else ""


def _money(dollars: float, mark: str) -> str:
    if 0 < dollars < 0.0001:
        return "<$0.0001"
    return f"{mark}${dollars:,.2f}" if dollars >= 1 else f"{mark}${dollars:.4f}"
