"""Ask a route for an answer: the policies of a turn, with those that every turn has.

The order is the one of `rounds`: a larger window when nothing else has helped, then the policies of
the turn, then the continuation of an answer that broke off, then failover, then the charges.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from antiphon.engine.run.charging import Charging
from antiphon.engine.run.continuation import Continuation
from antiphon.engine.run.failover import Failover, Listener, Overflow
from antiphon.engine.run.rounds import Policy, Rounds, RoundsSink
from antiphon.engine.run.turn_charges import TurnCharges
from antiphon.plans.plan import Plan
from antiphon.routing.candidates import Route
from antiphon.routing.choice import NO_SESSION, Session
from antiphon.store.base import RoundKind

__all__ = ["ask_route"]


async def ask_route(
    route: Route,
    plan: Plan,
    policies: Sequence[Policy],
    sink: RoundsSink,
    charges: TurnCharges,
    *,
    session: Session = NO_SESSION,
    listener: Listener | None = None,
    is_strict: bool = False,
    kind: RoundKind = "model",
) -> None:
    """Ask the deployments of a route until the answer is whole. Raise as `Rounds.run` does."""
    failover = Failover(route, session, listener)
    charging = Charging(charges, failover)
    last: list[Policy] = [failover, charging]
    if route.rules.failover == "stream" and plan.stream:
        last.insert(0, Continuation(failover, is_strict=is_strict))
    try:
        first = failover.start(plan)
        if plan.model != first.model:
            plan = msgspec.structs.replace(plan, model=first.model)
        larger = [Overflow(failover)] if route.on_overflow else []
        found = [*larger, *policies, *last]
        rounds = Rounds(first.backend, plan, found, sink, kind)
        if charges.kept is not None:
            rounds.on_ask = charging.keep
        await rounds.run()
    finally:
        failover.leave()
