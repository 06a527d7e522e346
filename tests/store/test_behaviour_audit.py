"""The audit log grows, is listed in pages and shows that it is whole, in every store."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import asyncpg
import msgspec
import pytest

from antiphon.store.base import AuditEntry, AuditQuery, AuditRecord, Store
from antiphon.store.base.audit import NO_DIGEST, AuditChain
from tests.store.conftest import Database


def record(number: int, **more: object) -> AuditRecord:
    fields: dict[str, object] = {
        "at": 100 + number,
        "actor": f"key:{number % 2}",
        "action": "api_key.created",
        "subject": f"k{number}",
        "id": f"audit_log-{number}",
        "body": {"name": "Zoë", "n": number},
    }
    return msgspec.convert(fields | more, AuditRecord)


async def fill(store: Store, count: int) -> list[AuditEntry]:
    return [await store.audit.append(record(number)) for number in range(count)]


def numbers(entries: list[AuditEntry]) -> list[int]:
    return [entry.number for entry in entries]


async def test_entries_form_a_chain(store: Store) -> None:
    entries = await fill(store, 3)
    assert numbers(entries) == [1, 2, 3]
    assert [entry.previous for entry in entries] == [
        NO_DIGEST,
        entries[0].digest,
        entries[1].digest,
    ]
    assert await store.audit.page(AuditQuery(), limit=9, is_descending=False) == entries
    check = await store.audit.verify()
    assert (check.count, check.digest, check.problem) == (3, entries[2].digest, None)


async def test_an_empty_log_is_whole(store: Store) -> None:
    check = await store.audit.verify()
    assert (check.count, check.digest, check.problem) == (0, NO_DIGEST, None)


async def test_a_record_is_stored_once(store: Store) -> None:
    first = await store.audit.append(record(1))
    assert await store.audit.append(record(1)) == first
    assert (await store.audit.verify()).count == 1


async def test_pages_continue_after_an_entry_in_both_directions(store: Store) -> None:
    await fill(store, 5)
    newest = await store.audit.page(AuditQuery(), limit=2)
    assert numbers(newest) == [5, 4]
    rest = await store.audit.page(AuditQuery(), limit=9, after=newest[-1].id)
    assert numbers(rest) == [3, 2, 1]
    forward = await store.audit.page(
        AuditQuery(), limit=2, after="audit_log-1", is_descending=False
    )
    assert numbers(forward) == [3, 4]
    for unknown in ("none", "\ud83d"):
        with pytest.raises(KeyError):
            await store.audit.page(AuditQuery(), limit=2, after=unknown)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (AuditQuery(since=102, until=104), [3, 4]),
        (AuditQuery(actors=["key:1"]), [2, 4]),
        (AuditQuery(actions=["project.archived"]), [6]),
        (AuditQuery(subjects=["k0", "k3", "\ud83d"]), [1, 4]),
        (AuditQuery(projects=["lab"]), [6]),
        (AuditQuery(subjects=[]), []),
        (AuditQuery(actors=["key:1"], since=103), [4]),
    ],
)
async def test_filters_join(store: Store, query: AuditQuery, expected: list[int]) -> None:
    await fill(store, 5)
    await store.audit.append(record(9, actor="local", action="project.archived", project="lab"))
    found = await store.audit.page(query, limit=9, is_descending=False)
    assert numbers(found) == expected


async def test_writers_at_once_make_one_chain(database: Database) -> None:
    stores = [await database.open(), await database.open()]
    await asyncio.gather(*(stores[n % 2].audit.append(record(n)) for n in range(40)))
    check = await stores[0].audit.verify()
    assert (check.count, check.problem) == (40, None)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE audit SET subject = 'x' WHERE number = 2", "entry 2 was changed"),
        ("UPDATE audit SET at = at + 1 WHERE number = 3", "entry 3 was changed"),
        ("DELETE FROM audit WHERE number = 2", "entry 2 is missing"),
        ("DELETE FROM audit WHERE number = 1", "entry 1 is missing"),
        ("UPDATE audit SET previous = digest WHERE number = 2", "entry 2 does not follow"),
    ],
)
async def test_a_change_in_the_database_is_found(
    database: Database, statement: str, problem: str
) -> None:
    if database.kind == "memory":
        pytest.skip("there is no database to change")
    store = await database.open()
    await fill(store, 4)
    if database.kind == "sqlite":
        with closing(sqlite3.connect(database.path)) as connection, connection:
            connection.execute(statement)
    else:
        connection = await asyncpg.connect(database.url)
        await connection.execute(statement)
        await connection.close()
    found = (await store.audit.verify()).problem
    assert found is not None
    assert found.startswith(problem)


async def test_an_entry_that_was_written_with_its_digest_anew_is_found(store: Store) -> None:
    entries = await fill(store, 3)
    chain, other = AuditChain(), AuditChain()
    chain.add(entries[0])
    other.add(msgspec.structs.replace(entries[0], subject="x"))
    assert chain.result().problem is None
    assert other.result().problem == "entry 1 was changed after it was written"
