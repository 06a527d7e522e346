"""Which store does a URL name, and how is it spoken of?"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore

__all__ = ["is_postgres", "open_store", "public_url"]

_KINDS: Final = "sqlite:PATH, postgresql://USER@HOST/DATABASE or memory:"


def open_store(url: str) -> Store:
    """Open the store of a URL: `memory:`, `sqlite:PATH` or `postgresql://…`.

    The path may be relative and may begin with `~`. A database server is only reached when
    the store is first used. Raise ValueError for any other URL, and StoreUnavailable if the
    file cannot be used.
    """
    scheme, colon, place = url.partition(":")
    if not colon:
        raise ValueError(f"{url!r} is no store: write {_KINDS}")
    if scheme == "memory":
        return _open_memory(place)
    if scheme == "sqlite":
        return _open_sqlite(place)
    if is_postgres(url):
        return _open_postgres(url)
    raise ValueError(f"{scheme}: is no store that antiphon knows; use {_KINDS}")


def is_postgres(url: str) -> bool:
    """Say whether the URL names a PostgreSQL database."""
    return url.partition(":")[0] in {"postgresql", "postgres"}


def public_url(url: str) -> str:
    """Return the URL as it may be shown: without a password."""
    if not is_postgres(url):
        return url
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    user = user.partition(":")[0]
    query = [(name, value) for name, value in parse_qsl(parts.query) if name != "password"]
    mark = "?" if query else ""
    return f"{parts.scheme}://{user}{at}{place}{parts.path}{mark}{urlencode(query, safe='/')}"


def _open_memory(place: str) -> Store:
    if place.strip("/"):
        raise ValueError("memory: takes no path")
    return MemoryStore()


def _open_sqlite(place: str) -> Store:
    if not place.strip("/"):
        raise ValueError("sqlite: needs a path, as in sqlite:antiphon.db")
    if place == ":memory:":
        raise ValueError("sqlite: keeps a file; for a store in memory write memory:")
    return SqliteStore(Path(place).expanduser())


def _open_postgres(url: str) -> Store:
    if not url.partition(":")[2].startswith("//"):
        raise ValueError("postgresql: needs a place, as in postgresql://USER@HOST/DATABASE")
    try:
        from antiphon.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ValueError(
            "postgresql: needs a driver that is not installed: pip install 'antiphon[postgres]'"
        ) from None
    return PostgresStore(url)
