"""One request to a Responses server, and its answer as deltas. No I/O.

Calls of functions that stood for tools of other kinds are lifted back (`wires.exchange`).
"""

from __future__ import annotations

from typing import Final

from antiphon.plans.plan import Plan
from antiphon.protocol.sse import MAX_LINE
from antiphon.wires.exchange import LiftedExchange
from antiphon.wires.responses.profiles import Profile
from antiphon.wires.responses.request import encode_request
from antiphon.wires.responses.stream import ResponsesStream

__all__ = ["ResponsesExchange"]


class ResponsesExchange(LiftedExchange):
    """The body to post for a plan, and the reader of what comes back."""

    path: Final = "/responses"

    def __init__(
        self,
        plan: Plan,
        profile: Profile,
        hosted: frozenset[str] = frozenset(),
        account: str = "",
        max_line: int = MAX_LINE,
    ) -> None:
        self.body, self.degraded = encode_request(plan, profile, hosted, account)
        reader = ResponsesStream(
            profile,
            plan.toolbox,
            account=account,
            limit=plan.max_output_tokens,
            max_line=max_line,
        )
        super().__init__(reader, plan.toolbox)
