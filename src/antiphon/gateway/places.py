"""Where on this machine does antiphon keep its data?"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from antiphon.gateway.errors import BadSettings, Unavailable
from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import Store, open_store
from antiphon.store.open import is_postgres, servers_of
from antiphon.store.trouble import unlogged

__all__ = [
    "data_directory",
    "default_store",
    "naming_store",
    "open_named_store",
    "store_url",
    "using_store",
]


def data_directory(
    environ: Mapping[str, str] = os.environ,
    *,
    platform: str = sys.platform,
    home: Path | None = None,
) -> Path:
    """Return the directory for the user's data, as the system's custom is. It need not exist."""
    home = home or Path.home()
    if platform == "win32":
        local = environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "antiphon"
    if platform == "darwin":
        return home / "Library" / "Application Support" / "antiphon"
    # The XDG rules: a path that is not absolute is to be ignored.
    given = Path(environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else home / ".local" / "share") / "antiphon"


def default_store() -> str:
    """Return the URL of the store that is used when none is named; make room for it."""
    directory = data_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(
            f"{directory} cannot be made for the store ({error.strerror});"
            " name another place with --store"
        ) from None
    return f"sqlite:{directory / 'antiphon.db'}"


def store_url(named: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the store that was named, or of the default one.

    `env:NAME` stands for what is in that variable, which is read for this reason only. Raise
    BadSettings if there is nothing in it.
    """
    if not named:
        return default_store()
    scheme, _, name = named.partition(":")
    if scheme != "env":
        return named
    url = environ.get(name, "").strip()
    if not url or url.startswith("env:"):
        raise BadSettings(
            f"--store {named}: the environment variable {name or 'NAME'} must hold the URL of a"
            " store, as in postgresql://USER@HOST/DATABASE"
        )
    return url


@asynccontextmanager
async def using_store(url: str) -> AsyncIterator[Store]:
    """Open the store of a URL, name it if it fails, and close it."""
    store = open_named_store(url)
    try:
        with naming_store(url):
            yield store
    finally:
        await store.close()


def open_named_store(url: str) -> Store:
    """Open the store of a URL. Raise BadSettings if it names none."""
    try:
        return open_store(url)
    except ValueError as error:
        raise BadSettings(f"--store: {error}") from None


@contextmanager
def naming_store(url: str) -> Iterator[None]:
    """Name the store that fails: callers over HTTP never see where it is, users here do."""
    try:
        with unlogged():
            yield
    except StoreUnavailable as error:
        place = servers_of(url) if is_postgres(url) else url.partition(":")[2]
        raise Unavailable(f"{place}: {error.message}") from error
