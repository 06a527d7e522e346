"""How do commands reach the store of a gateway?"""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.cli.terminal import shorten
from antiphon.gateway.config import load
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.places import store_url, using_store
from antiphon.store import Store
from antiphon.store.base import AuditRecord
from antiphon.store.open import path_of, public_url

__all__ = [
    "DURATION",
    "audit_record",
    "date_of",
    "key_labels",
    "named_store",
    "run",
    "show_progress",
    "store_options",
    "with_store",
]

_T = TypeVar("_T")
_LONGEST_NAME: Final = 20
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400}
_MAX_DAYS: Final = 36_500
_DURATION: Final = re.compile(r"(\d{1,9})([mhd]?)")


class _Duration(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    name = "duration"

    def convert(
        self,
        value: Any,  # Any: as in click
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        if isinstance(value, int):
            return value
        found = _DURATION.fullmatch(value)
        seconds = int(found[1]) * _UNITS[found[2] or "d"] if found else 0
        if not 0 < seconds <= _MAX_DAYS * _UNITS["d"]:
            self.fail(f"{value!r} is not a time; write 30m, 12h or 7d", param, ctx)
        return seconds


DURATION: Final = _Duration()
"""Seconds, written as 30m, 12h or 7d; a number alone means days."""


def store_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the store."""
    return click.option(
        "--store",
        metavar="URL",
        help="sqlite:PATH.  [default: antiphon.db in the user's data directory]",
    )(options.store_config(function))


def with_store(
    store: str | None,
    config: str | None,
    use: Callable[[Store], Coroutine[Any, Any, _T]],  # Any: what a coroutine is sent is nothing
    *,
    may_make: bool = False,
) -> _T:
    """Open the store that is meant, use it, close it.

    Unless it may be made, it must be there: an empty one in another place would have nothing
    spent, no contradiction, and budgets that limit nobody.
    """
    settings = load({"store": store, "config": config}, os.environ, Path.cwd()).settings
    url = store_url(settings.store)
    if url.startswith("memory:"):
        raise BadSettings(
            "memory: does not keep anything for this command; pass --store sqlite:PATH"
        )
    if not may_make:
        _check_file(url)

    async def run() -> _T:
        async with using_store(url) as opened:
            return await use(opened)

    return asyncio.run(run())


def _check_file(url: str) -> None:
    """Raise CliError if the file of a SQLite store is missing."""
    scheme, _, place = url.partition(":")
    if scheme == "sqlite" and place and not path_of(url).exists():
        raise CliError(
            f"there is no store at {path_of(url)}; `antiphon serve` makes it, and --store or"
            " --config names another one"
        )


def audit_record(
    action: str,
    subject: str,
    project: str | None,
    body: dict[str, Any] | None = None,  # Any: a JSON object
) -> AuditRecord:
    """Return what is recorded about something that this command does."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no such user in the system's database
        user = "unknown"
    return AuditRecord(
        at=int(time.time()),
        actor=f"cli:{user}",
        action=action,
        subject=subject,
        project=project,
        body=body or {},
    )


def date_of(seconds: int) -> str:
    """Return the day of a time."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


async def key_labels(opened: Store) -> dict[str, str]:
    """Return each key by its id: what people know it by, its name or its user, and the id.

    A long name is cut: two keys may differ in nothing but their ids.
    """
    keys = await opened.list_keys()
    names = {key.id: shorten(key.name or key.user or "", _LONGEST_NAME) for key in keys}
    return {key_id: f"{name} {key_id}".lstrip() for key_id, name in names.items()}


def named_store(url: str | None, config: str | None) -> str:
    """Return the URL of the store that is meant; show it if it was not named."""
    if url is None:
        url = store_url(load({"config": config}, os.environ, Path.cwd()).settings.store)
        click.echo(public_url(url), err=True)
    return store_url(url)


def run(work: Coroutine[Any, Any, _T]) -> _T:  # Any: what a coroutine is sent is nothing
    """Return what this returns. A URL that cannot be used is a mistake in the settings."""
    try:
        return asyncio.run(work)
    except ValueError as error:
        raise BadSettings(str(error)) from None


def show_progress(table: str, done: int, total: int) -> None:
    """Show how far it is: on a terminal all the time, elsewhere once per table."""
    name = table.replace("_", " ")
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{name}: {done:,} of {total:,}", err=True, nl=done == total)
    elif done == total:
        click.echo(f"{name}: {done:,}", err=True)
