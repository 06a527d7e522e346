"""A store on disk with charges in it, for the commands that read a ledger."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base import Store
from antiphon.store.sqlite import SqliteStore
from tests.server.api.organization.books import DOLLAR, charge, key_of

__all__ = ["DB", "STORE", "break_sum", "fill", "make", "use"]

DB = "books.db"
STORE = ["--store", f"sqlite:{DB}"]


def use(work: Callable[[Store], Awaitable[None]]) -> None:
    """Open the store of these tests, do something with it, and close it."""

    async def run() -> None:
        store = SqliteStore(Path(DB))
        await work(store)
        await store.close()

    asyncio.run(run())


def make() -> None:
    """Make the store, with nothing in it."""

    async def work(store: Store) -> None:
        assert await store.list_keys() == []

    use(work)


def fill() -> None:
    """Write charges of two projects: one with costs, one without, and one that was counted."""

    async def work(store: Store) -> None:
        await key_of(store, "acme")
        await key_of(store, "bank")
        used = TokenCounts(1000, 200, 0, 300, 50)
        await charge(store, "acme", model="large", user="ann", cost=2 * DOLLAR, used=used)
        await charge(store, "acme", model="large", user="bob", cost=DOLLAR, basis="counted")
        await charge(store, "bank", model="local", cost=None, used=used)

    use(work)


def break_sum() -> None:
    """Change one cost behind the back of the ledger."""
    connection = sqlite3.connect(DB)
    with connection:
        connection.execute("UPDATE charges SET cost = cost + 1 WHERE cost IS NOT NULL")
    connection.close()
