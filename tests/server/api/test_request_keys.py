"""An `Idempotency-Key` on conversations and their items; and on background runs that died."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.server.auth import new_key
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, request

KEY = {"Idempotency-Key": "k-1"}
HELLO = {"items": [{"role": "user", "content": "hello"}]}


async def post(gateway: Gateway, path: str, body: object, key: dict[str, str] = KEY) -> Answer:
    return await request(gateway, "POST", path, body, key)


async def converse(gateway: Gateway) -> str:
    name: str = (await request(gateway, "POST", "/conversations", {})).json["id"]
    return name


async def texts(gateway: Gateway, name: str) -> list[str]:
    page = await request(gateway, "GET", f"/conversations/{name}/items?order=asc&limit=100")
    return [item["content"][0]["text"] for item in page.json["data"]]


def is_replayed(answer: Answer) -> bool:
    return answer.headers.get("x-antiphon-replayed") == "1"


async def test_a_conversation_is_created_once_under_its_key() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        first = await post(gateway, "/conversations", HELLO)
        again = await post(gateway, "/conversations", HELLO)
        other = await post(gateway, "/conversations", HELLO, {"Idempotency-Key": "k-2"})
        said = await texts(gateway, first.json["id"])

    assert (first.status, again.status, other.status) == (200, 200, 200)
    assert again.json == first.json and other.json["id"] != first.json["id"]
    assert (is_replayed(first), is_replayed(again)) == (False, True)
    assert said == ["hello"]


async def test_items_are_added_once_under_their_key() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        name = await converse(gateway)
        first = await post(gateway, f"/conversations/{name}/items", HELLO)
        again = await post(gateway, f"/conversations/{name}/items", HELLO)
        said = await texts(gateway, name)

    assert (first.status, again.status) == (200, 200)
    assert again.json == first.json
    assert (is_replayed(first), is_replayed(again)) == (False, True)
    assert said == ["hello"]


@pytest.mark.parametrize("path", ["", "/items"])
async def test_of_equal_requests_at_the_same_time_one_is_done(tmp_path: Path, path: str) -> None:
    store = SqliteStore(tmp_path / "a.db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        name = await converse(gateway)
        where = f"/conversations/{name}/items" if path else "/conversations"
        found = await asyncio.gather(*(post(gateway, where, HELLO) for _ in range(8)))
        said = await texts(gateway, name)
    await store.close()

    assert {answer.status for answer in found} == {200}
    assert len({answer.body for answer in found}) == 1
    assert sum(map(is_replayed, found)) == 7
    assert said == (["hello"] if path else [])


async def test_a_key_that_was_used_for_something_else_is_refused() -> None:
    more = {"items": [{"role": "user", "content": "more"}]}
    async with serve_gateway(ScriptedBackend()) as gateway:
        name, other = await converse(gateway), await converse(gateway)
        await post(gateway, f"/conversations/{name}/items", HELLO)
        refused = [
            await post(gateway, f"/conversations/{name}/items", more),
            await post(gateway, f"/conversations/{other}/items", HELLO),
            await post(gateway, "/conversations", HELLO),
        ]
        said = await texts(gateway, name)

    for answer in refused:
        assert (answer.status, answer.error["code"]) == (422, "idempotency_mismatch")
    assert said == ["hello"]


async def test_keys_of_conversations_and_of_responses_do_not_meet() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        await post(gateway, "/conversations", HELLO)
        other = {"Idempotency-Key": f"conversations:{KEY['Idempotency-Key']}"}
        answer = await ask(gateway, other, model="echo")
    assert answer.status == 200


async def test_a_key_for_a_conversation_outlives_the_process(tmp_path: Path) -> None:
    found: list[Answer] = []
    for _ in range(2):
        store = SqliteStore(tmp_path / "a.db")
        async with serve_gateway(ScriptedBackend(), store=store) as gateway:
            found.append(await post(gateway, "/conversations", HELLO))
            name = found[0].json["id"]
            items = f"/conversations/{name}/items"
            found.append(await post(gateway, items, HELLO, {"Idempotency-Key": "k-2"}))
            said = await texts(gateway, name)
        await store.close()

    assert [answer.body for answer in found[:2]] == [answer.body for answer in found[2:]]
    assert said == ["hello", "hello"]


async def test_a_key_whose_conversation_was_deleted_makes_a_new_one() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        first = await post(gateway, "/conversations", HELLO)
        name = first.json["id"]
        await post(gateway, f"/conversations/{name}/items", HELLO, {"Idempotency-Key": "k-2"})
        await request(gateway, "DELETE", f"/conversations/{name}")
        items = await post(
            gateway, f"/conversations/{name}/items", HELLO, {"Idempotency-Key": "k-2"}
        )
        again = await post(gateway, "/conversations", HELLO)

    assert again.status == 200 and again.json["id"] != name
    assert (items.status, items.error["code"]) == (404, "conversation_not_found")


async def test_the_key_of_another_owner_is_another_key() -> None:
    store = MemoryStore()
    secrets = []
    for owner in ("ada", "bob"):
        secret, record = new_key(owner, 1)
        await store.add_key(record)
        secrets.append(secret)
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        found = [
            await post(gateway, "/conversations", {}, KEY | {"Authorization": f"Bearer {secret}"})
            for secret in secrets
        ]
    assert [answer.status for answer in found] == [200, 200]
    assert found[0].json["id"] != found[1].json["id"]


async def test_a_key_that_is_no_key_is_refused() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        refused = await post(gateway, "/conversations", {}, {"Idempotency-Key": "x" * 256})
    assert (refused.status, refused.error["param"]) == (400, "Idempotency-Key")


# Background runs that died.


class WaitsOnce:
    """A model that never ends its first answer."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    def __call__(self, _: Plan) -> list[Step]:
        if self.began.is_set():
            return [TextGrew("again"), Stopped("stop")]
        self.began.set()
        return [TextGrew("so far"), asyncio.Event()]


@pytest.mark.parametrize("reruns", [False, True])
async def test_a_background_run_that_died_is_the_answer_unless_it_is_to_be_run_again(
    tmp_path: Path, reruns: bool
) -> None:
    store = SqliteStore(tmp_path / "a.db")
    script = WaitsOnce()
    async with serve_gateway(ScriptedBackend(script), store=store) as gateway:
        first = await ask(gateway, KEY, background=True)
        await script.began.wait()
    # The gateway has gone away in the middle of the run.
    settings = ServerSettings(rerun_background=reruns)
    async with serve_gateway(ScriptedBackend(script), store=store, settings=settings) as gateway:
        died = await request(gateway, "GET", f"/responses/{first.json['id']}")
        again = await ask(gateway, KEY, background=True)
    await store.close()

    assert first.status == 200 and died.json["status"] == "failed"
    assert again.status == 200
    assert (again.json["id"] == first.json["id"]) is not reruns
    assert is_replayed(again) is not reruns
    if not reruns:
        assert again.json == died.json
