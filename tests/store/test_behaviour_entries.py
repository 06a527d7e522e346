"""Entries are stored if and only if the end of their turn is, in every store.

The kind of the tests adds to a sum: a second write, or a write without an end, changes it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import asyncpg
import pytest

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.store.base import Batch, Conversation, Entry, Notice, Store
from antiphon.store.memory import MemoryStore
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres import turns as postgres_turns
from antiphon.store.sqlite import turn_writing as sqlite_turns
from tests.postgres import CommitProxy
from tests.store.conftest import Database
from tests.store.samples import OWNER, message, opened

FIRST = Batch(0, 0, b"a")
LAST = Batch(1, 1, b"b")

Kinds = dict[object, Any]  # Any: the function differs from store to store


class Charge(Entry, frozen=True):
    """An amount to add to an account."""

    account: str
    amount: int


class Foreign(Entry, frozen=True):
    """A kind that no store knows."""


class Accounts:
    """The sums that a database holds, and a way to make its transactions fail."""

    async def use(self, store: Store) -> None:
        """Let the store write charges here."""

    async def sums(self) -> dict[str, int]:
        """Return the sum of each account."""
        raise NotImplementedError

    async def refuse_writes(self, table: str) -> None:
        """Let every change of this table fail."""
        raise NotImplementedError

    async def allow_writes(self, table: str) -> None:
        """Let changes of this table succeed again."""
        raise NotImplementedError


class MemoryAccounts(Accounts):
    def __init__(self) -> None:
        self._sums: dict[str, int] = {}

    async def use(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        store._kinds[Charge] = self._add

    def _add(self, charges: Sequence[Charge]) -> None:
        for charge in charges:
            self._sums[charge.account] = self._sums.get(charge.account, 0) + charge.amount

    async def sums(self) -> dict[str, int]:
        return dict(self._sums)


CREATE = "CREATE TABLE accounts (name TEXT PRIMARY KEY, amount BIGINT NOT NULL)"


class SqliteAccounts(Accounts):
    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = database.path
        kinds = cast(Kinds, sqlite_turns.KINDS)
        monkeypatch.setitem(kinds, Charge, self._add)

    async def use(self, store: Store) -> None:
        self._run(CREATE)

    @staticmethod
    def _add(connection: sqlite3.Connection, _writer: str, charges: Sequence[Charge]) -> None:
        connection.executemany(
            "INSERT INTO accounts VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount",
            [(charge.account, charge.amount) for charge in charges],
        )

    async def sums(self) -> dict[str, int]:
        return dict(self._run("SELECT name, amount FROM accounts"))

    async def refuse_writes(self, table: str) -> None:
        for change in ("INSERT", "UPDATE"):
            self._run(
                f"CREATE TRIGGER refuse_{change} BEFORE {change} ON {table}"
                " BEGIN SELECT RAISE(ABORT, 'no'); END"
            )

    async def allow_writes(self, table: str) -> None:
        for change in ("INSERT", "UPDATE"):
            self._run(f"DROP TRIGGER refuse_{change}")

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self._path, timeout=30.0)
        try:
            with connection:
                return connection.execute(statement).fetchall()
        finally:
            connection.close()


class PostgresAccounts(Accounts):
    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self._url = database.url
        kinds = cast(Kinds, postgres_turns.KINDS)
        monkeypatch.setitem(kinds, Charge, self._add)

    async def use(self, store: Store) -> None:
        await store.ping()
        await self._run(CREATE)

    @staticmethod
    async def _add(connection: Any, charges: Sequence[Charge]) -> None:
        for account in sorted({charge.account for charge in charges}):
            amount = sum(charge.amount for charge in charges if charge.account == account)
            await connection.execute(
                "INSERT INTO accounts VALUES ($1, $2)"
                " ON CONFLICT (name) DO UPDATE SET amount = accounts.amount + excluded.amount",
                account,
                amount,
            )

    async def sums(self) -> dict[str, int]:
        return dict(await self._run("SELECT name, amount FROM accounts"))

    async def refuse_writes(self, table: str) -> None:
        await self._run(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION 'no'; END $$"
        )
        await self._run(
            f"CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        )

    async def allow_writes(self, table: str) -> None:
        await self._run("DROP FUNCTION refuse() CASCADE")

    async def _run(self, statement: str) -> list[Any]:
        connection = await asyncpg.connect(self._url)
        try:
            found: list[Any] = await connection.fetch(statement)
            return found
        finally:
            await connection.close()


@pytest.fixture
async def accounts(
    database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Accounts]:
    """The accounts that `store`, and others on the same database, write charges to."""
    made: Accounts = MemoryAccounts()
    if database.kind == "sqlite":
        made = SqliteAccounts(database, monkeypatch)
    elif database.kind == "postgres":
        made = PostgresAccounts(database, monkeypatch)
    await made.use(store)
    yield made


async def end(store: Store, response_id: str, *entries: Entry, **more: Any) -> None:
    await store.finish(
        OWNER, opened(response_id, status="completed"), batch=LAST, entries=entries, **more
    )


async def status(store: Store, response_id: str) -> str | None:
    found = await store.get(OWNER, response_id)
    return None if found is None else found.status


def notice() -> Notice:
    return Notice("n1", OWNER, "r1", "response.completed", 10, "hook")


async def test_entries_are_stored_with_the_end(store: Store, accounts: Accounts) -> None:
    await store.conversations.create(OWNER, Conversation("c1", 1), [])
    await store.conversations.lock(OWNER, "c1", "r1")
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    assert await accounts.sums() == {}
    charges = [Charge("ann", 3), Charge("bob", 4), Charge("ann", 5)]
    await end(store, "r1", *charges, notice(), said=[message("i1")])
    assert await status(store, "r1") == "completed"
    assert await accounts.sums() == {"ann": 8, "bob": 4}
    assert [found.id for found in await store.notices.take("hook", 10, 20, 5)] == ["n1"]
    assert len(await store.conversations.items(OWNER, "c1") or []) == 1


async def test_a_notice_may_come_as_an_entry(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await end(store, "r1", notice())
    assert [found.id for found in await store.notices.take("hook", 10, 20, 5)] == ["n1"]


async def test_turns_that_end_together_store_all_their_entries(
    store: Store, accounts: Accounts
) -> None:
    names = [f"r{number}" for number in range(30)]
    for name in names:
        await store.begin(OWNER, opened(name), [], batch=FIRST)
    await asyncio.gather(*(end(store, name, Charge("ann", 1), Charge(name, 2)) for name in names))
    assert await accounts.sums() == {"ann": 30, **dict.fromkeys(names, 2)}


async def test_a_turn_that_has_ended_stores_no_more_entries(
    store: Store, accounts: Accounts
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await end(store, "r1", Charge("ann", 3))
    for _ in range(2):
        with pytest.raises(TurnLost):
            await end(store, "r1", Charge("ann", 3))
    assert await accounts.sums() == {"ann": 3}


async def test_a_turn_that_was_deleted_stores_no_entries(store: Store, accounts: Accounts) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await store.delete(OWNER, "r1")
    with pytest.raises(TurnLost):
        await end(store, "r1", Charge("ann", 3))
    assert await accounts.sums() == {}


async def test_a_turn_without_its_conversation_stores_no_entries(
    store: Store, accounts: Accounts
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    with pytest.raises(TurnLost):
        await end(store, "r1", Charge("ann", 3), said=[message("i1")])
    assert await status(store, "r1") == "in_progress"
    assert await accounts.sums() == {}


async def test_the_writer_that_lost_a_turn_stores_no_entries(
    database: Database, store: Store, accounts: Accounts
) -> None:
    if not database.is_shared:
        pytest.skip("there is one writer, which outlives its turns")
    other = await database.open()
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    with pytest.raises(TurnLost, match="another process"):
        await end(other, "r1", Charge("ann", 3))
    assert await accounts.sums() == {}
    await store.close()
    assert [orphan.response.id for orphan in await other.claim_orphans(5)] == ["r1"]
    await end(other, "r1", Charge("ann", 4))
    assert await accounts.sums() == {"ann": 4}


@pytest.mark.parametrize("table", ["accounts", "responses"])
async def test_a_transaction_that_fails_stores_neither_end_nor_entries(
    database: Database, store: Store, accounts: Accounts, table: str
) -> None:
    if not database.is_shared:
        pytest.skip("memory has no transaction that could fail")
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    await accounts.refuse_writes(table)
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as caught:
            await end(store, "r1", notice(), Charge("ann", 3))
        assert not isinstance(caught.value, TurnLost)
    assert await status(store, "r1") == "in_progress"
    assert await accounts.sums() == {}
    await accounts.allow_writes(table)
    await end(store, "r1", notice(), Charge("ann", 3))
    assert await status(store, "r1") == "completed"
    assert await accounts.sums() == {"ann": 3}
    assert len(await store.notices.take("hook", 10, 20, 5)) == 1


async def test_an_entry_that_fails_takes_no_other_turn_with_it(
    database: Database, store: Store, accounts: Accounts
) -> None:
    if not database.is_shared:
        pytest.skip("memory has no transaction that could fail")
    names = [f"r{number}" for number in range(10)]
    for name in names:
        await store.begin(OWNER, opened(name), [], batch=FIRST)
    huge = 2**63  # more than the column holds
    ends = (end(store, n, Charge(n, huge if n == "r4" else 1)) for n in names)
    results = await asyncio.gather(*ends, return_exceptions=True)
    assert [n for n, result in zip(names, results, strict=True) if result is not None] == ["r4"]
    assert await status(store, "r4") == "in_progress"
    assert await accounts.sums() == {name: 1 for name in names if name != "r4"}


async def test_an_end_that_cannot_be_encoded_stores_no_entries(
    store: Store, accounts: Accounts
) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    broken = opened("r1", status="completed", output=[message("o1", odd=object())])
    with pytest.raises(TypeError):
        await store.finish(OWNER, broken, batch=LAST, entries=[Charge("ann", 3)])
    assert await accounts.sums() == {}
    await end(store, "r1", Charge("ann", 3))
    assert await accounts.sums() == {"ann": 3}


async def test_an_unknown_kind_is_refused_before_anything_is_stored(store: Store) -> None:
    await store.begin(OWNER, opened("r1"), [], batch=FIRST)
    with pytest.raises(ValueError, match="no entries of the kind Foreign"):
        await end(store, "r1", Foreign())
    assert await status(store, "r1") == "in_progress"


async def test_entries_whose_commit_got_no_answer_are_stored_once(
    database: Database, accounts: Accounts
) -> None:
    if database.kind != "postgres":
        pytest.skip("only a connection to a server loses an answer")
    async with CommitProxy(database.url) as proxy:
        store = PostgresStore(proxy.url)
        await store.begin(OWNER, opened("r1"), [], batch=FIRST)
        proxy.lose_next_answer()
        await end(store, "r1", Charge("ann", 3))
        assert proxy.lost == 1
        await store.close()
    assert await accounts.sums() == {"ann": 3}
