"""`antiphon run`: start a gateway and a client that uses it, and stop both."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from antiphon.cli import options
from antiphon.cli.run.session import RunOptions, run

__all__ = ["command"]

_CLIENTS: Final = ("codex", "claude")  # each has a module, in which it is CLIENT


@click.command("run", epilog="Example:  antiphon run codex --upstream http://127.0.0.1:11434/v1")
@click.argument("client", type=click.Choice(_CLIENTS))
@click.option(
    "--upstream",
    metavar="URL",
    help="An OpenAI-compatible server, as a base URL that ends in /v1.",
)
@options.upstream_key_env
@options.profile
@click.option("--model", "-m", metavar="NAME", help="The model.  [default: the first listed]")
@click.option(
    "--small/--no-small",
    default=None,
    help="Few tools and a short prompt.  [default: for models of at most 16384 tokens]",
)
@click.option("--store", metavar="URL", help="Where the gateway keeps state.  [default: memory:]")
@options.config
@click.argument("arguments", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
def command(
    client: str,
    model: str | None,
    small: bool | None,
    arguments: tuple[str, ...],
    **flags: Any,  # Any: as `serve` takes them, and config checks them
) -> None:
    """Start a gateway on a free local port and CLIENT with it; stop both when CLIENT ends.

    Arguments after `--` are passed to the client unchanged. Models come from --upstream,
    otherwise from the providers in the file, otherwise the embedded model answers. The client's
    own settings are not changed, and its login is not used. The exit code is the client's.
    """
    wanted = RunOptions(model=model, is_small=small, arguments=arguments)
    raise SystemExit(run(import_module(f"antiphon.cli.run.{client}").CLIENT, wanted, flags))
