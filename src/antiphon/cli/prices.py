"""`antiphon prices`: what each model costs by the settings, and where that price comes from."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import click

from antiphon.cli import options
from antiphon.cli.terminal import columns, harmless
from antiphon.gateway.config import load
from antiphon.gateway.providers import build_catalog, read_sources
from antiphon.models.table import FIGURES_FROM
from antiphon.routing.catalog import Catalog, PricedModel

__all__ = ["command"]


@click.command("prices", epilog="Example:  antiphon prices gpt")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.config
def command(names: tuple[str, ...], config: str | None) -> None:
    """Show what the models cost, in US dollars for a million tokens.

    The providers of the settings are asked for their lists. With NAMEs, only models that have one
    of them in their name are shown. FROM is who states the price: the settings, the upstream's
    list, or the bundled table of list prices. A budget in dollars refuses a model whose price is
    unknown.
    """
    settings = load({"config": config}, os.environ, Path.cwd()).settings
    sources = read_sources(settings, os.environ)
    catalog = build_catalog(settings, sources)
    found, failures = asyncio.run(_read(catalog, [source.name for source in sources]))
    shown = [one for one in found if not names or any(name in one.model for name in names)]
    if shown:
        _print(shown)
    else:
        click.echo("No provider lists such a model.", err=True)
    for provider, why in failures:
        click.echo(harmless(f"{provider} has no list of models: {why}", sys.stderr), err=True)


async def _read(
    catalog: Catalog, providers: Sequence[str]
) -> tuple[list[PricedModel], list[tuple[str, str]]]:
    """Return the prices, and why providers have no list."""
    try:
        found = await catalog.prices()
        failures = ((name, catalog.list_failure(name)) for name in providers)
        return found, [(name, why) for name, why in failures if why is not None]
    finally:
        await catalog.close()


def _print(shown: Sequence[PricedModel]) -> None:
    names = [("MODEL", "PROVIDER"), *((one.model, one.provider) for one in shown)]
    figures = [("INPUT", "CACHED", "CACHE WRITE", "OUTPUT"), *map(_figures, shown)]
    sources = ["FROM", *map(_source, shown)]
    left = columns(names)
    width = max(map(len, left))
    numbers = columns([("", *row) for row in figures], is_numeric=True)
    for name, row, source in zip(left, numbers, sources, strict=True):
        click.echo(harmless(f"{name:{width}}{row}  {source}", sys.stdout))
    unknown = sum(one.price is None for one in shown)
    if unknown:
        click.echo(
            f"{unknown:,} of {len(shown):,} prices are unknown; [models.NAME.price] in the "
            "settings states one.",
            err=True,
        )


def _figures(one: PricedModel) -> tuple[str, str, str, str]:
    price = one.price
    if price is None:
        return ("-", "-", "-", "-")
    cached = price.input if price.cached is None else price.cached
    written = price.input if price.cache_write is None else price.cache_write
    return _dollars(price.input), _dollars(cached), _dollars(written), _dollars(price.output)


def _dollars(amount: float) -> str:
    """Return a price, which has six decimals at most, with two at least."""
    whole, _, part = f"{Decimal(str(amount)):.6f}".partition(".")
    return f"${whole}.{part.rstrip('0').ljust(2, '0')}"


def _source(one: PricedModel) -> str:
    return f"bundled table of {FIGURES_FROM}" if one.source == "bundled" else one.source
