"""Where on this machine does antiphon keep its data?"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.cli.errors import BadSettings, CliError

if TYPE_CHECKING:
    from antiphon.store import Store

__all__ = ["data_directory", "default_store", "open_named_store", "speaking_of"]


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
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:{directory / 'antiphon.db'}"


def open_named_store(url: str) -> Store:
    """Open the store of a URL. Raise BadSettings if it names none."""
    from antiphon.store import open_store

    try:
        return open_store(url)
    except ValueError as error:
        raise BadSettings(f"--store: {error}") from None


@contextmanager
def speaking_of(url: str) -> Iterator[None]:
    """Say of a database server that fails where it is: callers are never told, people may be."""
    from antiphon.protocol.errors import StoreUnavailable
    from antiphon.store.open import is_postgres, servers_of

    try:
        yield
    except StoreUnavailable as error:
        if not is_postgres(url):
            raise
        raise CliError(f"{servers_of(url)}: {error.message}") from error
