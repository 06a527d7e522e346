"""`antiphon store backup`, `stats` and `migrate`: what they refuse, and what they leave alone."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.store import SqliteStore, open_store
from antiphon.store.retention import TABLES
from antiphon.store.sqlite import migrations
from antiphon.store.sqlite.backup import backup
from tests.postgres import fresh_database
from tests.store.file_samples import add_file, content
from tests.store.filling import fill
from tests.store.samples import OWNER


def _store(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["store", *arguments])


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    path = tmp_path / "antiphon.db"

    async def run() -> None:
        store = open_store(f"sqlite:{path}")
        await fill(store)
        await store.close()

    asyncio.run(run())
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database of the first version."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        first = migrations.Schema(migrations.APPLICATION_ID, migrations.MIGRATIONS[:1])
        migrations.migrate(connection, first)
    return path


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_backup_has_every_row_and_every_content(filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    done = _store("backup", str(target), f"sqlite:{filled}")
    assert done.exit_code == 0, done.stderr
    assert _dump(target) == _dump(filled)
    files = (path.with_name(f"{path.name}-files") for path in (target, filled))
    one, other = map(_dump, files)
    assert one == other
    folders = [path.with_name(f"{path.name}-blobs") for path in (target, filled)]
    copied, kept = (
        {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
        for folder in folders
    )
    with closing(sqlite3.connect(target.with_name(f"{target.name}-files"))) as connection:
        named = {name for (name,) in connection.execute("SELECT id FROM blobs WHERE state = 1")}
    assert copied == {name: kept[name] for name in named} != {}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert stat.S_IMODE(folders[0].stat().st_mode) == 0o700
    assert not list(tmp_path.glob(".backup*"))
    assert not list(folders[1].glob("backup-*"))


@pytest.mark.parametrize("name", ["backup.db", "backup.db-files", "backup.db-blobs"])
def test_a_backup_overwrites_nothing(filled: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    done = _store("backup", str(tmp_path / "backup.db"), f"sqlite:{filled}")
    assert done.exit_code == 1
    assert f"{name} exists: a backup overwrites nothing" in done.stderr
    assert (tmp_path / name).read_text() == "precious"


def test_a_backup_that_breaks_off_leaves_nothing(filled: Path, tmp_path: Path) -> None:
    target = tmp_path / "there" / "backup.db"
    target.parent.mkdir()

    def break_off(what: str, done: int, total: int) -> None:
        if what == "contents of files" and done:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        backup(filled, target, break_off)
    assert list(target.parent.iterdir()) == []
    assert not list(filled.with_name(f"{filled.name}-blobs").glob("backup-*"))


async def test_a_file_that_is_deleted_during_a_backup_is_in_it(tmp_path: Path) -> None:
    source, target = tmp_path / "antiphon.db", tmp_path / "backup.db"
    store = SqliteStore(source)
    kept = await add_file(store, "file-1", b"the content")
    loop = asyncio.get_running_loop()

    def delete_now(what: str, done: int, total: int) -> None:
        if what == "contents of files" and not done:
            removing = store.files.remove(OWNER, "file-1")
            assert asyncio.run_coroutine_threadsafe(removing, loop).result(60)

    await asyncio.to_thread(backup, source, target, delete_now)
    assert await store.files.find(OWNER, ["file-1"], 0) == {}
    await store.close()
    copy = SqliteStore(target)
    assert list(await copy.files.find(OWNER, ["file-1"], 0)) == ["file-1"]
    assert await content(copy, kept.blob) == b"the content"
    await copy.close()


def test_an_old_store_can_be_backed_up_before_it_is_upgraded(old: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    assert _store("backup", str(target), f"sqlite:{old}").exit_code == 0
    assert _dump(target) == _dump(old)


def test_a_backup_of_a_database_server_is_made_by_the_server(tmp_path: Path) -> None:
    done = _store("backup", str(tmp_path / "b.dump"), "postgresql://me:hush@db/antiphon")
    assert done.exit_code == 2
    assert f"pg_dump --format=custom --file={tmp_path / 'b.dump'}" in done.stderr
    assert "'postgresql://me@db/antiphon'" in done.stderr


def test_a_check_of_migrations_writes_nothing(old: Path) -> None:
    before = _dump(old)
    pending = _store("migrate", "--check", f"sqlite:{old}")
    assert pending.exit_code == 1
    newest = len(migrations.MIGRATIONS)
    assert f"{old}: version 1, the newest is {newest}:" in pending.stdout
    assert "  CREATE TABLE conversations\n" in pending.stdout
    assert _dump(old) == before
    assert not list(old.parent.glob("old.db-*"))

    done = _store("migrate", f"sqlite:{old}")
    assert (done.exit_code, done.stderr) == (0, f"{old}: from version 1 to {newest}.\n")
    assert _store("migrate", "--check", f"sqlite:{old}").exit_code == 0
    assert _store("check", f"sqlite:{old}").exit_code == 0


def test_a_store_that_is_not_there_is_not_made_by_a_check(tmp_path: Path) -> None:
    pending = _store("migrate", "--check", f"sqlite:{tmp_path / 'none.db'}")
    assert pending.exit_code == 1
    assert "not there yet" in pending.stdout
    assert list(tmp_path.iterdir()) == []


async def test_a_database_server_is_migrated_apart_from_a_start() -> None:
    async with fresh_database() as url:
        pending = await asyncio.to_thread(_store, "migrate", "--check", url)
        assert pending.exit_code == 1 and "CREATE TABLE responses" in pending.stdout
        again = await asyncio.to_thread(_store, "migrate", "--check", url)
        assert again.exit_code == 1  # nothing was written
        assert (await asyncio.to_thread(_store, "migrate", url)).exit_code == 0
        assert (await asyncio.to_thread(_store, "migrate", "--check", url)).exit_code == 0


def _rows(shown: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in shown.splitlines()[1:-1]}


def test_statistics_have_every_table_with_its_class(filled: Path) -> None:
    done = _store("stats", f"sqlite:{filled}")
    assert done.exit_code == 0, done.stderr
    rows = _rows(done.stdout)
    assert {name: row[1] for name, row in rows.items() if name in TABLES}.items() <= TABLES.items()
    assert {"responses", "items", "logs", "charges", "files", "blobs", "contents"} <= rows.keys()
    assert rows["responses"][2:] == ["456", rows["responses"][3], "1970-01-01"]
    assert int(rows["responses"][3].replace(",", "")) > 10_000
    assert "-" not in (rows[name][4] for name in ("charges", "usage_sums", "audit", "files"))


async def test_statistics_of_a_database_server_have_the_same_tables(tmp_path: Path) -> None:
    async with fresh_database() as url:
        store = open_store(url)
        await fill(store)
        await store.close()
        done = await asyncio.to_thread(_store, "stats", url)
    assert done.exit_code == 0, done.stderr
    rows = _rows(done.stdout)
    assert {"responses", "items", "logs", "charges", "files", "blob_pieces", "nodes"} <= rows.keys()
    assert rows["responses"][2] == "456"
