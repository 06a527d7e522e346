"""What a routing decision costs: who is asked, of 1, 2, 8 and 32 deployments.

Choosing, taking a seat and leaving it, without a session key and with one. Figures are CPU time,
the best of some runs, which the load of the machine disturbs least.

    python bench/route.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from processes import machine

from antiphon.backends.scripted import ScriptedBackend
from antiphon.routing.candidates import Board, Candidate, Route
from antiphon.routing.choice import Session, choose_first

__all__ = ["main"]

_ROUNDS: Final = 5_000
_BEST_OF: Final = 9
_GOAL: Final = 20


def route_of(count: int) -> Route:
    """Return a route of so many deployments of different weights."""
    backend = ScriptedBackend()
    found = [Candidate(backend, "m", f"gpu{n}", weight=1.0 + n % 3) for n in range(count)]
    return Route(name="route", deployments=tuple(found), board=Board(time.monotonic))


def microseconds(decide: Callable[[int], object]) -> float:
    """Return what one decision takes, the best of some runs."""
    best = float("inf")
    for _ in range(_BEST_OF):
        start = time.process_time()
        for number in range(_ROUNDS):
            decide(number)
        best = min(best, time.process_time() - start)
    return best / _ROUNDS * 1e6


def decide(route: Route, session: Session) -> None:
    """Choose a deployment, take a seat and leave it."""
    chosen = choose_first(route, session)
    route.board.enter(chosen.candidate, chosen.reason)
    route.board.leave(chosen.candidate)


def main() -> None:
    """Print a line for each number of deployments."""
    print(f"CPU us of a decision ({machine()})   goal: at most {_GOAL} with 8 deployments\n")
    for count in (1, 2, 8, 32):
        route = route_of(count)
        keyless = microseconds(lambda _, route=route: decide(route, Session()))
        keyed = microseconds(lambda n, route=route: decide(route, Session(f"session {n}")))
        print(f"{count:3} deployments: {keyless:5.1f} us without a key, {keyed:5.1f} us with one")


if __name__ == "__main__":
    main()
