"""`antiphon run`: a gateway and a client that uses it, in one command, and then neither."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

__all__ = ["command"]

_CLIENTS: Final = ("codex",)  # each has a module, in which it is CLIENT


@click.command(
    "run",
    short_help="Run a client on any model: Codex.",
    epilog="Example:  antiphon run codex --upstream http://127.0.0.1:11434/v1",
)
@click.argument("client", type=click.Choice(_CLIENTS))
@click.option(
    "--upstream",
    metavar="URL",
    help="An OpenAI-compatible server, as a base URL that ends in /v1.",
)
@click.option(
    "--upstream-key-env",
    metavar="NAME",
    help="The environment variable that holds the upstream's key.",
)
@click.option("--profile", metavar="NAME", help="What the upstream is known to do differently.")
@click.option("--model", "-m", metavar="NAME", help="Which model.  [default: the first listed]")
@click.option(
    "--small/--no-small",
    default=None,
    help="Few tools and a short prompt.  [default: for models of at most 16384 tokens]",
)
@click.option("--store", metavar="URL", help="Where the gateway keeps state.  [default: memory:]")
@click.option(
    "--config",
    metavar="FILE",
    help="A TOML file with settings.  [default: antiphon.toml, if there is one here]",
)
@click.argument("arguments", metavar="[-- ARGS...]", nargs=-1, type=click.UNPROCESSED)
def command(
    client: str,
    model: str | None,
    small: bool | None,
    arguments: tuple[str, ...],
    **flags: Any,  # Any: as `serve` takes them, and config checks them
) -> None:
    """Start a gateway on a free port of this machine and CLIENT against it; stop both.

    What follows `--` goes to the client as it is. Models come from --upstream, else from the
    providers of the file, else the embedded one answers. Nothing is written into the client's
    own settings, and its login is neither used nor changed. The exit code is the client's.
    """
    from antiphon.cli.run.session import Wish, run

    wish = Wish(model=model, is_small=small, arguments=arguments)
    raise SystemExit(run(import_module(f"antiphon.cli.run.{client}").CLIENT, wish, flags))
