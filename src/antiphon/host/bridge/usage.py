"""What did a turn take, and what has its session taken so far?

A `usage` message follows each turn that ran. A turn that the server refused, or never got, took
nothing and is not reported. The cost of a session is known only while the price of each of its
turns is.
"""

from __future__ import annotations

from collections.abc import Callable

from antiphon.host.last_used import LastUsed
from antiphon.host.status import status_line
from antiphon.host.usage import TurnEnded, Update
from antiphon.models.prices import Price
from antiphon.protocol.response import Usage, with_total
from antiphon.wires.host.messages import Sums, UsageChanged, UsageFigures

__all__ = ["UsageReports", "figures_of"]


class UsageReports:
    """Turns the updates of a tracker into messages. `find_price` returns what a model costs."""

    def __init__(
        self,
        send: Callable[[UsageChanged], object],
        find_price: Callable[[str], Price | None],
        *,
        max_sessions: int = 1000,
    ) -> None:
        self._send = send
        self._find_price = find_price
        self._costs: LastUsed[str, float | None] = LastUsed(max_sessions)

    def note(self, update: Update) -> None:
        """Send what a turn took, if this is its end."""
        if not isinstance(update, TurnEnded) or update.turn.status == "not_run":
            return
        turn, totals = update.turn, update.totals
        price = self._find_price(turn.model)
        cost = price.cost(turn.counted) if price else None
        sums = Sums(
            input=totals.input,
            output=totals.output,
            cached=totals.cached,
            reasoning=totals.reasoning,
            turns=totals.turns,
            estimated_turns=totals.estimated_turns,
            cost=self._add(turn.conversation, cost),
        )
        self._send(
            UsageChanged(
                session=turn.conversation,
                model=turn.model,
                status=turn.status,
                usage=figures_of(turn.counted, is_estimate=turn.is_estimate),
                max_input=turn.max_input,
                totals=sums,
                cost=cost,
                line=status_line(update, price),
            )
        )

    def _add(self, session: str | None, cost: float | None) -> float | None:
        """Return the cost of a session with this turn; that of the turn if it has none."""
        if session is None:
            return cost
        before = self._costs.get(session, 0.0)
        total = None if before is None or cost is None else before + cost
        self._costs.keep(session, total)
        return total


def figures_of(usage: Usage, *, is_estimate: bool = False) -> UsageFigures:
    """Return token counts as the protocol has them."""
    usage = with_total(usage)
    return UsageFigures(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens,
        is_estimate=is_estimate,
    )
