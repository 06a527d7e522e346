"""The maintenance of a gateway: what has expired is removed without any request."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway import upkeep
from antiphon.protocol.token_counts import TokenCounts
from antiphon.store import MemoryStore, SqliteStore
from antiphon.store.base.ledger import Payer, Reservation, Settlement, UsageQuery
from antiphon.testing.gateway import serve_gateway
from tests.store.file_samples import add_file
from tests.store.ledger_samples import Clock, ending, wanted
from tests.store.samples import OWNER

LIMIT = 60.0


async def test_a_file_that_has_expired_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_SWEEP_SECONDS", 0.01)
    store = MemoryStore()
    count = upkeep._FILES_AT_ONCE + 5
    removed: list[str] = []
    is_done = asyncio.Event()

    def note(_: str, file_id: str) -> None:
        removed.append(file_id)
        if len(removed) == count:
            is_done.set()

    store.files.on_removal.append(note)
    for number in range(count):
        await add_file(store, f"f{number}", expires_at=1)
    await add_file(store, "kept", expires_at=2**40)
    async with serve_gateway(ScriptedBackend(), store=store), asyncio.timeout(LIMIT):
        await is_done.wait()
        await add_file(store, "late", expires_at=1)
        count += 1
        is_done.clear()
        await is_done.wait()
        assert await store.files.used_bytes(OWNER) == 4
        assert list(await store.files.find(OWNER, ["f0", "late", "kept"], 0)) == ["kept"]
    await store.close()


async def test_past_hours_are_totalled(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db")
    store.ledger.clock = Clock()
    await store.ledger.reserve(wanted("r"))
    await store.ledger.settle([ending("r")])
    store.ledger.clock = time.time
    question = "SELECT width FROM usage_sums WHERE width < 0 ORDER BY width"
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        async with serve_gateway(ScriptedBackend(), store=store), asyncio.timeout(LIMIT):
            while not (totals := connection.execute(question).fetchall()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # there is no event
    await store.close()
    assert totals == [(-172_800,), (-86_400,), (-7200,), (-3600,)]


async def test_charges_are_removed_after_thirteen_months(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_SWEEP_SECONDS", 0.01)
    store = MemoryStore()
    for name, days in (("old", 401), ("kept", 399)):
        then = time.time() - days * 86_400
        store.ledger.clock = partial(float, then)
        payer = Payer(project=OWNER)
        one = Reservation(
            response_id=name, number=0, payer=payer, model="m", held=TokenCounts(fresh=5)
        )
        await store.ledger.reserve(one)
        used = TokenCounts(fresh=5)
        done = Settlement(
            response_id=name, number=0, outcome="completed", basis="reported", used=used
        )
        await store.ledger.settle([done])
    store.ledger.clock = time.time
    async with serve_gateway(ScriptedBackend(), store=store), asyncio.timeout(LIMIT):
        while len(await store.ledger.charges()) > 1:  # noqa: ASYNC110 # there is no event
            await asyncio.sleep(0.01)
        assert [one.response_id for one in await store.ledger.charges()] == ["kept"]
        now = int(time.time())
        whole = UsageQuery(start=now - 500 * 86_400, end=now, width=86_400)
        assert sum(row.used.fresh for row in await store.ledger.usage(whole)) == 10
    await store.close()
