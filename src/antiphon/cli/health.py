"""`antiphon health`: is a gateway ready? For the health checks of containers, without curl.

The HTTP client of the standard library asks: this runs every few seconds, and must start fast.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import sys
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import click
import msgspec

from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.cli.terminal import harmless
from antiphon.gateway.config import load
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.listen import own_root

__all__ = ["command"]

_PATH: Final = "/readyz"
_READY: Final = "ready"
_MAX_BYTES: Final = 65536


@click.command("health", epilog="Example:  antiphon health --url https://gateway.example")
@click.option(
    "--url",
    metavar="URL",
    help="Where the gateway is.  [default: where `antiphon serve` listens with these settings]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 600),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take to answer.",
)
@options.config
def command(url: str | None, timeout: float, config: str | None) -> None:
    """Exit with 0 if a gateway is ready, and with 1 if it is not; print why.

    Ready means that a turn could run now: the gateway is not stopping, its store works and an
    upstream can serve. Without --url the settings state where it listens. Its certificate is then
    not checked, because it need not name this machine's own address.
    """
    if url is None:
        settings = load({"config": config}, os.environ, Path.cwd()).settings
        if settings.port == 0:
            raise BadSettings("port = 0 takes any free port; pass --url with the one it took")
        said = _ask(_read_url(own_root(settings)), timeout, _unchecked())
    else:
        said = _ask(_read_url(url), timeout, ssl.create_default_context())
    if said != _READY:
        raise CliError(f"not ready: {said}")
    click.echo(harmless(said, sys.stdout))


def _read_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        raise BadSettings(f"--url: {url!r} is not a URL such as http://127.0.0.1:4680")
    return parts


def _unchecked() -> ssl.SSLContext:
    """Return a context that accepts any certificate, for a question without a secret in it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _ask(parts: SplitResult, timeout: float, context: ssl.SSLContext) -> str:
    """Return what the gateway says of itself. Raise CliError if it does not answer."""
    host = str(parts.hostname)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=timeout)
    try:
        connection.request("GET", _PATH, headers={"Connection": "close"})
        answer = connection.getresponse()
        return _words(answer.status, answer.read(_MAX_BYTES))
    except ssl.SSLCertVerificationError as error:
        raise CliError(f"not ready: the certificate is not valid: {error.verify_message}") from None
    except (TimeoutError, socket.gaierror, OSError, http.client.HTTPException) as error:
        reason = f"no answer within {timeout:g} s" if isinstance(error, TimeoutError) else error
        raise CliError(f"not ready: {parts.scheme}://{parts.netloc}: {reason}") from None
    finally:
        connection.close()


def _words(status: int, body: bytes) -> str:
    """Return what the gateway answered: its status, or the message of its error."""
    try:
        found = msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError:
        found = _Answer()
    said = found.error.message if found.error is not None else found.status
    return said or f"the answer is not that of a gateway (HTTP {status})"


class _Fault(msgspec.Struct):
    message: str = ""


class _Answer(msgspec.Struct):
    status: str = ""
    error: _Fault | None = None
