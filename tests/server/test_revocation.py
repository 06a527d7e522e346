"""A key that is revoked while something runs under it, here or in another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from antiphon.accounts.principal import Principal
from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.events import ResponseCompleted, ResponseFailed
from antiphon.server.auth import new_key, new_secret
from antiphon.server.revocation import KeyWatch
from antiphon.store.base import Access
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import ask
from tests.faults.house import settled
from tests.faults.listening import listen
from tests.talking import talk

TRY = {"x-stainless-retry-count": "0"}
RETRY = {"x-stainless-retry-count": "1"}
KEYED = ServerSettings(require_keys=True)


class Site:
    """A gateway in mid-turn, the key of its caller, and another process on the same store."""

    def __init__(self, gateway: Gateway, hold: asyncio.Event, other: SqliteStore) -> None:
        self.gateway = gateway
        self.hold = hold
        """Set it to let the model go on."""
        self._other = other
        self._ids: dict[str, str] = {}

    async def key(self, owner: str = "ann") -> dict[str, str]:
        """Return headers with a new key."""
        key, record = new_key(owner, 1)
        await self._other.add_key(record)
        headers = {"Authorization": f"Bearer {key}"}
        self._ids[key] = record.id
        return headers

    async def revoke(self, headers: dict[str, str]) -> None:
        """Revoke the key, as `antiphon keys revoke` does."""
        key_id = self._ids[headers["Authorization"].removeprefix("Bearer ")]
        await self._other.revoke_key(key_id, 2)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    hold = asyncio.Event()
    backend = ScriptedBackend(
        lambda plan: [TextGrew("one "), hold, TextGrew("two"), Stopped("stop")]
    )
    async with (
        _store(tmp_path) as store,
        _store(tmp_path) as other,
        serve_gateway(backend, store=store, settings=KEYED) as gateway,
    ):
        yield Site(gateway, hold, other)


@asynccontextmanager
async def _store(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / "antiphon.db")
    try:
        yield store
    finally:
        await store.close()


async def test_a_streamed_turn_ends_as_failed_when_its_key_is_revoked(site: Site) -> None:
    headers = await site.key()
    async with listen(site.gateway.base_url, headers, model="echo") as listener:
        await listener.until_text("one ")
        await site.revoke(headers)
        events = await listener.rest()
    stored = await site.gateway.store.get("ann", listener.response_id)

    last = events[-1]
    assert isinstance(last, ResponseFailed)
    assert last.response.error is not None
    assert last.response.error.code == "key_revoked"
    assert last.response.output_text == "one "
    assert stored is not None
    assert (stored.status, stored.output_text) == ("failed", "one ")


async def test_a_turn_on_a_websocket_ends_as_failed_when_its_key_is_revoked(site: Site) -> None:
    headers = await site.key()
    async with talk(site.gateway.base_url, headers) as socket:
        await socket.ask(input="hello")
        events = [await socket.event()]
        while events[-1]["type"] != "response.output_text.delta":
            events.append(await socket.event())
        await site.revoke(headers)
        events += await socket.events()
        refused = await socket.turn(input="again")

    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "key_revoked"
    assert (refused["status"], refused["error"]["code"]) == (401, "invalid_api_key")


async def test_a_turn_that_is_not_streamed_ends_too(site: Site) -> None:
    headers = await site.key()
    asked = asyncio.create_task(ask(site.gateway, headers, model="echo"))
    while not site.gateway.app._turns:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.001)
    await site.revoke(headers)
    async with asyncio.timeout(30):
        answer = await asked

    error = answer.json["error"]
    assert error["code"] == "key_revoked"


@pytest.mark.parametrize("store", [True, False])
async def test_a_retry_that_waits_for_the_first_run_ends_when_its_key_is_revoked(
    site: Site, store: bool
) -> None:
    revoked, valid = await site.key(), await site.key()
    body = {"model": "echo", "store": store}
    keys = site.gateway.app.keys
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(ask(site.gateway, valid | TRY, **body))
        while len(keys._in_use) < 1:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
        second = tasks.create_task(ask(site.gateway, revoked | RETRY, **body))
        while len(keys._in_use) < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
        await site.revoke(revoked)
        refused = await second
        site.hold.set()
        answer = await first

    assert (refused.status, refused.error["code"]) == (401, "key_revoked")
    assert answer.json["status"] == "completed"


async def test_turns_of_other_keys_of_the_same_owner_go_on(site: Site) -> None:
    revoked, valid = await site.key(), await site.key()
    async with (
        listen(site.gateway.base_url, revoked, model="echo") as cut,
        listen(site.gateway.base_url, valid, model="echo") as kept,
    ):
        await cut.until_text("one ")
        await kept.until_text("one ")
        await site.revoke(revoked)
        assert isinstance((await cut.rest())[-1], ResponseFailed)
        site.hold.set()
        assert isinstance((await kept.rest())[-1], ResponseCompleted)


async def test_a_background_turn_goes_on_and_its_reader_is_cut_off(site: Site) -> None:
    headers = await site.key()
    body = {"background": True, "model": "echo"}
    async with listen(site.gateway.base_url, headers, **body) as listener:
        await listener.until_text("one ")
        await site.revoke(headers)
        with pytest.raises(aiohttp.ClientError):
            await listener.rest()
    site.hold.set()
    events = site.gateway.app.engine.follow("ann", listener.response_id, -1)
    async with asyncio.timeout(30):
        last = [event async for batch in events for event in batch][-1]

    assert isinstance(last, ResponseCompleted)
    assert last.response.output_text == "one two"


async def test_nothing_watches_keys_when_nothing_runs(site: Site) -> None:
    tasks = asyncio.all_tasks()
    site.hold.set()
    headers = await site.key()
    for stream in (False, True):
        assert (await ask(site.gateway, headers, model="echo", stream=stream)).status == 200
    await settled(site.gateway, tasks)


class Slow(MemoryStore):
    """A store in which looking for a key takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.has_answered = asyncio.Event()

    async def find_accesses(self, key_ids: Collection[str]) -> dict[str, Access]:
        if self.may_answer.is_set():
            self.has_answered.set()
        self.is_asked.set()
        await self.may_answer.wait()
        return await super().find_accesses(key_ids)


async def test_a_key_that_comes_into_use_during_a_look_is_not_taken_for_revoked() -> None:
    store = Slow()
    _, first = new_key("ann", 1)
    _, second = new_key("bob", 1)
    await store.add_key(first)
    await store.add_key(second)
    keys, ended = KeyWatch(store, lambda: 1), list[str]()
    with keys.watching(Principal("ann", first.id), lambda: ended.append("first")):
        async with asyncio.timeout(30):
            await store.is_asked.wait()
        with keys.watching(Principal("bob", second.id), lambda: ended.append("second")):
            store.may_answer.set()
            async with asyncio.timeout(30):
                await store.has_answered.wait()  # in the next look: the first one is over
    assert ended == []


async def _rotate(site: Site, headers: dict[str, str], until: int) -> dict[str, str]:
    """Give the key a new secret and return headers with it."""
    key_id = headers["Authorization"].split("_")[1]
    key, digest, hint = new_secret(key_id)
    assert await site._other.rotate_key(key_id, digest, hint, now=2, until=until) is not None
    return {"Authorization": f"Bearer {key}"}


async def test_both_secrets_of_a_rotated_key_are_taken(site: Site) -> None:
    site.hold.set()
    old = await site.key()
    new = await _rotate(site, old, until=2**40)
    for headers in (old, new):
        assert (await ask(site.gateway, headers, model="echo")).status == 200


async def test_a_secret_that_ran_out_is_refused_and_the_new_one_taken(site: Site) -> None:
    site.hold.set()
    old = await site.key()
    new = await _rotate(site, old, until=3)
    refused = await ask(site.gateway, old, model="echo")
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert (await ask(site.gateway, new, model="echo")).status == 200


@pytest.mark.parametrize("way", ["runs out", "replaced twice", "archived"])
async def test_a_turn_ends_when_its_secret_is_no_longer_good(site: Site, way: str) -> None:
    headers = await site.key()
    async with listen(site.gateway.base_url, headers, model="echo") as listener:
        await listener.until_text("one ")
        if way == "archived":
            await site._other.projects.archive("ann", 2)
        else:
            await _rotate(site, headers, until=3 if way == "runs out" else 2**40)
            if way == "replaced twice":
                await _rotate(site, headers, until=2**40)
        events = await listener.rest()
    last = events[-1]
    assert isinstance(last, ResponseFailed)
    assert last.response.error is not None
    assert last.response.error.code == "key_revoked"


async def test_a_purge_ends_what_runs_and_leaves_nothing_of_it(site: Site) -> None:
    headers = await site.key()
    async with listen(site.gateway.base_url, headers, model="echo") as listener:
        await listener.until_text("one ")
        await site._other.projects.archive("ann", 2)
        await site._other.projects.purge("ann", lambda *_: None)
        events = await listener.rest()
    assert isinstance(events[-1], ResponseFailed)
    assert not any((await site._other.projects.count_rows("ann")).values())


async def test_a_turn_under_the_new_secret_goes_on_when_the_old_one_runs_out(site: Site) -> None:
    old = await site.key()
    new = await _rotate(site, old, until=3)
    async with listen(site.gateway.base_url, new, model="echo") as listener:
        await listener.until_text("one ")
        await asyncio.sleep(1.2)  # two looks at the keys: nothing tells when they are over
        site.hold.set()
        events = await listener.rest()
    assert isinstance(events[-1], ResponseCompleted)
