"""Which calls of the model may be handed on?

tool_choice is a hard constraint: all tools stay visible to the model, and a call to one that
is not allowed is suppressed here, between backend and builder, so that no index and no event
is ever spent on it. Each suppression is reported.
"""

from __future__ import annotations

from typing import Final

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    ItemOpened,
    Stopped,
)
from antiphon.protocol.errors import BackendError
from antiphon.protocol.hosted import is_hosted
from antiphon.protocol.tools import ToolPolicy

__all__ = ["ToolGate", "gate_for"]

_WATCHED: Final = frozenset({CallOpened, CallMade, CallGrew, CallClosed, ItemOpened, Stopped})


class ToolGate:
    """Lets through what the policy allows. `parallel` False allows one call an answer.

    An answer is what a model writes in one round, with the rounds that repair it: each answer has
    a gate of its own, for its plan.
    """

    def __init__(self, policy: ToolPolicy, *, parallel: bool, names: frozenset[str]) -> None:
        self._policy = policy
        self._parallel = parallel
        self._names = names
        self._shut: set[int] = set()
        self._passed = 0
        self._is_cut = False
        self._is_served = False  # by a tool that the caller does not run

    def admit(self, delta: Delta) -> Delta | None:
        """Return the delta, its replacement, or None to drop it."""
        if type(delta) not in _WATCHED:
            return delta
        match delta:
            case CallGrew() | CallClosed():
                return None if delta.key in self._shut else delta
            case Stopped():
                self._is_cut = delta.reason != "stop"
            case CallOpened():
                why = self._why_not(delta.alias or delta.name)
                if why is None:
                    self._shut.discard(delta.key)
                    self._passed += 1
                    return delta
                self._shut.add(delta.key)
                return Degraded(why)
            case CallMade():
                why = self._why_not(delta.alias or delta.name)
                self._passed += why is None
                return delta if why is None else Degraded(why)
            case ItemOpened():
                self._is_served = self._is_served or is_hosted(delta.item)
        return delta

    def violation(self) -> BackendError | None:
        """Return what is wrong with an answer that has ended: a required call was not made.

        One that was cut short might have made it.
        """
        has_called = self._passed or self._is_served
        if self._policy.mode != "required" or has_called or self._is_cut:
            return None
        return BackendError(
            "tool_choice requires a call, and the model made none", code="tool_choice_violated"
        )

    def _why_not(self, name: str) -> str | None:
        if name not in self._names:
            return f"tool_choice: a call to '{name}', which is no tool here, was suppressed"
        if not self._policy.allows(name):
            return f"tool_choice: a call to '{name}' was suppressed"
        if not self._parallel and self._passed:
            return f"parallel_tool_calls: a second call, to '{name}', was suppressed"
        return None


def gate_for(plan: Plan) -> ToolGate:
    """Return the gate that holds an answer to what its plan allows."""
    return ToolGate(
        plan.policy,
        parallel=plan.parallel_tool_calls is not False,
        names=plan.toolbox.aliases,
    )
