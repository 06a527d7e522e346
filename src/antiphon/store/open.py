"""Which store does a URL name, and how is it shown to users?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore

__all__ = [
    "NEEDS_DRIVER",
    "is_postgres",
    "open_store",
    "path_of",
    "public_url",
    "servers_of",
]

NEEDS_DRIVER: Final = (
    "postgresql: needs a driver that is not installed: `pip install '.[postgres]'` in "
    "antiphon's directory"
)
_KINDS: Final = "sqlite:PATH, postgresql://USER@HOST/DATABASE or memory:"
_PORT: Final = "5432"


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
    """Return whether the URL names a PostgreSQL database."""
    return url.partition(":")[0] in {"postgresql", "postgres"}


def path_of(url: str) -> Path:
    """Return the main file of a `sqlite:` URL."""
    return Path(url.partition(":")[2]).expanduser().absolute()


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


def servers_of(url: str) -> str:
    """Return the servers of a PostgreSQL URL, for messages: HOST:PORT and nothing else.

    What the URL leaves out is taken from PGHOST and PGPORT, as the driver does. Raise
    ValueError if the URL cannot be used, and for an invalid port.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    named = parts.netloc.rpartition("@")[2] or query.get("host") or os.environ.get("PGHOST")
    given = query.get("port") or os.environ.get("PGPORT") or _PORT
    ports = [_port(text) for text in given.split(",")]
    hosts = (named or "localhost").split(",")
    return ", ".join(_server(host, ports[index % len(ports)]) for index, host in enumerate(hosts))


def _server(host: str, port: int) -> str:
    if host.startswith(("/", "%2F", "%2f")):
        return host  # a socket, which has a file and no port
    name, colon, own = host.rpartition(":")
    if not colon or host.endswith("]"):
        return f"{host}:{port}"
    return f"{name}:{_port(own) if own else port}"


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:6]) < 65_536):
        raise ValueError("the port of the database must be a number from 1 to 65535")
    return int(text)


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
    servers_of(url)  # raises now if the URL is wrong
    try:
        from antiphon.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ValueError(NEEDS_DRIVER) from None
    return PostgresStore(url)
