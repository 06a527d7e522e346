"""A worker opens as many connections as the documentation says, and not one more."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import asyncpg
import pytest

from antiphon.store.base import Batch
from antiphon.store.copy import read_info
from antiphon.store.postgres import PostgresStore
from antiphon.store.postgres.database import CONNECTIONS
from tests.postgres import fresh_database
from tests.store.samples import OWNER, opened

_TURNS = 60
_COUNT = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE application_name = 'antiphon' AND datname = current_database()"
)


async def _turn(store: PostgresStore, name: str) -> None:
    await store.begin(OWNER, opened(name), [], batch=Batch(0, 0, b"a"))
    await store.append(OWNER, name, Batch(1, 1, b"b"))
    await store.read_log(OWNER, name)
    await store.finish(OWNER, opened(name, status="completed"))
    await store.history(OWNER, name)
    await store.delete(OWNER, name)


async def test_a_busy_worker_opens_at_most_what_is_documented(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with fresh_database() as url:
        store, watcher = PostgresStore(url), await asyncpg.connect(url)
        try:
            work = asyncio.gather(*(_turn(store, f"r{number}") for number in range(_TURNS)))
            most = 0
            while not work.done():
                most = max(most, await watcher.fetchval(_COUNT))
                await asyncio.sleep(0)
            await work
            info = await read_info(url)
            allowed = int(await watcher.fetchval("SHOW max_connections"))
        finally:
            await store.close()
            await watcher.close()
    assert CONNECTIONS // 2 < most <= CONNECTIONS
    assert info.connections == {"connections at most": CONNECTIONS, "… of the server": allowed}
    assert f"at most {CONNECTIONS} connections; the server allows {allowed}" in caplog.text


def test_the_page_about_postgres_has_the_formula() -> None:
    page = Path("docs/howto/postgres.md").read_text()
    assert f"at most {CONNECTIONS} x workers x machines" in page
    parts = re.search(
        r"opens (\d) for commits, (\d) for questions, (\d) for other\s+changes, and (\d)", page
    )
    assert parts is not None
    assert sum(map(int, parts.groups())) == CONNECTIONS
