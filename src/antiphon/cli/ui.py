"""`antiphon ui`: open the dashboard of a running gateway in a browser."""

from __future__ import annotations

import webbrowser
from typing import Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import click

from antiphon.cli import options
from antiphon.cli.errors import CliError

__all__ = ["command"]

_SECONDS: Final = 10


@click.command("ui", epilog="Example:  antiphon ui")
@options.base_url
@click.option("--print", "is_printed", is_flag=True, help="Print the address and open nothing.")
def command(base_url: str, is_printed: bool) -> None:
    """Open the dashboard of a running gateway in a browser.

    The gateway serves it on loopback, or with `ui = true` in its settings.
    """
    url = f"{base_url.rstrip('/').removesuffix('/v1')}/ui"
    _check(url)
    click.echo(url)
    if not is_printed and not webbrowser.open(url):
        raise CliError("there is no browser to open; open the address above in one")


def _check(url: str) -> None:
    """Raise CliError if no dashboard is served there."""
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{url} is not a URL of a gateway")
    # Not through a proxy: the gateway refuses one where it needs no keys.
    ask = build_opener(ProxyHandler({})).open
    try:
        with ask(Request(url, method="HEAD"), timeout=_SECONDS):  # noqa: S310 # checked above
            return
    except HTTPError as error:
        error.close()
        if error.code == 404:
            raise CliError(f"{url} is not served; set ui = true in the settings") from None
        raise CliError(f"{url} answers with HTTP {error.code}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)  # what a library wraps has no words of its own
        why = getattr(reason, "strerror", None) or reason
        raise CliError(f"no gateway answers at {url}: {why}; start `antiphon serve`") from None
