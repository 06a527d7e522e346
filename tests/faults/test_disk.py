"""A disk that is full, a database that is locked: a clear 503, nothing promised, then on again."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.run.turn import Turn
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.machines.referee import judge_stream
from antiphon.store.sqlite import SqliteStore
from antiphon.testing import Script, ScriptedUpstream
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, events_of, request, terminal
from tests.faults.house import PATIENCE, open_house, stored, until
from tests.faults.process import serve_process

BIG = "x" * 40_000
TROUBLE = "antiphon.store.trouble"


@asynccontextmanager
async def gateway_on(store: SqliteStore, text: str = "an answer") -> AsyncIterator[Gateway]:
    async with open_house(Script(text=text), store=store) as house:
        yield house.gateway
    await store.close()


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold the database as another process that writes would."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


async def fill(gateway: Gateway) -> tuple[list[str], Answer]:
    """Take turns until one is refused; return the ids of those before, and the refusal."""
    names: list[str] = []
    for _ in range(200):
        answer = await ask(gateway, input=BIG)
        if answer.status != 200:
            return names, answer
        names.append(answer.json["id"])
    raise AssertionError("the disk never fills up")


async def test_a_full_disk_is_a_503_and_nothing_is_promised(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "antiphon.db", max_bytes=600_000)
    async with gateway_on(store) as gateway:
        names, refused = await fill(gateway)
        streamed = await ask(gateway, input=BIG, stream=True)
        kept = [await request(gateway, "GET", f"/responses/{name}") for name in names]

    assert names
    assert (refused.status, refused.error["code"]) == (503, "store_unavailable")
    assert refused.headers["Retry-After"] == "1"
    assert (streamed.status, streamed.error["code"]) == (503, "store_unavailable")
    assert [answer.json["status"] for answer in kept] == ["completed"] * len(names)


async def test_when_there_is_room_again_a_full_disk_is_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "antiphon.db", max_bytes=600_000)
    async with gateway_on(store) as gateway:
        names, _ = await fill(gateway)
        for name in names:
            assert (await request(gateway, "DELETE", f"/responses/{name}")).status == 200
        answer = await ask(gateway, input=BIG)
        kept = await request(gateway, "GET", f"/responses/{answer.json['id']}")

    assert (answer.status, kept.status) == (200, 200)


async def test_what_is_not_stored_needs_no_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "antiphon.db", max_bytes=600_000)
    async with gateway_on(store) as gateway:
        await fill(gateway)
        answer = await ask(gateway, input=BIG, store=False)

    assert answer.json["status"] == "completed"


async def test_a_database_that_is_locked_is_a_503_and_then_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    async with gateway_on(SqliteStore(path, patience=2.0)) as gateway:
        first = (await ask(gateway)).json["id"]
        async with locked(path):
            plain, streamed, ready, alive, read = await asyncio.gather(
                ask(gateway),
                ask(gateway, stream=True),
                request(gateway, "GET", "/../readyz"),
                request(gateway, "GET", "/../healthz"),
                request(gateway, "GET", f"/responses/{first}"),
            )
        after = await ask(gateway, previous_response_id=first)
        ready_again = await request(gateway, "GET", "/../readyz")

    assert (plain.status, plain.error["code"]) == (503, "store_unavailable")
    assert b"response.completed" not in streamed.body
    assert (ready.status, alive.status, read.status) == (503, 200, 200)
    assert (after.status, ready_again.status) == (200, 200)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_could_not_be_stored_leaves_nothing_in_memory(
    stream: bool, tmp_path: Path
) -> None:
    path = tmp_path / "antiphon.db"
    async with gateway_on(SqliteStore(path, patience=2.0)) as gateway:
        await ask(gateway)
        gc.collect()
        gc.disable()  # what is in a cycle would wait for it, megabytes of it
        try:
            async with locked(path):
                refused = await ask(gateway, stream=stream)
            await ask(gateway)  # by now the handler of the first has ended
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [found for found in gc.garbage if isinstance(found, Turn)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()

    assert refused.status == 503
    assert left == []


async def test_a_lock_in_mid_stream_keeps_the_text_and_is_made_good(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    store, go_on = SqliteStore(path, patience=2.0), asyncio.Event()
    backend = ScriptedBackend([[TextGrew("one "), go_on, TextGrew("two"), Stopped("stop")]])
    async with serve_gateway(backend, store=store) as gateway:
        body = {"input": "hello", "stream": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(gateway.base_url + "/responses", json=body) as answer,
        ):
            data = b""
            while b'"delta":"one "' not in data:
                data += await answer.content.readuntil(b"\n\n")
            async with locked(path):
                go_on.set()
                data += await answer.read()
        events = events_of(data)
        response = terminal(events)
        # Whoever follows the stream waits until the end that was owed is stored.
        again = await request(gateway, "GET", f"/responses/{response.id}?stream=true")
    await store.close()

    assert judge_stream(events) == []
    assert (response.status, response.output_text) == ("failed", "one two")
    assert response.error is not None
    assert response.error.code == "store_unavailable"
    assert events_of(again.body) == events


async def test_a_lock_that_is_short_is_not_noticed(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    async with gateway_on(SqliteStore(path, patience=PATIENCE)) as gateway:
        async with locked(path):
            asking = asyncio.create_task(ask(gateway))
            # The answer is there; only the disk is missing.
            await until(lambda: bool(gateway.app._turns))
            assert not asking.done()
        answer = await asking
        kept = await stored(gateway, answer.json["id"], "completed")

    assert kept.output == answer.json["output"]


@pytest.mark.skipif(sys.platform != "linux", reason="sets the limits of another process")
async def test_a_disk_of_the_system_that_is_full_is_a_503_and_then_forgotten(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedUpstream(Script(text="an answer")) as upstream,
        serve_process(tmp_path, upstream.base_url) as process,
    ):
        first = (await process.ask()).json["id"]
        process.limit_files(4096)
        full = await process.ask(input=BIG)
        ready = await process.request("GET", "/../readyz")
        kept = await process.request("GET", f"/responses/{first}")
        process.limit_files(None)
        after = await process.ask(input=BIG, previous_response_id=first)

    assert (full.status, full.error["code"]) == (503, "store_unavailable")
    assert ready.status == 503
    assert (kept.status, after.status) == (200, 200)


async def test_a_full_disk_is_named_to_the_caller_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "antiphon.db"
    async with gateway_on(SqliteStore(path, max_bytes=600_000)) as gateway:
        names, refused = await fill(gateway)
        again = await ask(gateway, input=BIG)
        full = [record.getMessage() for record in caplog.records if record.name == TROUBLE]
        for name in names:
            await request(gateway, "DELETE", f"/responses/{name}")
        assert (await ask(gateway, input=BIG)).status == 200

    for answer in (refused, again):
        assert "there is no room left on the disk" in answer.error["message"]
        assert str(tmp_path) not in answer.error["message"]
    # What is small, such as a charge, may still fit: then the store works in between.
    assert full[0].startswith(f"{path}: there is no room left on the disk")
    assert all(one != other for one, other in pairwise(full))
    after = [r.getMessage() for r in caplog.records if r.name == TROUBLE][1:]
    assert after[-1] == f"{path}: the store works again"


async def test_a_database_file_that_is_moved_while_it_is_used_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = tmp_path / "antiphon.db", tmp_path / "elsewhere.db"
    async with gateway_on(SqliteStore(path)) as gateway:
        first = (await ask(gateway)).json["id"]
        path.rename(other)
        plain = await ask(gateway)
        streamed = await ask(gateway, stream=True)
        read = await request(gateway, "GET", f"/responses/{first}")
        ready = await request(gateway, "GET", "/../readyz")
        assert not path.exists()
        other.rename(path)
        after = await ask(gateway, previous_response_id=first)
        ready_again = await request(gateway, "GET", "/../readyz")

    for answer in (plain, streamed, read):
        assert (answer.status, answer.error["code"]) == (503, "store_unavailable")
        assert "the database file was moved, replaced or deleted" in answer.error["message"]
    assert ready.status == 503
    assert (after.status, ready_again.status) == (200, 200)
    assert f"{path}: the database file was moved" in caplog.text


async def test_a_database_file_that_is_replaced_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.db"
    async with gateway_on(SqliteStore(path)) as gateway:
        await ask(gateway)
        path.rename(tmp_path / "elsewhere.db")
        path.write_bytes(b"")
        refused = await ask(gateway)
        size = path.stat().st_size

    assert (refused.status, size) == (503, 0)
