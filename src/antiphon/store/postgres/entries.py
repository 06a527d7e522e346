"""How is each kind of entry written to PostgreSQL? See `base.entries` for the rules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from antiphon.store.base import Entry, Notice
from antiphon.store.base.entries import group_entries
from antiphon.store.postgres.database import Connection
from antiphon.store.postgres.notices import insert_notices

__all__ = ["KINDS", "write_entries"]

# Any: a function gets the entries of its own kind.
KINDS: Final[dict[type[Entry], Callable[[Connection, Sequence[Any]], Awaitable[None]]]] = {
    Notice: insert_notices
}


async def write_entries(connection: Connection, entries: Iterable[Entry]) -> None:
    """Write entries in the transaction of the connection."""
    for kind, some in group_entries(entries).items():
        await KINDS[kind](connection, some)
