"""How is each kind of entry written to SQLite? See `base.entries` for the rules."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from antiphon.store.base import Entry, Notice
from antiphon.store.base.entries import group_entries
from antiphon.store.sqlite.notices import insert_notices

__all__ = ["KINDS", "write_entries"]

# Any: a function gets the entries of its own kind.
KINDS: Final[dict[type[Entry], Callable[[sqlite3.Connection, Sequence[Any]], None]]] = {
    Notice: insert_notices
}


def write_entries(connection: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Write entries in the transaction of the connection."""
    for kind, some in group_entries(entries).items():
        KINDS[kind](connection, some)
