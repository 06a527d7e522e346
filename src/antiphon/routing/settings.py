"""What can be set about a route: a model name of the gateway's own, and who answers for it.

A route either has deployments or is an alias (`to`). `check_routes` finds what is wrong with all
of them together; nothing here knows where the settings come from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Literal

import msgspec

__all__ = [
    "BadRoute",
    "DeploymentSettings",
    "RetrySettings",
    "RouteSettings",
    "check_routes",
    "find_route",
    "is_pattern",
    "split_name",
]

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class BadRoute(Exception):
    """A route that cannot be used; the message begins with its name."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f'[routes."{name}"]: {why}')


class DeploymentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model at a provider, and its share of the requests."""

    provider: _Name
    model: _Name
    weight: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 1.0


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a model is asked for one answer, and how long is waited in between, in all."""

    attempts: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    budget_seconds: Annotated[float, msgspec.Meta(ge=0, le=600)] = 20.0


class RouteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who answers for a name."""

    to: _Name | None = None
    """Another name that this one stands for."""
    deployments: tuple[DeploymentSettings, ...] = ()
    fallbacks: tuple[_Name, ...] = ()
    """Other models, asked when no deployment answers: routes, or `provider/model`."""
    on_overflow: _Name | None = None
    """The model for a context that is too long for the deployments."""
    affinity: Literal["session", "prefix", "none"] = "session"
    failover: Literal["off", "start", "stream"] = "start"
    across_models: bool = False
    """Whether an answer that broke off may be continued by a model of another name."""
    retry: RetrySettings = RetrySettings()


def is_pattern(name: str) -> bool:
    """Return whether the name of a route stands for many names."""
    return "*" in name


def find_route(routes: Mapping[str, RouteSettings], name: str) -> str | None:
    """Return the name of the route for a model name: exact before pattern, the longest first."""
    if name in routes:
        return name
    if not routes:
        return None
    found = [pattern for pattern in routes if is_pattern(pattern) and _matches(pattern, name)]
    return max(found, key=len, default=None)


def split_name(name: str, providers: Collection[str]) -> tuple[str, str] | None:
    """Return provider and model of a name `provider/model`; None if there is no such provider."""
    provider, slash, model = name.partition("/")
    return (provider, model) if slash and model and provider in providers else None


def check_routes(routes: Mapping[str, RouteSettings], providers: Collection[str]) -> None:
    """Raise BadRoute for the first route that cannot be used."""
    for name, route in routes.items():
        _check_one(name, route, providers)
    for name in routes:
        _check_loops(name, routes)
    for name, route in routes.items():
        for other in (*route.fallbacks, *filter(None, (route.on_overflow,))):
            _check_other(name, other, routes, providers)


def _check_one(name: str, route: RouteSettings, providers: Collection[str]) -> None:
    if not name:
        raise BadRoute(name, "a route needs a name")
    if route.to is not None:
        if route != RouteSettings(to=route.to):
            raise BadRoute(name, "a route with `to` is only another name; nothing else may be set")
        return
    if not route.deployments:
        raise BadRoute(name, "it has no deployments; add some, or name another model with `to`")
    for deployment in route.deployments:
        if deployment.provider not in providers:
            known = ", ".join(sorted(providers))
            raise BadRoute(
                name, f"there is no provider {deployment.provider!r}; the providers are {known}"
            )
    named = [(one.provider, one.model) for one in route.deployments]
    for provider, model in named:
        if named.count((provider, model)) > 1:
            raise BadRoute(name, f"{provider}/{model} is listed twice; set its weight instead")


def _check_loops(name: str, routes: Mapping[str, RouteSettings]) -> None:
    seen = [name]
    target = routes[name].to
    while target is not None and (found := find_route(routes, target)) is not None:
        if found in seen:
            raise BadRoute(name, f"it leads back to itself: {' -> '.join([*seen, found])}")
        seen.append(found)
        target = routes[found].to


def _check_other(
    name: str, other: str, routes: Mapping[str, RouteSettings], providers: Collection[str]
) -> None:
    final, found = other, find_route(routes, other)
    while found is not None and found != name and (target := routes[found].to) is not None:
        final, found = target, find_route(routes, target)
    if found == name:
        raise BadRoute(name, f"{other!r} is the route itself")
    if found is None and split_name(final, providers) is None:
        raise BadRoute(
            name, f"there is no route {final!r}; name a route, or a model as provider/model"
        )


def _matches(pattern: str, name: str) -> bool:
    parts = map(re.escape, pattern.split("*"))
    return re.fullmatch(".*".join(parts), name, re.DOTALL) is not None
