"""Every table has a class of retention, and the sweep removes what its class says, no more."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.gateway.upkeep import sweep
from antiphon.server.auth import new_key
from antiphon.server.limits import ServerLimits
from antiphon.store.base import Store
from antiphon.store.postgres import PostgresStore
from antiphon.store.retention import CLASSES, TABLES
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import ChatBackend, ScriptedUpstream
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request
from tests.postgres import fresh_database

DAY = 86_400
Count = Callable[[], Coroutine[Any, Any, dict[str, int]]]


@asynccontextmanager
async def _opened(kind: str, folder: Path) -> AsyncIterator[tuple[Store, Count]]:
    """Yield a store, and what counts the rows of each of its tables."""
    if kind == "sqlite":
        store = SqliteStore(folder / "a.db")

        async def count() -> dict[str, int]:
            return _count_sqlite(folder)

        yield store, count
        await store.close()
        return
    async with fresh_database() as url:
        shared = PostgresStore(url)

        async def count_rows() -> dict[str, int]:
            return await _count_postgres(url)

        yield shared, count_rows
        await shared.close()


def _count_sqlite(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.read_bytes()[:6] != b"SQLite":
            continue
        with sqlite3.connect(path) as connection:
            names = connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
            virtual = [name for name, sql in names if "VIRTUAL" in (sql or "").upper()]
            for name, _ in names:
                is_shadow = any(name.startswith(f"{one}_") for one in virtual)
                if not name.startswith("sqlite_") and name not in virtual and not is_shadow:
                    rows = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[
                        0
                    ]  # names of tables
                    found[name] = found.get(name, 0) + rows
        connection.close()
    return found


async def _count_postgres(url: str) -> dict[str, int]:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE nspname = current_schema() AND relkind IN ('r', 'p')"
            " AND NOT relispartition"
        )
        names = [row["relname"] for row in rows]
        return {
            name: await connection.fetchval(f'SELECT count(*) FROM "{name}"')  # names of tables
            for name in names
        }
    finally:
        await connection.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_every_table_has_a_class(tmp_path: Path, kind: str) -> None:
    async with _opened(kind, tmp_path) as (store, count):
        async with serve_gateway(ScriptedBackend(), store=store) as gateway:
            # The tables of files are made when the first is stored.
            made = await request(gateway, "POST", "/vector_stores", body=b'{"name": "n"}')
        found = await count()
    assert made.status == 200
    assert found["vector_stores"] == 1
    assert len(found) > 30
    assert {name for name in found if name not in TABLES} == set()


def test_the_page_lists_every_class() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "observe.md").read_text()
    part = page.partition("## What is kept how long")[2]
    listed = [line.split("`")[1] for line in part.splitlines() if line.startswith("| `")]
    assert sorted(listed) == sorted(CLASSES)


async def _fill(store: Store) -> str:
    """Leave rows of many classes; return the id of a response that was streamed."""
    key, record = new_key("ann", int(time.time()))
    await store.add_key(record)
    headers = {"Authorization": f"Bearer {key}"}
    settings = ServerSettings(keep_upstream_requests=True)
    async with (
        ScriptedUpstream() as upstream,
        serve_gateway(ChatBackend(upstream.base_url), store=store, settings=settings) as gateway,
    ):
        made = await request(gateway, "POST", "/conversations", body=b"{}", headers=headers)
        conversation = made.json["id"]
        await ask(gateway, headers, input="one two", stream=True, conversation=conversation)
        await ask(gateway, {**headers, "Idempotency-Key": "k"}, input="three", stream=True)
        whole = await ask(gateway, headers, input="four")
    return str(whole.json["id"])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_the_sweep_removes_what_its_class_says_and_nothing_else(
    tmp_path: Path, kind: str
) -> None:
    limits = ServerLimits(log_retention_days=7.0)
    async with _opened(kind, tmp_path) as (store, count):
        response = await _fill(store)
        now = int(time.time())
        await sweep(store, limits, now)
        full = await count()
        await sweep(store, limits, now + 8 * DAY)
        without_logs = await count()
        kept = await store.get("ann", response)
        await sweep(store, limits, now + 31 * DAY)
        without_content = await count()
        await sweep(store, limits, now + 401 * DAY)
        without_facts = await count()
    assert kept is not None
    for table in ("responses", "items", "logs", "claims", "charges", "usage_sums"):
        assert full[table] > 0, table
    for table in ("conversations", "conversation_items", "keys"):
        assert full[table] > 0, table
    assert full["rounds"] == 3
    assert _changed(full, without_logs) == {"log", "brief", "prompt"}
    assert without_logs["logs"] == 0
    assert _changed(without_logs, without_content) == {"content"}
    assert without_content["responses"] == without_content["items"] == 0
    assert _changed(without_content, without_facts) == {"facts"}
    assert without_facts["charges"] == 0


def _changed(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """Return the classes of tables that have lost rows; what a store needs itself may change."""
    changed: list[str] = [TABLES[name] for name in before if after.get(name, 0) != before[name]]
    return {*changed} - {"internal"}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_response_without_its_log_can_still_be_streamed(tmp_path: Path, kind: str) -> None:
    async with (
        _opened(kind, tmp_path) as (store, _),
        serve_gateway(ScriptedBackend(), store=store) as gateway,
    ):
        made = await ask(gateway, input="one two", stream=True)
        response = next(word for word in made.body.decode().split('"') if word[:5] == "resp_")
        before = await request(gateway, "GET", f"/responses/{response}?stream=true")
        assert await store.sweep_logs(int(time.time()) + DAY, 10) == 1
        assert await store.sweep_logs(int(time.time()) + DAY, 10) == 0
        after = await request(gateway, "GET", f"/responses/{response}?stream=true")
    assert b"response.completed" in before.body
    assert b"response.completed" in after.body
    assert b"one two" in after.body
