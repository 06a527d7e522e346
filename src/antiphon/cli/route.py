"""`antiphon route`: who would answer for a model name, by the settings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import click

from antiphon.cli import options
from antiphon.gateway.config import load
from antiphon.gateway.providers import Source, build_catalog, read_sources
from antiphon.routing.candidates import Candidate, Route
from antiphon.routing.catalog import Catalog
from antiphon.routing.settings import RouteSettings, find_route

__all__ = ["command"]


@click.command("route", epilog="Example:  antiphon route claude-sonnet-5")
@click.argument("model")
@options.config
def command(model: str, config: str | None) -> None:
    """Show who would answer for MODEL, and why, by the settings.

    A name without a route is looked up in the lists of the providers, which are asked for it.
    Breakers and running requests are those of a gateway that runs: see its metrics.
    """
    settings = load({"config": config}, os.environ, Path.cwd()).settings
    sources = read_sources(settings, os.environ)
    catalog = build_catalog(settings, sources)
    path = _path(settings.routes, model)
    click.echo(" -> ".join(path))
    for line in asyncio.run(_describe(catalog, model, sources)):
        click.echo(line)


async def _describe(catalog: Catalog, model: str, sources: Sequence[Source]) -> list[str]:
    try:
        route = await catalog.route(model)
        lines = _lines(route, {source.name: source for source in sources})
        return [*lines, *_assumed(catalog, route)]
    finally:
        await catalog.close()


def _path(routes: dict[str, RouteSettings], name: str) -> list[str]:
    """Return the name with the routes that it leads through."""
    found = [name]
    while (route := find_route(routes, found[-1])) is not None:
        if route != found[-1]:
            found.append(route)
        target = routes[route].to
        if target is None:
            return found
        found.append(target)
    return found


def _lines(route: Route, sources: dict[str, Source]) -> list[str]:
    rules = route.rules
    retry = rules.retry
    lines = [
        _line(one, sources, has_weight=len(route.deployments) > 1) for one in route.deployments
    ]
    lines += [f"then {_line(one, sources)}" for one in route.fallbacks]
    lines += [f"for long contexts {_line(one, sources)}" for one in route.on_overflow]
    about = f"failover {rules.failover}, at most {retry.attempts} attempts"
    shares = f"affinity {rules.affinity}, " if len(route.deployments) > 1 else ""
    return [*lines, f"({shares}{about}, waits of {retry.budget_seconds:g} s in all)"]


def _assumed(catalog: Catalog, route: Route) -> list[str]:
    """Return why a deployment may answer for a name that no list has."""
    failures = {one.name: catalog.list_failure(one.provider) for one in route.deployments}
    return [
        f"No provider lists this name. {name} is asked, because its provider has no list: {why}."
        for name, why in failures.items()
        if why is not None
    ]


def _line(one: Candidate, sources: dict[str, Source], *, has_weight: bool = False) -> str:
    source = sources[one.provider]
    limit = source.provider.max_inflight
    facts = [source.base_url or source.provider.wire_api]
    facts += [f"weight {one.weight:g}"] if has_weight else []
    facts += [f"at most {limit} requests at once"] if limit is not None else []
    facts += [f"{one.context_length} tokens"] if one.context_length else []
    return f"{one.name}  {', '.join(facts)}"
