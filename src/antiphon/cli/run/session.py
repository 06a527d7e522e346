"""The steps of `antiphon run`: check, start a gateway, run the client, stop both.

Everything that can be refused is refused before anything starts: the client must be installed,
the settings must be valid. The gateway stores nothing by default: clients that are run this way
keep the conversation themselves and send all of it each time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from antiphon.cli.errors import CliError
from antiphon.cli.run.client import Client, Order, raising_on_signals, run_program
from antiphon.cli.run.gateway import GatewayProcess, Listing, open_gateway
from antiphon.gateway.config import load
from antiphon.gateway.providers import read_sources

__all__ = ["SMALL_CONTEXT", "RunOptions", "run"]

SMALL_CONTEXT: Final = 16_384
"""For a model with at most this context, the client gets few tools and a short prompt."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the person wants beside the gateway's settings; None leaves it to us."""

    model: str | None
    is_small: bool | None
    arguments: Sequence[str]


def run(client: Client, options: RunOptions, flags: Mapping[str, Any]) -> int:
    """Run the client on a gateway to its end; return its exit code. Raise CliError."""
    program = client.find()
    settings, _ = load(flags, os.environ, Path.cwd())
    read_sources(settings, os.environ)  # only checked here
    options = msgspec.structs.replace(options, model=options.model or settings.default_model)
    with raising_on_signals(), _Place() as place, open_gateway(flags, place.log) as gateway:
        order = _order(gateway, options, place.directory)
        _announce(client, order, options)
        code = run_program(client.prepare(program, order), gateway.guard)
        gateway.guard(0)
        if gateway.is_over:
            place.keep(f"the gateway ended before {client.name} did")
        elif code and place.log.stat().st_size:
            place.keep(f"{client.name} ended with exit code {code}")
    return code


class _Place(AbstractContextManager["_Place"]):
    """A directory for one run; it is kept if there is something to read in it."""

    def __init__(self) -> None:
        self.directory: Final = Path(tempfile.mkdtemp(prefix="antiphon-run-"))
        self.log: Final = self.directory / "gateway.log"
        self._is_kept = False

    def keep(self, reason: str) -> None:
        """Do not remove it, and print why and where it is."""
        self._is_kept = True
        click.echo(f"antiphon: {reason}; the gateway's log is {self.log}", err=True)

    def __exit__(self, *_: object) -> None:
        if not self._is_kept:
            shutil.rmtree(self.directory, ignore_errors=True)


def _order(gateway: GatewayProcess, options: RunOptions, directory: Path) -> Order:
    """Return what the client is to be started with. Raise CliError if there is no model."""
    listing = _listing(gateway, is_needed=options.model is None)
    # Only models that chat are described; a list without descriptions is as good as it gets.
    names = [*(str(entry["slug"]) for entry in listing.models), *(one.id for one in listing.data)]
    model = options.model or next(iter(names), None)
    if model is None:
        raise CliError("the upstream lists no models; pass --model NAME")
    context = listing.context_of(model)
    is_small = options.is_small
    if is_small is None:
        is_small = context is not None and context <= SMALL_CONTEXT
    return Order(
        base_url=gateway.base_url,
        model=model,
        context=context,
        models=listing.models,
        is_small=is_small,
        arguments=options.arguments,
        directory=directory,
    )


def _listing(gateway: GatewayProcess, *, is_needed: bool) -> Listing:
    try:
        return asyncio.run(gateway.list_models())
    except CliError:
        if is_needed:
            raise
        return Listing()  # some upstreams list nothing, and answer all the same


def _announce(client: Client, order: Order, options: RunOptions) -> None:
    """Print what is about to run on stderr, before the client uses the screen."""
    how = ""
    if order.is_small:
        how = f", with {client.small}"
    if order.is_small and options.is_small is None:
        how += f" for its context of {order.context} tokens (--no-small turns this off)"
    click.echo(f"antiphon: {client.name} runs on {order.model}{how}", err=True)
