"""`antiphon serve`: run the gateway."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from antiphon.cli import options
from antiphon.gateway.start import start

__all__ = ["command"]


@click.command("serve", epilog="Example:  antiphon serve --upstream http://127.0.0.1:11434/v1")
@click.option("--host", help="The address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="0 chooses a free port.  [default: 4680]"
)
@click.option(
    "--upstream",
    metavar="URL",
    help="An OpenAI-compatible server, as a base URL that ends in /v1. "
    "Its models are served under their own names.",
)
@options.upstream_key_env
@options.profile
@click.option(
    "--local-model",
    metavar="FILE",
    help="A GGUF file to serve: a path, or hf:OWNER/REPO/FILE.gguf, which is downloaded once.",
)
@click.option(
    "--store",
    metavar="URL",
    help="memory:, sqlite:PATH or postgresql://USER@HOST/DATABASE.  "
    "[default: antiphon.db in the user's data directory]",
)
@options.config
@click.option(
    "--workers", type=click.IntRange(1, 256), help="The number of processes.  [default: 1]"
)
@click.option(
    "--tls-cert", metavar="FILE", help="A certificate in PEM format: serve HTTPS and WSS with it."
)
@click.option(
    "--tls-key",
    metavar="FILE",
    help="The key of the certificate.  [default: in the file of the certificate]",
)
@click.option("--default-model", metavar="NAME", help="The model for requests that name none.")
@click.option(
    "--dialect",
    type=click.Choice(["openai", "open-responses"]),
    help="The variant of the protocol to serve.",
)
@click.option(
    "--strict/--no-strict",
    default=None,
    help="Refuse requests that cannot be fulfilled completely.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="The format of the log.  [default: text]",
)
def command(**flags: Any) -> None:  # Any: each flag has its own type, and config checks them
    """Serve the Responses API in front of a model.

    Without --upstream and without providers in the file, the embedded model answers, if the
    extra `local` is installed. Every flag is also an environment variable, such as
    ANTIPHON_PORT, and a key of the file. A flag overrides the environment, which overrides the
    file.
    """
    warn = partial(click.echo, err=True)
    raise SystemExit(start(flags, show=click.echo, warn=warn, fetch_weights=_fetch_weights))


def _fetch_weights(name: str) -> None:
    # Imported here: a process that serves needs no client.
    from antiphon.cli.models import fetch_weights

    fetch_weights(name)
