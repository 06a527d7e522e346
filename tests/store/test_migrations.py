"""Migrations: from every version upward, never from a newer one, all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import SqliteStore
from antiphon.store.migrations import MIGRATIONS, ForeignDatabase, NewerDatabase, migrate
from tests.store.samples import OWNER, run_turn

NEXT = ("ALTER TABLE responses ADD COLUMN colour TEXT", "CREATE TABLE extra (id INTEGER)")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        yield made


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("old", range(1, len(MIGRATIONS) + 1))
async def test_every_old_version_becomes_the_newest(old: int, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, MIGRATIONS[:old])
        assert version(connection) == old
    store = SqliteStore(path)
    ended = await run_turn(store, "r1")
    assert await store.get(OWNER, "r1") == ended
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert version(connection) == len(MIGRATIONS)


async def test_rows_survive_a_migration(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path)
    await run_turn(store, "r1")
    await store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, (*MIGRATIONS, NEXT))
        assert connection.execute("SELECT id, colour FROM responses").fetchall() == [("r1", None)]
        assert version(connection) == len(MIGRATIONS) + 1


def test_the_newest_version_is_left_alone(connection: sqlite3.Connection) -> None:
    migrate(connection)
    before = connection.total_changes
    migrate(connection)
    assert connection.total_changes == before


def test_a_migration_that_fails_leaves_the_old_version(connection: sqlite3.Connection) -> None:
    migrate(connection)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, (*MIGRATIONS, (*NEXT, "CREATE NONSENSE")))
    assert version(connection) == len(MIGRATIONS)
    assert not connection.in_transaction
    assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'extra'").fetchall()


def test_a_newer_version_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection, (*MIGRATIONS, NEXT))
    with pytest.raises(NewerDatabase, match="upgrade antiphon") as caught:
        migrate(connection)
    assert (caught.value.version, caught.value.known) == (len(MIGRATIONS) + 1, len(MIGRATIONS))


def test_a_database_of_another_program_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(ForeignDatabase, match="another program"):
        migrate(connection)
    assert version(connection) == 0


async def test_the_store_names_the_file_it_refuses(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, (*MIGRATIONS, NEXT))
    with pytest.raises(StoreUnavailable, match=r"a\.db: the database has version .* upgrade"):
        SqliteStore(path)
