"""Migrations: from every version upward, never from a newer one, all or nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.response import Response
from antiphon.store import SqliteStore
from antiphon.store.base import Batch, KeyRecord
from antiphon.store.downgrade import LevelRefused, allow_older
from antiphon.store.encoding import compress_log
from antiphon.store.sqlite.migrations import (
    MIGRATIONS,
    OLDEST_LEVEL,
    STORE,
    ForeignDatabase,
    check_version,
    is_newest,
    migrate,
)
from antiphon.store.versions import NewerDatabase
from tests.store.samples import OWNER, ids, run_turn

NEXT = ("ALTER TABLE responses ADD COLUMN colour TEXT", "CREATE TABLE extra (id INTEGER)")
NEXT_STORE = STORE._replace(migrations=(*MIGRATIONS, NEXT))
NONSENSE = STORE._replace(migrations=(*MIGRATIONS, (*NEXT, "CREATE NONSENSE")))


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
        migrate(connection, STORE._replace(migrations=MIGRATIONS[:old]))
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
        migrate(connection, NEXT_STORE)
        assert connection.execute("SELECT id, colour FROM responses").fetchall() == [("r1", None)]
        assert version(connection) == len(MIGRATIONS) + 1


VERSION_1 = """
CREATE TABLE responses (
    key INTEGER PRIMARY KEY, owner TEXT NOT NULL, id TEXT NOT NULL, parent TEXT,
    status TEXT NOT NULL, writer TEXT, created_at INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE (owner, id));
CREATE INDEX responses_by_time ON responses (created_at);
CREATE INDEX responses_by_writer ON responses (writer) WHERE writer IS NOT NULL;
CREATE TABLE items (
    response INTEGER NOT NULL, kind INTEGER NOT NULL, position INTEGER NOT NULL,
    owner TEXT NOT NULL, id TEXT, body BLOB NOT NULL,
    PRIMARY KEY (response, kind, position)) WITHOUT ROWID;
CREATE INDEX items_by_id ON items (owner, id);
CREATE TABLE keys (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, digest BLOB NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER, revoked_at INTEGER, name TEXT NOT NULL);
PRAGMA application_id = 1634628713;
PRAGMA user_version = 1;
INSERT INTO responses VALUES
    (1, 'alice', 'r1', NULL, 'completed', NULL, 1000, '{"id":"r1","status":"completed"}'),
    (2, 'alice', 'r2', 'r1', 'in_progress', 'a-store-that-is-gone', 1001, '{"id":"r2"}');
INSERT INTO items VALUES
    (1, 0, 0, 'alice', 'in-r1', '{"type":"message","id":"in-r1"}'),
    (1, 1, 0, 'alice', 'out-r1', '{"type":"message","id":"out-r1"}'),
    (2, 0, 0, 'alice', 'in-r2', '{"type":"message","id":"in-r2"}');
INSERT INTO keys VALUES ('k1', 'alice', x'00ff', 1, NULL, NULL, 'laptop');
"""


async def test_a_file_of_version_1_loses_nothing(tmp_path: Path) -> None:
    """As that version wrote it, independent of our present statements."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1)
    store = SqliteStore(path)
    history = await store.history(OWNER, "r2")
    assert history is not None
    assert (ids(history.items), history.missing) == (["in-r1", "out-r1", "in-r2"], None)
    assert await store.find_key("k1") == KeyRecord("k1", OWNER, b"\x00\xff", 1, name="laptop")
    log = await store.read_log(OWNER, "r1")
    assert log is not None
    assert (log.response.status, log.is_kept) == ("completed", False)
    assert [orphan.response.id for orphan in await store.claim_orphans(10)] == ["r2"]
    await store.append(OWNER, "r2", Batch(0, 0, b"x"))
    await store.finish(OWNER, Response(id="r2", status="failed"))
    assert await store.delete(OWNER, "r1") is True
    assert await store.find_item(OWNER, "out-r1") is None
    await store.close()


VERSION_2 = """
CREATE TABLE log (
    key INTEGER PRIMARY KEY, response INTEGER NOT NULL, first INTEGER NOT NULL,
    last INTEGER NOT NULL, owner TEXT NOT NULL, body BLOB NOT NULL);
CREATE INDEX log_by_response ON log (response, first);
CREATE TABLE logs (response INTEGER PRIMARY KEY, owner TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE jobs (
    response INTEGER PRIMARY KEY, owner TEXT NOT NULL, is_cancelled INTEGER NOT NULL, request BLOB);
CREATE INDEX jobs_by_wish ON jobs (response) WHERE is_cancelled;
CREATE TABLE conversations (
    key INTEGER PRIMARY KEY, owner TEXT NOT NULL, id TEXT NOT NULL, locked_by TEXT, writer TEXT,
    body BLOB NOT NULL, UNIQUE (owner, id));
CREATE INDEX conversations_by_lock ON conversations (owner, locked_by)
    WHERE locked_by IS NOT NULL;
CREATE TABLE conversation_items (
    conversation INTEGER NOT NULL, position INTEGER NOT NULL, owner TEXT NOT NULL,
    id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (conversation, position), UNIQUE (conversation, id)) WITHOUT ROWID;
CREATE INDEX conversation_items_by_id ON conversation_items (owner, id);
CREATE TABLE claims (
    owner TEXT NOT NULL, token TEXT NOT NULL, digest BLOB NOT NULL, response TEXT NOT NULL,
    created_at INTEGER NOT NULL, writer TEXT NOT NULL, PRIMARY KEY (owner, token)) WITHOUT ROWID;
CREATE INDEX claims_by_response ON claims (owner, response);
CREATE INDEX claims_by_time ON claims (created_at);
CREATE TABLE notices (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, response TEXT NOT NULL,
    type TEXT NOT NULL, created_at INTEGER NOT NULL, endpoint TEXT NOT NULL,
    attempts INTEGER NOT NULL, due_at INTEGER NOT NULL);
CREATE INDEX notices_by_due ON notices (endpoint, due_at);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE erasure (due INTEGER NOT NULL, done INTEGER NOT NULL);
INSERT INTO erasure VALUES (3, 3);
PRAGMA user_version = 2;
INSERT INTO responses VALUES
    (3, 'alice', 'r3', NULL, 'in_progress', 'a-store-that-is-gone', 1002, '{"id":"r3"}'),
    (4, 'alice', 'r4', NULL, 'completed', NULL, 1003, '{"id":"r4","status":"completed"}');
INSERT INTO log VALUES
    (4, 2, 0, 1, 'alice', x'00ff'), (5, 3, 0, 0, 'alice', 'a'), (6, 4, 0, 0, 'alice', 'closed'),
    (7, 2, 2, 2, 'alice', 'two'), (8, 3, 1, 5, 'alice', x''), (9, 4, 1, 1, 'alice', 'closed'),
    (11, 2, 3, 3, 'alice', 'three');
UPDATE log SET body = CAST(body AS BLOB);
INSERT INTO jobs VALUES (3, 'alice', 1, CAST('request' AS BLOB));
"""


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """A file as version 2 wrote it, with open logs and the rows of one that was closed."""
    path = tmp_path / "a.db"
    whole = compress_log([Batch(0, 0, b"closed"), Batch(1, 1, b"closed"), Batch(2, 2, b"end")])
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(VERSION_1 + VERSION_2)
        connection.execute("INSERT INTO logs VALUES (4, 'alice', ?)", (whole,))
        connection.commit()
    return path


async def test_open_logs_of_version_2_are_recovered_whole(second: Path) -> None:
    store = SqliteStore(second)
    log = await store.read_log(OWNER, "r2", 1)
    assert log is not None
    assert log.batches == [Batch(2, 2, b"two"), Batch(3, 3, b"three")]
    logs = {
        "r2": [Batch(0, 1, b"\x00\xff"), Batch(2, 2, b"two"), Batch(3, 3, b"three")],
        "r3": [Batch(0, 0, b"a"), Batch(1, 5, b"")],
    }
    orphans = await store.claim_orphans(10)
    assert {orphan.response.id: orphan.batches for orphan in orphans} == logs
    assert [(orphan.request, orphan.is_cancelled) for orphan in orphans] == [
        (None, False),
        (b"request", True),
    ]
    assert await store.append(OWNER, "r2", Batch(4, 4, b"four")) is False
    assert await store.append(OWNER, "r3", Batch(6, 6, b"six")) is True
    for name, last in (("r2", 5), ("r3", 7)):
        await store.finish(
            OWNER, Response(id=name, status="failed"), batch=Batch(last, last, b"end")
        )
    for name, numbers in (("r2", [0, 2, 3, 4, 5]), ("r3", [0, 1, 6, 7]), ("r4", [0, 1, 2])):
        log = await store.read_log(OWNER, name)
        assert log is not None
        assert [batch.first for batch in log.batches] == numbers
        assert log.batches[-1].body == b"end"
    await store.close()
    with closing(sqlite3.connect(second)) as connection:
        assert connection.execute("SELECT count(*) FROM log").fetchone() == (0,)


def test_rows_of_version_2_keep_their_keys_and_no_later_row_gets_one_of_them(
    second: Path,
) -> None:
    with closing(sqlite3.connect(second, isolation_level=None)) as connection:
        before = connection.execute("SELECT * FROM log").fetchall()
        migrate(connection)
        assert connection.execute("SELECT * FROM log").fetchall() == before
        connection.execute("DELETE FROM log")
        row = "INSERT INTO log (response, first, last, owner, body) VALUES (1, 0, 0, 'a', x'')"
        assert connection.execute(row).lastrowid == 12
        indexes = connection.execute("SELECT name FROM pragma_index_list('log')").fetchall()
        assert indexes == []


@pytest.mark.parametrize(("rows", "due"), [("", 0), (VERSION_1, 1)])
def test_what_an_old_version_deleted_is_still_to_be_erased(
    connection: sqlite3.Connection, rows: str, due: int
) -> None:
    connection.executescript(rows)
    migrate(connection)
    assert connection.execute("SELECT due, done FROM erasure").fetchall() == [(due, 0)]


def test_the_newest_version_is_left_alone(connection: sqlite3.Connection) -> None:
    migrate(connection)
    before = connection.total_changes
    migrate(connection)
    assert connection.total_changes == before


def test_a_migration_that_fails_leaves_the_old_version(connection: sqlite3.Connection) -> None:
    migrate(connection)
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, NONSENSE)
    assert version(connection) == len(MIGRATIONS)
    assert not connection.in_transaction
    assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'extra'").fetchall()


def test_a_newer_version_is_refused(connection: sqlite3.Connection) -> None:
    migrate(connection, NEXT_STORE)
    with pytest.raises(NewerDatabase, match="upgrade antiphon") as caught:
        migrate(connection)
    assert (caught.value.version, caught.value.known) == (len(MIGRATIONS) + 1, len(MIGRATIONS))


async def test_a_database_with_more_additions_only_is_used(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, NEXT_STORE._replace(additions={len(MIGRATIONS) + 1}))
        store = SqliteStore(path)
        ended = await run_turn(store, "r1")
        assert await store.get(OWNER, "r1") == ended
        await store.close()
        with pytest.raises(NewerDatabase):  # a copy would lack what was added
            check_version(connection)


async def test_an_older_one_is_allowed_to_start_and_nothing_is_migrated_twice(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    old = STORE._replace(migrations=MIGRATIONS[:OLDEST_LEVEL])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection)
        with pytest.raises(NewerDatabase):
            is_newest(connection, old)
        await allow_older(f"sqlite:{path}", OLDEST_LEVEL)
        assert is_newest(connection, old)
        migrate(connection)
        assert version(connection) == OLDEST_LEVEL
        with pytest.raises(LevelRefused, match=f"from {OLDEST_LEVEL} to {OLDEST_LEVEL}"):
            await allow_older(f"sqlite:{path}", OLDEST_LEVEL - 1)
        migrate(connection, NEXT_STORE)
        assert version(connection) == len(MIGRATIONS) + 1


def test_a_database_of_another_program_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(ForeignDatabase, match="another program"):
        migrate(connection)
    assert version(connection) == 0


async def test_the_store_names_the_file_it_refuses(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate(connection, NEXT_STORE)
    with pytest.raises(StoreUnavailable, match=r"a\.db: the database has version .* upgrade"):
        SqliteStore(path)
