"""Group commit on PostgreSQL: which changes share a transaction, and which failures stay apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.postgres import flusher as postgres_flusher
from antiphon.store.postgres.database import Connection, Database
from antiphon.store.postgres.flusher import Flusher, Kind, Later, LeaseLapsed
from tests.postgres import fresh_database


class Recorder:
    """A kind that remembers its groups, can be delayed, and fails on request."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.again: list[bool] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.faults: list[BaseException] = []
        self.kind = Kind(self.make)

    async def make(self, connection: Connection, values: Sequence[int], again: bool) -> list[int]:
        self.groups.append(list(values))
        self.again.append(again)
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        await connection.execute("SELECT 1 / (CASE WHEN $1 THEN 0 ELSE 1 END)", -1 in values)
        return [value * 10 for value in values]


def ignore(_: str) -> None:
    """Nobody waits for a response here."""


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    async with fresh_database() as url:
        made = Database(url, 60.0)
        yield made
        await made.close()


@pytest.fixture
async def renewals() -> list[None]:
    return []


@pytest.fixture
async def flusher(database: Database, renewals: list[None]) -> AsyncIterator[Flusher]:
    async def renew() -> None:
        renewals.append(None)

    made = Flusher(database, renew, ignore, 60.0)
    yield made
    await made.close()


async def call(flusher: Flusher, recorder: Recorder, value: int, name: str | None = None) -> Any:
    return await flusher.call(recorder.kind, ("o", name or str(value)), value, 10)


async def test_what_waits_shares_a_transaction(flusher: Flusher) -> None:
    recorder = Recorder()
    recorder.gate.clear()
    tasks = [asyncio.create_task(call(flusher, recorder, n)) for n in (1, 2)]
    async with asyncio.timeout(60):
        while not recorder.groups:  # noqa: ASYNC110 # the lane's own doing
            await asyncio.sleep(0)
    tasks += [asyncio.create_task(call(flusher, recorder, n)) for n in range(3, 40)]
    await asyncio.sleep(0)
    recorder.gate.set()
    assert await asyncio.gather(*tasks) == [n * 10 for n in range(1, 40)]
    assert len(recorder.groups) <= 3


async def test_one_that_fails_harms_no_other(flusher: Flusher) -> None:
    recorder = Recorder()
    values = [1, 2, -1, 4, 5, 6, 7, 8]
    tasks = [call(flusher, recorder, value) for value in values]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results.pop(2), StoreUnavailable)
    assert results == [10, 20, 40, 50, 60, 70, 80]


async def test_changes_of_one_response_are_made_one_after_another(flusher: Flusher) -> None:
    recorder = Recorder()
    tasks = [call(flusher, recorder, n, name="same") for n in range(6)]
    await asyncio.gather(*tasks)
    assert recorder.groups == [[n] for n in range(6)]


async def test_a_lost_connection_is_tried_again_and_said_so(flusher: Flusher) -> None:
    recorder = Recorder()
    recorder.faults = [ConnectionResetError()]
    assert await call(flusher, recorder, 1) == 10
    assert recorder.again == [False, True]


async def test_a_lease_that_ran_out_is_renewed_first(
    flusher: Flusher, renewals: list[None]
) -> None:
    recorder = Recorder()
    recorder.faults = [LeaseLapsed()]
    assert await call(flusher, recorder, 1) == 10
    assert len(renewals) == 1
    # Part of a statement may have been stored before the lease ran out.
    assert recorder.again == [False, True]


async def test_a_lease_that_cannot_be_renewed_is_told(database: Database) -> None:
    async def renew() -> None:
        raise StoreUnavailable("the database cannot be reached")

    flusher = Flusher(database, renew, ignore, 0.3)
    recorder = Recorder()
    recorder.faults = [LeaseLapsed() for _ in range(10)]
    with pytest.raises(StoreUnavailable, match=r"cannot be reached|did not answer"):
        await call(flusher, recorder, 1)
    await flusher.close()


async def test_what_is_about_the_database_fails_all_at_once(flusher: Flusher) -> None:
    recorder = Recorder()
    recorder.gate.clear()
    recorder.faults = [TimeoutError()]
    tasks = [asyncio.create_task(call(flusher, recorder, n)) for n in range(8)]
    await asyncio.sleep(0)
    recorder.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert len(recorder.groups) == 1


async def test_nobody_waits_longer_than_is_patient(database: Database) -> None:
    async def renew() -> None:
        """Nothing to renew."""

    await database.ask(lambda connection: connection.fetchval("SELECT 1"))  # it is connected
    flusher = Flusher(database, renew, ignore, 2.0)
    recorder = Recorder()
    recorder.gate.clear()
    tasks = [call(flusher, recorder, n, name="same") for n in range(3)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    recorder.gate.set()
    await flusher.close()
    # Those that were not under way were taken back.
    assert recorder.groups == [[0]]


async def test_a_caller_that_leaves_harms_nobody(flusher: Flusher) -> None:
    recorder = Recorder()
    recorder.gate.clear()
    tasks = [asyncio.create_task(call(flusher, recorder, n)) for n in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    recorder.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [result for result in results if isinstance(result, int)] == [0, 20, 30]
    assert recorder.groups == [[0, 1, 2, 3]]


async def test_no_more_waits_than_may(flusher: Flusher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_flusher, "MAX_WAITING", 3)
    recorder = Recorder()
    tasks = [call(flusher, recorder, n) for n in range(5)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, StoreUnavailable) for result in results) == 2


async def test_a_group_has_a_size(flusher: Flusher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_flusher, "_MAX_GROUP_BYTES", 25)
    recorder = Recorder()
    await asyncio.gather(*(call(flusher, recorder, n) for n in range(6)))
    assert max(len(group) for group in recorder.groups) == 2


async def test_a_closed_flusher_takes_nothing(flusher: Flusher) -> None:
    await flusher.close()
    with pytest.raises(StoreUnavailable, match="the store is closed"):
        await call(flusher, Recorder(), 1)


async def test_what_is_left_for_later_is_made_together_at_the_end(flusher: Flusher) -> None:
    order: list[str] = []

    async def close(_: Connection, values: Sequence[str], __: bool) -> list[str]:
        order.append(f"last {sorted(values)}")
        return [value.upper() for value in values]

    async def begin(_: Connection, values: Sequence[str], __: bool) -> list[Any]:
        order.append(f"first {values}")
        return [Later(last, f"{value}!") for value in values]

    last = Kind(close, is_last=True)
    calls = [flusher.call(last, ("o", "1"), "a", 1), flusher.call(Kind(begin), ("o", "2"), "b", 1)]
    assert await asyncio.gather(*calls) == ["A", "B!"]
    assert order == ["first ['b']", "last ['a', 'b!']"]


async def test_a_posted_change_is_retried_until_it_is_made(flusher: Flusher) -> None:
    recorder = Recorder()
    recorder.faults = [TimeoutError(), StoreUnavailable("away"), ConnectionError()]
    flusher.post(recorder.kind, ("o", "1"), 1, 10)
    assert await call(flusher, recorder, 2, "1") == 20
    assert recorder.groups == [[1], [1], [1], [1], [2]]
    assert recorder.again == [False, True, True, True, False]


async def test_a_posted_change_that_cannot_be_made_is_reported(
    flusher: Flusher, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder()
    flusher.post(recorder.kind, ("o", "1"), -1, 10)
    await flusher.until_posted()
    assert "was not stored" in caplog.text


async def test_a_posted_change_is_given_up_after_the_close(database: Database) -> None:
    async def renew() -> None:
        pass

    flusher = Flusher(database, renew, ignore, 0.2)
    recorder = Recorder()
    recorder.faults = [ConnectionError() for _ in range(100)]
    flusher.post(recorder.kind, ("o", "1"), 1, 10)
    async with asyncio.timeout(60):
        await flusher.close()
    assert recorder.faults
