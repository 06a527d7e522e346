"""/v1/conversations, over a real socket and through the SDK that people use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import openai
import pytest

from antiphon.backends.scripted import Script, ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.items import Item
from antiphon.server.auth import new_key
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.store.sqlite import SqliteStore
from antiphon.testing.gateway import Gateway, serve_gateway
from tests.asking import Answer, ask, ask_stream, request, terminal

HELLO: Item = {"role": "user", "content": "hello"}
NOWHERE = "/conversations/conv_0"


@pytest.fixture(params=["memory", "sqlite"])
async def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gateway]:
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "db")
    async with serve_gateway(ScriptedBackend(), store=store) as gateway:
        yield gateway
    await store.close()


@pytest.fixture
async def client(gateway: Gateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client:
        yield client


async def begin(gateway: Gateway, *items: Item, **body: Any) -> str:
    answer = await request(gateway, "POST", "/conversations", {"items": items} | body)
    assert answer.status == 200, answer.body
    conversation_id: str = answer.json["id"]
    return f"/conversations/{conversation_id}"


async def listed(gateway: Gateway, path: str, query: str = "order=asc&limit=100") -> list[Item]:
    items: list[Item] = (await request(gateway, "GET", f"{path}/items?{query}")).json["data"]
    return items


def texts(items: list[Item]) -> list[str]:
    return [item["content"][0]["text"] for item in items]


def said(*words: str) -> list[Item]:
    return [{"role": "user", "content": word} for word in words]


# Conversations.


@pytest.mark.parametrize("body", [None, {}, {"items": None, "metadata": None}, {"items": []}])
async def test_a_conversation_may_begin_with_nothing(gateway: Gateway, body: object) -> None:
    created = await request(gateway, "POST", "/conversations", body)
    found = await request(gateway, "GET", f"/conversations/{created.json['id']}")

    assert created.status == 200
    assert set(created.json) == {"id", "object", "created_at", "metadata"}
    assert created.json["id"].startswith("conv_")
    assert created.json["object"] == "conversation"
    assert created.json["metadata"] == {}
    assert found.json == created.json


async def test_metadata_is_replaced_not_merged(gateway: Gateway) -> None:
    path = await begin(gateway, metadata={"a": "1", "b": "2"})
    updated = await request(gateway, "POST", path, {"metadata": {"c": "3"}})
    found = await request(gateway, "GET", path)
    cleared = await request(gateway, "POST", path, {"metadata": None})

    assert updated.json["metadata"] == found.json["metadata"] == {"c": "3"}
    assert cleared.json["metadata"] == {}


async def test_a_deleted_conversation_is_gone_with_its_items(gateway: Gateway) -> None:
    path = await begin(gateway, {**HELLO, "id": "msg_mine"})
    deleted = await request(gateway, "DELETE", path)
    later = [
        await request(gateway, "GET", path),
        await request(gateway, "DELETE", path),
        await request(gateway, "GET", f"{path}/items"),
        await request(gateway, "GET", f"{path}/items/msg_mine"),
    ]
    reference = await request(
        gateway, "POST", "/conversations", {"items": [{"type": "item_reference", "id": "msg_mine"}]}
    )

    conversation_id = path.rpartition("/")[2]
    assert deleted.json == {
        "id": conversation_id,
        "object": "conversation.deleted",
        "deleted": True,
    }
    assert {(answer.status, answer.error["code"]) for answer in later} == {
        (404, "conversation_not_found")
    }
    assert reference.error["code"] == "item_not_found"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"[]", None, "invalid_type"),
        (b"{", None, "invalid_json"),
        ({"items": {}}, "items", "invalid_type"),
        ({"items": [HELLO] * 21}, "items", "invalid_value"),
        ({"items": [HELLO, 7]}, "items[1]", "invalid_type"),
        ({"items": [{"role": "user"}]}, "items[0].content", "missing_required_parameter"),
        ({"items": [{"role": "king", "content": ""}]}, "items[0].role", "invalid_value"),
        ({"items": [{"type": "new", "id": [1]}]}, "items[0].id", "invalid_type"),
        ({"items": [{"type": "new", "id": "a"}] * 2}, "items[1].id", "duplicate_item"),
        ({"items": [{"type": "item_reference", "id": "a"}]}, "items[0].id", "item_not_found"),
        ({"metadata": {"k": "v" * 513}}, "metadata", "invalid_value"),
        ({"metadata": {"k" * 65: "v"}}, "metadata", "invalid_value"),
        ({"metadata": {str(n): "v" for n in range(17)}}, "metadata", "invalid_value"),
        ({"metadata": {"k": 1}}, "metadata", "invalid_type"),
        ({"metadata": "k"}, "metadata", "invalid_type"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name(
    gateway: Gateway, body: object, param: str | None, code: str
) -> None:
    answer = await request(gateway, "POST", "/conversations", body)

    assert answer.status == (404 if code == "item_not_found" else 400)
    assert (answer.error["param"], answer.error["code"]) == (param, code)


@pytest.mark.parametrize("path", [NOWHERE, f"{NOWHERE}/items"])
async def test_what_is_needed_may_not_be_left_out(gateway: Gateway, path: str) -> None:
    answer = await request(gateway, "POST", path, {})

    assert answer.status == 400
    assert answer.error["code"] == "missing_required_parameter"
    assert answer.error["param"] == ("items" if path.endswith("items") else "metadata")


# Items.


async def test_items_are_added_at_the_end_and_shown_as_listed(gateway: Gateway) -> None:
    path = await begin(gateway, *said("one"))
    added = await request(gateway, "POST", f"{path}/items?include=x", {"items": said("two", "six")})
    items = await listed(gateway, path)

    assert added.json["object"] == "list"
    assert added.json["has_more"] is False
    assert added.json["data"] == items[1:]
    assert added.json["first_id"] == items[1]["id"]
    assert added.json["last_id"] == items[2]["id"]
    assert texts(items) == ["one", "two", "six"]
    assert items[0] == {
        "id": items[0]["id"],
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "one"}],
    }


async def test_items_come_in_pages(gateway: Gateway) -> None:
    path = await begin(gateway, *said(*"abcde"))
    newest = (await request(gateway, "GET", f"{path}/items?limit=2")).json
    rest = (await request(gateway, "GET", f"{path}/items?after={newest['last_id']}")).json
    oldest = (await request(gateway, "GET", f"{path}/items?order=asc&limit=1")).json

    assert (texts(newest["data"]), newest["has_more"]) == (["e", "d"], True)
    assert (texts(rest["data"]), rest["has_more"]) == (["c", "b", "a"], False)
    assert (texts(oldest["data"]), oldest["has_more"]) == (["a"], True)
    assert newest["first_id"] == newest["data"][0]["id"]


async def test_an_empty_page_has_no_cursors(gateway: Gateway) -> None:
    page = await request(gateway, "GET", f"{await begin(gateway)}/items")

    assert page.json == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_0"])
async def test_a_page_that_cannot_be_is_refused(gateway: Gateway, query: str) -> None:
    answer = await request(gateway, "GET", f"{await begin(gateway)}/items?{query}")

    assert answer.status == 400
    assert answer.error["param"] == query.partition("=")[0]


async def test_a_page_of_nothing_is_a_404_whatever_it_asks_for(gateway: Gateway) -> None:
    answer = await request(gateway, "GET", f"{NOWHERE}/items?after=msg_0")

    assert (answer.status, answer.error["code"]) == (404, "conversation_not_found")


@pytest.mark.parametrize("item_id", ["msg_1", "a b", "a/b", "ä", "%41", "items"])
async def test_an_item_is_found_and_removed_under_the_id_its_caller_gave(
    gateway: Gateway, item_id: str
) -> None:
    path = await begin(gateway, {**HELLO, "id": item_id})
    one = f"{path}/items/{quote(item_id, safe='')}"
    found = await request(gateway, "GET", one)
    removed = await request(gateway, "DELETE", one)
    missing = await request(gateway, "GET", one)
    again = await request(gateway, "DELETE", one)

    assert found.json["id"] == item_id
    assert found.json["content"] == [{"type": "input_text", "text": "hello"}]
    assert removed.json == (await request(gateway, "GET", path)).json
    assert (missing.status, missing.error["code"]) == (404, "item_not_found")
    assert missing.body == again.body
    assert await listed(gateway, path) == []


async def test_an_id_that_is_taken_is_refused_and_nothing_is_added(gateway: Gateway) -> None:
    path = await begin(gateway, {**HELLO, "id": "msg_1"})
    taken = {"items": [*said("new"), {**HELLO, "id": "msg_1"}]}
    answer = await request(gateway, "POST", f"{path}/items", taken)

    assert (answer.status, answer.error["code"]) == (400, "duplicate_item")
    assert texts(await listed(gateway, path)) == ["hello"]


async def test_a_reference_is_replaced_by_the_item(gateway: Gateway) -> None:
    output = (await ask(gateway, input="said before")).json["output"][0]
    reference = {"type": "item_reference", "id": output["id"]}
    path = await begin(gateway, reference, reference, HELLO)
    again = await request(gateway, "POST", f"{path}/items", {"items": [reference]})

    items = await listed(gateway, path)
    assert items[0]["content"][0]["text"] == "said before"
    assert [item["id"] for item in items][:1] == [output["id"]]
    assert len(items) == 2
    assert again.json["data"] == []


async def test_a_reference_to_an_item_beside_it_is_that_item(gateway: Gateway) -> None:
    mine = {**HELLO, "id": "msg_mine"}
    path = await begin(gateway, mine, {"type": "item_reference", "id": "msg_mine"})

    assert [item["id"] for item in await listed(gateway, path)] == ["msg_mine"]


async def test_items_of_kinds_we_do_not_know_survive(gateway: Gateway) -> None:
    strange = {"type": "hologram", "id": "h_1", "beams": [1, {"x": None}]}
    path = await begin(gateway, strange)

    assert await listed(gateway, path) == [strange]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/conversations", 405),
        ("PUT", "/conversations/conv_0/items/msg_0", 405),
        ("GET", "/conversations//items/msg_0", 404),
        ("GET", "/conversations/conv_0/items/", 404),
        ("GET", "/conversations/conv_0/items/msg_0/more", 404),
        ("GET", "/conversations/conv_0/other/msg_0", 404),
        ("GET", "/conversations/" + "x/" * 1000, 404),
    ],
)
async def test_paths_beside_the_routes_lead_nowhere(
    gateway: Gateway, method: str, path: str, status: int
) -> None:
    answer = await request(gateway, method, path)

    assert answer.status == status
    assert answer.error["code"] in ("unknown_url", "method_not_allowed")


# Owners.


async def test_foreign_and_missing_are_answered_alike_to_the_byte() -> None:
    store = MemoryStore()
    keys = {}
    for owner in ("ann", "bob"):
        key, record = new_key(owner, 0)
        await store.add_key(record)
        keys[owner] = {"Authorization": f"Bearer {key}"}
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), store=store, settings=settings) as gateway:
        created = await request(
            gateway, "POST", "/conversations", {"items": [{**HELLO, "id": "msg_1"}]}, keys["ann"]
        )
        path = f"/conversations/{created.json['id']}"

        async def ask_everything() -> list[Answer]:
            return [
                await request(gateway, method, path + rest, body, keys["bob"])
                for method, rest, body in (
                    ("GET", "", None),
                    ("POST", "", {"metadata": {}}),
                    ("DELETE", "", None),
                    ("GET", "/items", None),
                    ("GET", "/items?after=msg_1", None),
                    ("POST", "/items", {"items": [HELLO]}),
                    ("GET", "/items/msg_1", None),
                    ("DELETE", "/items/msg_1", None),
                )
            ]

        foreign = await ask_everything()
        reference = await request(
            gateway,
            "POST",
            "/conversations",
            {"items": [{"type": "item_reference", "id": "msg_1"}]},
            keys["bob"],
        )
        mine = await request(gateway, "GET", f"{path}/items", headers=keys["ann"])
        await request(gateway, "DELETE", path, headers=keys["ann"])
        missing = await ask_everything()

    assert [answer.status for answer in foreign] == [404] * 8
    assert [answer.body for answer in foreign] == [answer.body for answer in missing]
    assert reference.status == 404
    assert len(mine.json["data"]) == 1


# Turns.


async def test_two_turns_see_what_was_said_before(gateway: Gateway) -> None:
    path = await begin(gateway, *said("by hand"))
    conversation = path.rpartition("/")[2]
    first = await ask(gateway, input="one", conversation=conversation)
    second = terminal(await ask_stream(gateway, input="two", conversation={"id": conversation}))

    assert first.json["conversation"] == {"id": conversation}
    assert second.status == "completed"
    assert texts(await listed(gateway, path)) == ["by hand", "one", "one", "two", "two"]


async def test_the_model_is_shown_the_whole_conversation() -> None:
    backend = ScriptedBackend()
    async with serve_gateway(backend) as gateway:
        path = await begin(gateway, *said("by hand"))
        conversation = path.rpartition("/")[2]
        await ask(gateway, input="one", conversation=conversation)
        await ask(gateway, input="two", conversation=conversation, store=False)
        await ask(gateway, input="six", conversation=conversation)

    assert [len(plan.items) for plan in backend.plans] == [2, 4, 6]


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_failed_turn_adds_nothing(is_stored: bool, stream: bool) -> None:
    script: list[Step] = [TextGrew("half an"), BackendError("broke", code="upstream_closed")]
    async with serve_gateway(ScriptedBackend([script, [BackendError("no")]])) as gateway:
        path = await begin(gateway)
        body = {"conversation": path.rpartition("/")[2], "store": is_stored, "stream": stream}
        await ask(gateway, input="one", **body)
        refused = await ask(gateway, input="two", **body)
        free = await request(gateway, "POST", f"{path}/items", {"items": said("free")})

        assert refused.status == 502
        assert free.status == 200
        assert texts(await listed(gateway, path)) == ["free"]


async def test_one_turn_writes_at_a_time() -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    def script(plan: Plan) -> Script:
        began.set()
        return [TextGrew("a"), goes_on, TextGrew("b"), Stopped("stop")]

    async with serve_gateway(ScriptedBackend(script)) as gateway:
        path = await begin(gateway, {**HELLO, "id": "msg_1"})
        conversation = path.rpartition("/")[2]
        running = asyncio.create_task(ask(gateway, input="one", conversation=conversation))
        await began.wait()
        refused = [
            await ask(gateway, input="two", conversation=conversation),
            await request(gateway, "POST", f"{path}/items", {"items": [HELLO]}),
            await request(gateway, "DELETE", f"{path}/items/msg_1"),
            await request(gateway, "DELETE", path),
        ]
        read = await request(gateway, "GET", f"{path}/items")
        updated = await request(gateway, "POST", path, {"metadata": {"k": "v"}})
        goes_on.set()
        answer = await running

        assert {(other.status, other.error["code"]) for other in refused} == {
            (409, "conversation_locked")
        }
        assert read.status == updated.status == 200
        assert answer.json["status"] == "completed"
        assert texts(await listed(gateway, path)) == ["hello", "one", "ab"]


async def test_a_conversation_and_a_previous_response_exclude_each_other(gateway: Gateway) -> None:
    previous = (await ask(gateway)).json["id"]
    conversation = (await begin(gateway)).rpartition("/")[2]
    answer = await ask(gateway, previous_response_id=previous, conversation=conversation)

    assert answer.status == 400
    assert answer.error["param"] == "previous_response_id"


@pytest.mark.parametrize("conversation", ["conv_0", {"id": "conv_0"}])
async def test_a_turn_in_a_conversation_that_is_not_there_is_refused(
    gateway: Gateway, conversation: object
) -> None:
    answer = await ask(gateway, conversation=conversation)

    assert (answer.status, answer.error["code"]) == (404, "conversation_not_found")


async def test_a_conversation_outlives_the_process(tmp_path: Path) -> None:
    path = ""
    for word in ("one", "two"):
        store = SqliteStore(tmp_path / "db")
        async with serve_gateway(ScriptedBackend(), store=store) as gateway:
            path = path or await begin(gateway)
            await ask(gateway, input=word, conversation=path.rpartition("/")[2])
            items = await listed(gateway, path)
        await store.close()

    assert texts(items) == ["one", "one", "two", "two"]


# The SDK.


async def test_the_sdk_handles_conversations(client: openai.AsyncOpenAI) -> None:
    created = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "hello"}], metadata={"k": "v"}
    )
    assert await client.conversations.retrieve(created.id) == created
    updated = await client.conversations.update(created.id, metadata={"l": "w"})
    assert updated.metadata == {"l": "w"}
    assert updated.created_at == created.created_at
    deleted = await client.conversations.delete(created.id)
    assert deleted.deleted
    assert deleted.object == "conversation.deleted"
    with pytest.raises(openai.NotFoundError) as caught:
        await client.conversations.retrieve(created.id)
    assert caught.value.code == "conversation_not_found"


async def test_the_sdk_begins_with_nothing(client: openai.AsyncOpenAI) -> None:
    created = await client.conversations.create()

    assert created.object == "conversation"
    assert [item async for item in client.conversations.items.list(created.id)] == []


async def test_the_sdk_handles_items(client: openai.AsyncOpenAI) -> None:
    conversation = await client.conversations.create()
    items = client.conversations.items
    for start in range(0, 60, 20):
        added = await items.create(
            conversation.id,
            items=[
                {"type": "message", "role": "user", "content": str(number)}
                for number in range(start, start + 20)
            ],
            include=["message.input_image.image_url"],
        )
        assert len(added.data) == 20
    everything = [item async for item in items.list(conversation.id, order="asc", limit=7)]
    one = await items.retrieve(
        everything[5].id or "",
        conversation_id=conversation.id,
        include=["reasoning.encrypted_content"],
    )
    after = await items.delete(one.id or "", conversation_id=conversation.id)
    rest = [item async for item in items.list(conversation.id, order="asc", limit=100)]

    assert len(everything) == 60
    assert [item.content[0].text for item in everything if item.type == "message"] == [  # type: ignore[union-attr]
        str(number) for number in range(60)
    ]
    assert one == everything[5]
    assert after == conversation
    assert rest == everything[:5] + everything[6:]


async def test_the_sdk_talks_in_a_conversation(client: openai.AsyncOpenAI) -> None:
    conversation = await client.conversations.create()
    first = await client.responses.create(model="echo", input="one", conversation=conversation.id)
    second = await client.responses.create(
        model="echo", input="two", conversation={"id": conversation.id}
    )
    items = client.conversations.items.list(conversation.id, order="asc")

    assert first.conversation is not None
    assert first.conversation.id == conversation.id
    assert second.output[0].id in [item.id async for item in items]


async def test_calls_of_every_family_are_listed_with_a_status(gateway: Gateway) -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "t", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "y"}
    made = await request(gateway, "POST", "/conversations", {"items": [call, output]})
    listed = await request(gateway, "GET", f"/conversations/{made.json['id']}/items?order=asc")

    assert [item["status"] for item in listed.json["data"]] == ["completed", "completed"]
