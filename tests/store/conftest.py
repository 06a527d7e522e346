"""Every kind of store, for the tests that all of them must pass.

`store` is one store; `database` opens several on the same data. To add a kind, name it in
KINDS and open it in `Database.open`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from antiphon.store import MemoryStore, SqliteStore
from antiphon.store.base import Store
from antiphon.store.postgres import PostgresStore
from tests.postgres import fresh_database

__all__ = ["KINDS", "LEDGER_KINDS", "Database", "open_database"]

KINDS: Final = ("memory", "sqlite", "postgres")
# A store on a server opens nothing before it is used.
_HAS_SERVED_LEDGER: Final = hasattr(PostgresStore("postgresql://localhost/none"), "ledger")
LEDGER_KINDS: Final = KINDS if _HAS_SERVED_LEDGER else KINDS[:2]
"""The kinds that have a ledger."""


class Database:
    """A place where stores keep things. In memory, there is one store, opened once."""

    def __init__(self, kind: str, directory: Path, url: str = "") -> None:
        self.kind = kind
        self.path = directory / "a.db"
        self.url = url
        self._stores: list[Store] = []

    @property
    def is_shared(self) -> bool:
        """Whether several stores may be opened here."""
        return self.kind != "memory"

    async def open(self) -> Store:
        """Return another store on the same data, which is closed with the test."""
        if self.kind == "memory" and self._stores:
            return self._stores[0]
        made: Store = MemoryStore()
        if self.kind == "sqlite":
            made = SqliteStore(self.path)
        elif self.kind == "postgres":
            made = PostgresStore(self.url)
        self._stores.append(made)
        return made

    async def close(self) -> None:
        """Close every store."""
        for made in self._stores:
            await made.close()


@asynccontextmanager
async def open_database(kind: str, directory: Path) -> AsyncIterator[Database]:
    """A database of this kind, which is closed at the end."""
    async with AsyncExitStack() as stack:
        is_served = kind == "postgres"
        url = await stack.enter_async_context(fresh_database()) if is_served else ""
        made = Database(kind, directory, url)
        yield made
        await made.close()


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database of each kind."""
    async with open_database(request.param, tmp_path) as made:
        yield made


@pytest.fixture
async def store(database: Database) -> Store:
    """One store of each kind."""
    return await database.open()


@pytest.fixture
async def pair(database: Database) -> tuple[Store, Store]:
    """Two stores on one database, for kinds that can."""
    if not database.is_shared:
        pytest.skip("there is one store, and nothing to share")
    return await database.open(), await database.open()
