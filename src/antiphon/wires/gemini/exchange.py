"""One request to a Gemini server, and its answer as deltas. No I/O.

Calls come under Gemini's names for the tools, which are turned into their aliases before they are
lifted (`wires.exchange`).
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallMade, CallOpened, Delta
from antiphon.protocol.sse import MAX_LINE
from antiphon.wires.exchange import LiftedExchange
from antiphon.wires.gemini.names import alias_for
from antiphon.wires.gemini.profiles import Profile
from antiphon.wires.gemini.request import encode_request
from antiphon.wires.gemini.stream import GeminiStream

__all__ = ["GeminiExchange", "model_path"]


def model_path(model: str) -> str:
    """Return the path of a model: its name alone, or with its place (`tunedModels/x`)."""
    return f"/{quote(model if '/' in model else f'models/{model}')}"


class GeminiExchange(LiftedExchange):
    """The body to post for a plan, and the reader of what comes back."""

    def __init__(
        self, plan: Plan, profile: Profile, account: str = "", max_line: int = MAX_LINE
    ) -> None:
        method = "streamGenerateContent?alt=sse" if plan.stream else "generateContent"
        self.path = f"{model_path(plan.model)}:{method}"
        self.body, self.degraded = encode_request(plan, profile, account)
        super().__init__(GeminiStream(account=account, max_line=max_line), plan.toolbox)
        self._aliases = plan.toolbox.aliases

    def named(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return the deltas with calls under the aliases of their tools."""
        return [self._named(delta) for delta in deltas]

    def _named(self, delta: Delta) -> Delta:
        """Return a call under the alias of its tool."""
        if isinstance(delta, CallMade):
            return CallMade(alias_for(delta.name, self._aliases), delta.said, delta.call_id)
        if isinstance(delta, CallOpened):
            return CallOpened(delta.key, alias_for(delta.name, self._aliases), delta.call_id)
        return delta
