"""Copying a store: everything arrives as it was, or nothing does."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store import SqliteStore, open_store
from antiphon.store.base import Batch, Conversation, Intent
from antiphon.store.base.vector_stores import Search
from antiphon.store.copy import BadCopy, CopyRefused, copy_store, read_info
from antiphon.store.copy_tables import TABLES, Row, Table
from antiphon.store.sqlite import migrations
from antiphon.store.sqlite.copy import SqlitePlace
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.shared_inputs import write_out
from antiphon.store.versions import OlderDatabase
from tests.postgres import fresh_database
from tests.store.file_samples import (
    NOW,
    add_file,
    content,
    once,
    skill,
)
from tests.store.filling import MANY, PIECES, fill
from tests.store.samples import OWNER, ids, key, message, opened, run_turn
from tests.store.vector_samples import find_words, vector

_MADE_AGAIN = (
    "vector_gone",
    "vector_terms",
    "vector_blocks",
    "vector_waiting",
    "vector_lengths",
    "vector_loaded",
    "vector_dense",
)
_INDEXES = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE vector_words%'"


@pytest.fixture
async def postgres() -> AsyncIterator[str]:
    async with fresh_database() as url:
        yield url


async def copy(source: str, target: str, *, while_running: bool = False) -> dict[str, int]:
    return await copy_store(source, target, lambda *_: None, while_running=while_running)


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def dump_files(path: Path) -> tuple[list[str], dict[str, bytes]]:
    """Return the rows of the second database, and the contents that they name."""
    database = path.with_name(f"{path.name}-files")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("DELETE FROM blobs WHERE state <> 1")
        connection.execute("DELETE FROM erasure")
        for (index,) in connection.execute(_INDEXES).fetchall():
            connection.execute(f"DROP TABLE {index}")  # made again by a copy
        names = [name for (name,) in connection.execute("SELECT id FROM blobs ORDER BY key")]
        rows = [row for row in connection.iterdump() if "sqlite_sequence" not in row]
    folder = path.with_name(f"{path.name}-blobs")
    return rows, {name: (folder / name).read_bytes() for name in names}


async def filled(path: Path) -> str:
    store = SqliteStore(path)
    await fill(store)
    await store.close()
    return f"sqlite:{path}"


async def test_there_and_back_again_is_the_same_to_the_byte(tmp_path: Path, postgres: str) -> None:
    source = await filled(tmp_path / "a.db")
    there = await copy(source, postgres)
    back = await copy(postgres, f"sqlite:{tmp_path / 'b.db'}")
    assert there == back
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        write_out(connection)  # a copy shares nothing
    assert dump(tmp_path / "a.db") == dump(tmp_path / "b.db")
    assert dump_files(tmp_path / "a.db") == dump_files(tmp_path / "b.db")
    assert all(there.values())
    assert there["responses"] == MANY + 6


async def test_a_copy_does_not_wait_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of the target is made and written in turn with other writers: one at a time."""
    source, turns = await filled(tmp_path / "a.db"), []
    enter = WriteQueue.enter

    def noted(self: WriteQueue, seconds: float) -> bool:
        turns.append(enter(self, seconds))
        return turns[-1]

    monkeypatch.setattr(WriteQueue, "enter", noted)
    await copy(source, f"sqlite:{tmp_path / 'b.db'}")
    assert turns == [True] * 4


def columns_of(path: Path) -> dict[str, set[str]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            for (name,) in tables.fetchall()
        }


async def test_every_table_of_ours_is_copied(tmp_path: Path, postgres: str) -> None:
    copied = {table.name: set(table.columns) for table in TABLES}
    await filled(tmp_path / "a.db")
    found = columns_of(tmp_path / "a.db") | columns_of(tmp_path / "a.db-files")
    # SQLite has the contents of files in a folder.
    found["blob_pieces"] = {"blob", "position", "body"}
    # What inputs share is written out in a copy.
    del found["inputs"]
    found["responses"].remove("input")
    for about_the_file in ("erasure", "sqlite_sequence", "vector_gone", "vector_merges"):
        del found[about_the_file]
    found = {name: some for name, some in found.items() if not name.startswith("vector_words")}
    assert copied == found
    store = open_store(postgres)
    await store.ping()
    await store.close()
    connection = await asyncpg.connect(postgres)
    rows = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
    )
    await connection.close()
    there: dict[str, set[str]] = {}
    for table, column in rows:
        there.setdefault(table, set()).add(column)
    ours = ["nodes", "removals", "removal_counts", "antiphon_migrations", "antiphon_additions"]
    ours += _MADE_AGAIN
    partitions = [name for name in there if name.startswith(("log_", "charges_"))]
    for name in ours + partitions:
        del there[name]
    for table in ("keys", "secrets"):
        there[table].remove("number")
    assert copied == there


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_copy_is_served_like_its_source(
    tmp_path: Path, postgres: str, is_back: bool
) -> None:
    target = postgres
    await copy(await filled(tmp_path / "a.db"), postgres)
    if is_back:
        target = f"sqlite:{tmp_path / 'b.db'}"
        await copy(postgres, target)
    store = open_store(target)
    history = await store.history(OWNER, "r2")
    assert history is not None
    assert ids(history.items) == ["in-r1", "out-r1", "in-r2", "out-r2"]
    assert await store.find_item(OWNER, "i\x003") == message("i\x003", "\x00")
    log = await store.read_log(OWNER, "r3")
    assert log is not None
    assert log.batches == [Batch(0, 1, b"\x00a"), Batch(2, 2, b"b")]
    assert ids(await store.conversations.items(OWNER, "c1")) == ["i1", "i\x002"]
    assert await store.native_states.find(OWNER, ["call"], 9) == {"call": b"\x00\xff"}
    assert await store.tool_calls.find(OWNER, "r3") == [Intent("c", "mcp", b"\x00\xff")]
    assert not await store.tool_calls.claim_approval(OWNER, "mcpr_1", "r9", 9)
    assert await store.secret("z", b"other") == b"z"
    assert [record.id for record in await store.list_keys()] == ["z", "a", "r"]
    found = await store.files.find(OWNER, ["f0", "f1", "f2"], NOW)
    assert {name: await content(store, one.blob) for name, one in found.items()} == {
        "f1": PIECES,
        "f2": b"",
    }
    assert found["f1"].filename == "\x00 ü"
    assert await store.files.claimed(OWNER, once()) is not None
    [inside] = await store.containers.files(OWNER, "c1", limit=9, is_descending=False)
    assert inside.path == "/mnt/data/\udcff"
    assert await content(store, inside.blob) == b"inside"
    assert await store.skills.find(OWNER, "s1") == skill("s1")
    await add_file(store, "f9")
    orphans = await store.claim_orphans(MANY + 10)
    assert len(orphans) == MANY + 1
    [left] = [orphan for orphan in orphans if orphan.response.id == "r4"]
    assert (left.request, left.is_cancelled) == (b"{}", True)
    assert left.batches == [Batch(0, 0, b"x"), Batch(1, 3, b"y")]
    # What is added gets a key of its own, behind those that were copied.
    await run_turn(store, "new")
    await store.append(OWNER, "r4", Batch(4, 4, b"z"))
    new = Conversation("c2", 5)
    await store.conversations.create(OWNER, new, [message("i9")])
    assert await store.get("bob", "m0") is not None
    assert ids(await store.input_items(OWNER, "new")) == ["in-new"]
    await store.close()


async def test_a_copy_is_searched_like_its_source(tmp_path: Path, postgres: str) -> None:
    source = await filled(tmp_path / "a.db")
    await copy(source, postgres)
    await copy(postgres, f"sqlite:{tmp_path / 'b.db'}")
    for url in (source, postgres, f"sqlite:{tmp_path / 'b.db'}"):
        store = open_store(url)
        assert [one.file_id for one in await find_words(store, "needle", owner=OWNER)] == ["v1"]
        search = Search(store_ids=["vs_1"], words=[], vector=vector(1, 0), embedding="e", limit=1)
        (nearest,) = await store.vector_stores.search(OWNER, search)
        assert (nearest.file_id, nearest.place) == ("v1", 0)
        assert await store.vector_stores.remove(OWNER, "vs_1")
        await store.close()


async def test_a_target_that_holds_something_is_refused(tmp_path: Path, postgres: str) -> None:
    source = await filled(tmp_path / "a.db")
    store = open_store(postgres)
    await store.add_key(key("mine"))
    await store.close()
    with pytest.raises(CopyRefused, match="not empty: it has 1 rows in keys"):
        await copy(source, postgres)
    with pytest.raises(CopyRefused, match="not empty"):
        await copy(source, source)
    info = await read_info(postgres)
    assert (info.counts["keys"], info.counts["responses"]) == (1, 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_turns_of_a_running_gateway_are_not_torn_from_it(
    kind: str, tmp_path: Path, postgres: str
) -> None:
    source = postgres if kind == "postgres" else f"sqlite:{tmp_path / 'a.db'}"
    target = f"sqlite:{tmp_path / 'b.db'}"
    store = open_store(source)
    await store.begin(OWNER, opened("r1"), [], batch=Batch(0, 0, b"x"))
    info = await read_info(source)
    assert (info.unfinished, info.busy, info.alive) == (1, 1, 1)
    with pytest.raises(CopyRefused, match="a gateway runs on the source"):
        await copy(source, target)
    assert not await asyncio.to_thread((tmp_path / "b.db").exists)
    assert (await copy(source, target, while_running=True))["responses"] == 1
    await store.close()
    info = await read_info(source)
    assert (info.unfinished, info.busy, info.alive) == (1, 0, 0)
    assert info.size > 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_gateway_that_has_nothing_to_do_is_seen_too(
    kind: str, tmp_path: Path, postgres: str
) -> None:
    """What waits for its first word is in no table yet."""
    source = postgres if kind == "postgres" else f"sqlite:{tmp_path / 'a.db'}"
    target = f"sqlite:{tmp_path / 'b.db'}"
    stores = [open_store(source), open_store(source)]
    for store in stores:
        await store.ping()
    with pytest.raises(CopyRefused, match=r"its workers: 2\): stop it first"):
        await copy(source, target)
    for store in stores:
        await store.close()
    assert (await copy(source, target))["responses"] == 0


async def test_the_sign_of_a_gateway_that_was_killed_is_no_gateway(tmp_path: Path) -> None:
    source = await filled(tmp_path / "a.db")
    (tmp_path / "a.db-alive-0123456789abcdef").touch()
    assert (await read_info(source)).alive == 0
    await copy(source, f"sqlite:{tmp_path / 'b.db'}")


async def test_a_file_that_is_only_read_is_left_at_its_version(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrations.migrate(
            connection, migrations.Schema(migrations.APPLICATION_ID, migrations.MIGRATIONS[:1])
        )
    before = dump(path)
    target = tmp_path / "b.db"
    for attempt in (read_info(f"sqlite:{path}"), copy(f"sqlite:{path}", f"sqlite:{target}")):
        with pytest.raises(OlderDatabase, match=r"has version 1 .*`antiphon store migrate"):
            await attempt
    assert dump(path) == before
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert not await asyncio.to_thread(target.exists)
    await SqliteStore(path).close()
    assert (await read_info(f"sqlite:{path}")).counts["responses"] == 0


async def test_a_database_that_is_only_read_is_left_without_tables(
    tmp_path: Path, postgres: str
) -> None:
    for attempt in (read_info(postgres), copy(postgres, f"sqlite:{tmp_path / 'b.db'}")):
        with pytest.raises(OlderDatabase, match="has version 0"):
            await attempt
    connection = await asyncpg.connect(postgres)
    assert await connection.fetchval("SELECT to_regclass('responses')") is None
    await connection.close()


async def test_a_copy_that_differs_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await filled(tmp_path / "a.db"), f"sqlite:{tmp_path / 'b.db'}"
    write = SqlitePlace.write

    async def forgetful(self: SqlitePlace, table: Table, rows: list[Row]) -> None:
        await write(self, table, rows[1:] if table.name == "items" else rows)

    monkeypatch.setattr(SqlitePlace, "write", forgetful)
    with pytest.raises(BadCopy, match="table items differs from its source"):
        await copy(source, target)
    assert not any((await read_info(target)).counts.values())


async def test_no_content_is_left_of_a_copy_that_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = await filled(tmp_path / "a.db"), f"sqlite:{tmp_path / 'b.db'}"
    write_rows = SqlitePlace.write

    async def forgetful(self: SqlitePlace, table: Table, rows: list[Row]) -> None:
        await write_rows(self, table, rows[1:] if table.name == "skills" else rows)

    monkeypatch.setattr(SqlitePlace, "write", forgetful)
    with pytest.raises(BadCopy, match="table skills differs from its source"):
        await copy(source, target)
    assert not any((await read_info(target)).counts.values())
    left = await asyncio.to_thread(lambda: [*(tmp_path / "b.db-blobs").rglob("*")])
    assert left == [tmp_path / "b.db-blobs" / "new"]


async def test_a_store_without_files_gets_none_by_a_copy(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    await run_turn(store, "r1")
    await store.close()
    await copy(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'b.db'}")
    found = await asyncio.to_thread(lambda: sorted(one.name for one in tmp_path.iterdir()))
    assert found == ["a.db", "b.db"]


async def test_a_copy_without_its_contents_is_refused(tmp_path: Path) -> None:
    source = await filled(tmp_path / "a.db")
    await asyncio.to_thread(shutil.rmtree, tmp_path / "a.db-blobs")
    with pytest.raises(StoreUnavailable, match="content of a file is missing in the folder"):
        await copy(source, f"sqlite:{tmp_path / 'b.db'}")
    store = open_store(source)
    [one] = (await store.files.find(OWNER, ["f1"], NOW)).values()
    with pytest.raises(StoreUnavailable, match="restore the folder"):
        await content(store, one.blob)
    await store.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("memory:", "exists only inside its own gateway"),
        ("redis://x", "name a store as sqlite:PATH"),
        ("sqlite:", "name a store as sqlite:PATH"),
        ("sqlite:missing.db", "there is no file missing.db"),
    ],
)
async def test_what_cannot_be_copied_is_said(
    url: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=sentence):
        await copy(url, "sqlite:b.db")
    assert not (tmp_path / "missing.db").exists()


async def test_a_place_that_fails_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(b"no database at all, only some bytes" * 100)
    with pytest.raises(StoreUnavailable, match="is not a database"):
        await read_info(f"sqlite:{tmp_path / 'a.db'}")
    with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
        await read_info(f"postgresql://u:secret@/db?host={tmp_path}")
    assert "secret" not in str(caught.value)
