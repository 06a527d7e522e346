"""Routes for tests, without a catalog."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from antiphon.backends.base import Backend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.routing.candidates import Board, Candidate, Route
from antiphon.routing.settings import RouteSettings

__all__ = ["Clock", "alone", "deployments", "route_of"]


class Clock:
    """Seconds that pass only when a test lets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def alone(backend: Backend, model: str = "m", context: int | None = None) -> Route:
    """Return a route with one deployment."""
    return route_of([Candidate(backend, model, "a", context, account="a")])


def deployments(*weights: float) -> list[Candidate]:
    """Return deployments `a/m`, `b/m` and so on, of these weights, that are never asked."""
    backend = ScriptedBackend()
    return [
        Candidate(backend, "m", name, weight=weight, account=name)
        for name, weight in zip("abcdefghijklmnop", weights, strict=False)
    ]


def route_of(
    found: Sequence[Candidate],
    *,
    clock: Callable[[], float] = time.monotonic,
    limits: dict[str, int] | None = None,
    fallbacks: Sequence[Candidate] = (),
    on_overflow: Sequence[Candidate] = (),
    **rules: Any,
) -> Route:
    """Return a route of these deployments; `rules` are its settings."""
    return Route(
        name="route",
        deployments=tuple(found),
        fallbacks=tuple(fallbacks),
        on_overflow=tuple(on_overflow),
        rules=RouteSettings(**rules),
        board=Board(clock, limits=limits or {}),
    )
