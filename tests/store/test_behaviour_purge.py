"""A purge leaves nothing of an owner, in any table, and everything of the others."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from antiphon.store.base import AuditQuery, AuditRecord, Conversation, Project, Store
from antiphon.store.base.audit import NO_DIGEST
from tests.store.conftest import Database
from tests.store.filling import MANY, fill
from tests.store.samples import OWNER, key, message, run_turn

# Tables without an owner: what their rows belong to is removed, or they belong to nobody.
_OF_NO_OWNER = {
    "projects",  # its id is the owner
    # The ledger stays: it has no content.
    *("names", "charges", "charges_held", "charges_ended"),
    *("budgets", "rate_limits", "usage_sums", "ledger_marks"),
    "audit",
    "secrets",
    "erasure",
    "nodes",
    "removals",
    "removal_counts",
    "antiphon_migrations",
    "antiphon_additions",
    "blob_pieces",
    "vector_attributes",
    "vector_batches",
    "vector_chunks",
    "vector_vectors",
    "vector_gone",
    "vector_merges",
    "vector_blocks",
    "vector_terms",
    "vector_waiting",
    "vector_lengths",
    "vector_loaded",
    "vector_dense",
}
_CONTENT = {
    "blob_pieces",
    "vector_attributes",
    "vector_batches",
    "vector_chunks",
    "vector_vectors",
    "vector_blocks",
    "vector_waiting",
    "vector_dense",
}
RECORD = AuditRecord(at=9, actor="cli:root", action="project.purged", subject=OWNER)


async def count_all(database: Database) -> dict[str, tuple[int, int]]:
    """Return the rows of each table, and those of the owner, as the database shows them."""
    if database.kind == "sqlite":
        files = database.path.with_name("a.db-files")
        return _count_sqlite(database.path) | _count_sqlite(files)
    connection = await asyncpg.connect(database.url)
    try:
        names = await connection.fetch(
            "SELECT table_name, bool_or(column_name = 'owner') FROM information_schema.columns"
            " WHERE table_schema = current_schema() GROUP BY 1"
        )
        counts = {}
        for name, has_owner in names:
            own = f"count(*) FILTER (WHERE owner = '{OWNER}')" if has_owner else "-1"
            row = await connection.fetchrow(f"SELECT count(*), {own} FROM {name}")
            counts[name] = (row[0], row[1])
        return counts
    finally:
        await connection.close()


def _count_sqlite(path: Path) -> dict[str, tuple[int, int]]:
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'vector_words%'"
        ).fetchall()
        counts = {}
        for (name,) in tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            own = f"count(*) FILTER (WHERE owner = '{OWNER}')" if "owner" in columns else "-1"
            counts[name] = connection.execute(f"SELECT count(*), {own} FROM {name}").fetchone()
        return counts


async def test_nothing_of_the_owner_is_left_in_any_table(database: Database) -> None:
    if database.kind == "memory":
        pytest.skip("there are no tables to look into")
    store = await database.open()
    await fill(store)
    before = await count_all(database)
    for table, (total, own) in before.items():
        if own < 0:
            assert table in _OF_NO_OWNER, f"{table}: add an owner, or say here why it has none"
        elif not table.startswith("log_"):  # partitions: all rows are in `log` too
            assert own > 0, f"{table}: put something of the owner into it in `fill`"
        # Words wait beside the blocks until a sweep folds them in.
        assert total > 0 or table not in _CONTENT - {"vector_blocks"}
    planned = await store.projects.count_rows(OWNER)
    removed = await store.projects.purge(OWNER, lambda *_: None, audit=RECORD)
    assert removed == {table: count for table, count in planned.items() if count}
    after = await count_all(database)
    assert {table: own for table, (_, own) in after.items() if own > 0} == {}
    assert {table: after[table][0] for table in _CONTENT if table in after} == dict.fromkeys(
        _CONTENT & after.keys(), 0
    )
    assert after["responses"][0] == MANY
    assert await store.projects.get(OWNER) is None


async def test_no_byte_of_the_owner_is_left_in_the_files(database: Database) -> None:
    if database.kind != "sqlite":
        pytest.skip("there are no files to look into")
    store = await database.open()
    await fill(store)
    canary = "canary-" + "x" * 40
    await run_turn(store, "rc", metadata={"a": canary})
    await store.projects.purge(OWNER, lambda *_: None, audit=RECORD)
    for path in database.path.parent.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for word in (canary.encode(), b"needle", b"in-r1", "Zoë".encode()):
                assert word not in content, path


async def test_the_others_and_the_audit_log_stay(store: Store) -> None:
    await store.add_key(key("k1"))
    await store.add_key(key("k2", owner="bob"))
    await run_turn(store, "r1")
    await run_turn(store, "r1", owner="bob")
    seen: list[tuple[str, int]] = []
    removed = await store.projects.purge(
        OWNER, lambda table, count: seen.append((table, count)), audit=RECORD
    )
    assert removed["responses"] == 1
    assert removed["keys"] == 1
    assert ("responses", 1) in seen
    assert await store.get(OWNER, "r1") is None
    assert await store.find_item(OWNER, "in-r1") is None
    assert await store.find_key("k1") is None
    assert await store.get("bob", "r1") is not None
    assert await store.find_key("k2") is not None
    (entry,) = await store.audit.page(AuditQuery(), limit=9)
    assert (entry.action, entry.body["removed"]["responses"]) == ("project.purged", 1)
    assert (await store.audit.verify()).digest != NO_DIGEST


async def test_counting_removes_nothing(store: Store) -> None:
    await fill_a_little(store)
    counts = await store.projects.count_rows(OWNER)
    assert (counts["responses"], counts["items"], counts["keys"]) == (1, 2, 1)
    assert await store.projects.count_rows(OWNER) == counts
    assert not any((await store.projects.count_rows("nobody")).values())


async def test_a_history_of_a_purged_project_is_gone_from_caches(store: Store) -> None:
    await fill_a_little(store)
    before = await store.removals()
    await store.projects.purge(OWNER, lambda *_: None)
    assert await store.removals() > before


async def test_what_comes_after_a_purge_is_a_new_project(store: Store) -> None:
    await store.projects.create(Project(OWNER, "First", 1, settings={"x": 1}))
    await store.projects.archive(OWNER, 2)
    await store.projects.purge(OWNER, lambda *_: None)
    await store.projects.create(Project(OWNER, "Second", 3))
    assert await store.projects.get(OWNER) == Project(OWNER, "Second", 3)


async def fill_a_little(store: Store) -> None:
    await store.add_key(key("k1"))
    await run_turn(store, "r1")
    await store.conversations.create(OWNER, Conversation("c1", 5, {}), [message("i1")])
