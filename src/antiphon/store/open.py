"""Which store does a URL name?"""

from __future__ import annotations

from pathlib import Path

from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore

__all__ = ["open_store"]


def open_store(url: str) -> Store:
    """Open the store of a URL: `memory:` or `sqlite:PATH`.

    The path may be relative and may begin with `~`. Raise ValueError for any other URL, and
    StoreUnavailable if the file cannot be used.
    """
    scheme, colon, place = url.partition(":")
    if not colon:
        raise ValueError(f"{url!r} is no store: write memory: or sqlite:PATH")
    if scheme == "memory":
        return _open_memory(place)
    if scheme == "sqlite":
        return _open_sqlite(place)
    if scheme in {"postgresql", "postgres"}:
        raise ValueError("postgresql: is not in this version; use sqlite:PATH or memory:")
    raise ValueError(f"{scheme}: is no store that antiphon knows; use sqlite:PATH or memory:")


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
