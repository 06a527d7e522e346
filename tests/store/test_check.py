"""`antiphon store check` finds damage of every kind, and nothing in a store that is whole."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.backends.scripted import ScriptedBackend
from antiphon.cli import main
from antiphon.store import open_store
from antiphon.store.base import AuditRecord
from antiphon.store.encoding import compress_log, expand_log
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request
from tests.postgres import fresh_database
from tests.store.file_samples import add_file


async def _fill(url: str) -> None:
    """Use a store as a gateway does."""
    store = open_store(url)
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        for text in ("one", "two"):
            assert (await ask(gateway, input=text, stream=True)).status == 200
        talk = (await request(gateway, "POST", "/conversations", {})).json["id"]
        assert (await ask(gateway, input="hello", conversation=talk)).status == 200
        await add_file(store, "file-1", b"the content")
        await store.audit.append(AuditRecord(at=7, actor="me", action="a", subject="s"))
    await store.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "antiphon.db"
    asyncio.run(_fill(f"sqlite:{path}"))
    return path


def _check(store: Path | str) -> tuple[int, str]:
    url = store if isinstance(store, str) else f"sqlite:{store}"
    found = CliRunner().invoke(main, ["store", "check", url])
    return found.exit_code, found.stdout


def _change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount >= 1, statement


def _main(statement: str, *values: object) -> Callable[[Path], None]:
    return lambda path: _change(path, statement, *values)


def _cut_log(path: Path) -> None:
    """Take the end of a log away."""
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute("SELECT body FROM logs").fetchone()
    _change(path, "UPDATE logs SET body = ?", compress_log(expand_log(body)[:-1]))


def _gap_in_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute("SELECT body FROM logs").fetchone()
    _change(path, "UPDATE logs SET body = ?", compress_log(expand_log(body)[1:]))


def _content(path: Path) -> Path:
    (found,) = (one for one in path.with_name(f"{path.name}-blobs").iterdir() if one.is_file())
    return found


def _overwrite_page(path: Path) -> None:
    """Overwrite what a disk that fails may: a page in the middle of the file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'responses'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)


_DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a page": (_overwrite_page, "database: "),
    "a log": (_main("UPDATE logs SET body = x'00ff'"), "logs: the log of resp_"),
    "the end of a log": (_cut_log, "does not end"),
    "the beginning of a log": (_gap_in_log, "lacks events"),
    "a response": (_main("UPDATE responses SET body = x'7b'"), "cannot be read"),
    "an item": (_main("UPDATE items SET body = x'ff'"), "items: "),
    "an item of a conversation": (
        _main("UPDATE conversation_items SET body = x'5b5d'"),
        "conversation_items: ",
    ),
    "a lost response": (_main("DELETE FROM responses"), "items without their response"),
    "a lost conversation": (
        _main("DELETE FROM conversations"),
        "items without their conversation",
    ),
    "an end that was not written": (
        _main("UPDATE responses SET status = 'in_progress'"),
        "responses without an end and without a writer",
    ),
    "a sum": (_main("UPDATE usage_sums SET output = output + 1"), "ledger: I5"),
    "the audit log": (_main("UPDATE audit SET actor = 'somebody else'"), "audit: "),
    "a lost content": (lambda path: _content(path).unlink(), "is missing"),
    "a changed content": (
        lambda path: _content(path).write_bytes(b"the Content"),
        "differs from what was sent",
    ),
    "a short content": (lambda path: _content(path).write_bytes(b"the"), "has 3 bytes"),
    "a content without a file": (
        lambda path: (_content(path).parent / "blob-x").touch(),
        "belongs to no file",
    ),
    "a lost file": (
        lambda path: _change(path.with_name(f"{path.name}-files"), "DELETE FROM files"),
        "contents that no row names",
    ),
    "a backup that broke off": (
        lambda path: (_content(path).parent / "backup-1a2b").mkdir(),
        "was left by a backup",
    ),
}


def test_a_store_that_is_whole_has_no_findings(store: Path) -> None:
    before = store.read_bytes()
    assert _check(store) == (0, "")
    assert store.read_bytes() == before


@pytest.mark.parametrize("name", _DAMAGE)
def test_planted_damage_is_found(store: Path, name: str) -> None:
    plant, words = _DAMAGE[name]
    plant(store)
    code, shown = _check(store)
    assert code == 1
    assert words in shown


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database " * 500)
    found = CliRunner().invoke(main, ["store", "check", f"sqlite:{path}"])
    assert found.exit_code == 1
    assert "is not a database" in found.stderr


async def test_a_store_in_postgresql_is_checked_too() -> None:
    import asyncpg

    async with fresh_database() as url:
        await _fill(url)
        assert await asyncio.to_thread(_check, url) == (0, "")
        connection = await asyncpg.connect(url)
        await connection.execute("UPDATE logs SET body = '\\x00ff'")
        await connection.execute("UPDATE blob_pieces SET body = '\\x00ff'")
        await connection.execute("DELETE FROM conversations")
        await connection.close()
        code, shown = await asyncio.to_thread(_check, url)
    assert code == 1
    for words in ("logs: the log of resp_", "not those sent", "items without their conversation"):
        assert words in shown
