"""Conversations that the server keeps, through both clients, and what else it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.client import errors
from antiphon.client.resources import Compaction, Conversation, Deleted, InputTokens
from antiphon.protocol.items import text_of
from antiphon.protocol.response import Response
from antiphon.testing import serve_gateway
from tests.client.calling import KINDS, Caller, calling
from tests.client.native import Answer, error, native, whole


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def caller(kind: str) -> AsyncIterator[Caller]:
    async with (
        serve_gateway(ScriptedBackend(models=["echo"])) as gateway,
        calling(kind, gateway.base_url) as caller,
    ):
        yield caller


def said(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number}"}


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [text_of(item["content"]) for item in items]


async def test_a_conversation_is_made_changed_and_deleted(caller: Caller) -> None:
    made: Conversation = await caller.call(
        lambda client: client.conversations.create(metadata={"topic": "a"}, items=[said(1)])
    )
    changed: Conversation = await caller.call(
        lambda client: client.conversations.update(made.id, metadata={"topic": "b"})
    )
    again: Conversation = await caller.call(lambda client: client.conversations.retrieve(made.id))
    deleted: Deleted = await caller.call(lambda client: client.conversations.delete(made.id))

    assert made.id.startswith("conv_") and made.created_at > 0
    assert (made.metadata, changed.metadata) == ({"topic": "a"}, {"topic": "b"})
    assert again == changed
    assert deleted == Deleted(made.id, True)
    with pytest.raises(errors.ResourceNotFound):
        await caller.call(lambda client: client.conversations.retrieve(made.id))


async def test_items_are_added_listed_in_pages_read_and_deleted(caller: Caller) -> None:
    made = await caller.call(lambda client: client.conversations.create())
    first = await caller.call(
        lambda client: client.conversations.add_items(made.id, [said(n) for n in range(20)])
    )
    await caller.call(
        lambda client: client.conversations.add_items(made.id, [said(n) for n in range(20, 25)])
    )
    page = await caller.call(lambda client: client.conversations.items(made.id, limit=2))
    behind = await caller.call(
        lambda client: client.conversations.items(made.id, limit=1, after=page.last_id)
    )
    every = await caller.call(lambda client: client.conversations.iterate_items(made.id))
    item = await caller.call(
        lambda client: client.conversations.retrieve_item(made.id, first.items[3]["id"])
    )
    left = await caller.call(
        lambda client: client.conversations.delete_item(made.id, first.items[3]["id"])
    )

    assert texts(page.items) == ["message 24", "message 23"] and page.has_more
    assert texts(behind.items) == ["message 22"]
    assert texts(every) == [f"message {number}" for number in range(25)]
    assert texts([item]) == ["message 3"]
    assert left.id == made.id
    with pytest.raises(errors.ResourceNotFound):
        await caller.call(lambda client: client.conversations.retrieve_item(made.id, item["id"]))


async def test_more_items_than_a_page_holds_all_come(caller: Caller) -> None:
    made = await caller.call(lambda client: client.conversations.create())
    for start in range(0, 120, 20):
        batch = [said(number) for number in range(start, start + 20)]
        await caller.call(partial(_add, made.id, batch))
    every = await caller.call(lambda client: client.conversations.iterate_items(made.id))
    newest = await caller.call(
        lambda client: client.conversations.iterate_items(made.id, order="desc")
    )
    assert texts(every) == [f"message {number}" for number in range(120)]
    assert newest == every[::-1]


def _add(name: str, items: list[Any], client: Any) -> Any:
    return client.conversations.add_items(name, items)


def _count(text: str, client: Any) -> Any:
    return client.input_tokens(model="echo", input=text)


async def test_a_turn_joins_the_conversation(caller: Caller) -> None:
    made = await caller.call(lambda client: client.conversations.create(items=[said(1)]))
    await caller.create(model="echo", input="hello", conversation=made.id)
    every = await caller.call(lambda client: client.conversations.iterate_items(made.id))
    assert [item["role"] for item in every] == ["user", "user", "assistant"]


async def test_a_retry_of_what_adds_something_carries_the_same_key(kind: str) -> None:
    made = Answer(pieces=[b'{"id": "conv_1"}'], content_type="application/json")
    async with native(error(503), made) as server, calling(kind, server.base_url) as caller:
        await caller.call(lambda client: client.conversations.create())
    keys = [request.headers.get("idempotency-key") for request in server.requests]
    assert len(keys) == 2 and keys[0] and keys[0] == keys[1]


async def test_ids_go_into_paths_as_one_segment(caller: Caller) -> None:
    with pytest.raises(errors.ResourceNotFound):
        await caller.call(lambda client: client.conversations.retrieve("a/../b?c"))
    with pytest.raises(errors.BadCall, match="item_id must not be empty"):
        await caller.call(lambda client: client.conversations.retrieve_item("conv_1", ""))


@pytest.mark.parametrize("items", ["hello", {"role": "user"}, [{"content": b"x"}], ["hello"]])
async def test_what_is_no_list_of_items_is_refused_before_it_is_sent(
    caller: Caller, items: Any
) -> None:
    with pytest.raises(errors.BadCall):
        await caller.call(lambda client: client.conversations.create(items=items))


async def test_an_answer_that_is_no_conversation_is_an_error(kind: str) -> None:
    strange = Answer(pieces=[b'{"object": "list"}'], content_type="application/json")
    async with native(strange) as server, calling(kind, server.base_url) as caller:
        with pytest.raises(errors.InvalidAnswer, match="it has no id"):
            await caller.call(lambda client: client.conversations.create())


# Questions about a context.


async def test_the_tokens_of_a_request_are_counted_without_running_it(caller: Caller) -> None:
    long, short = "word " * 400, "word"
    counts: list[InputTokens] = [await caller.call(partial(_count, text)) for text in (short, long)]
    assert counts[0].input_tokens < counts[1].input_tokens
    assert [count.is_estimate for count in counts] == [False, False]


async def test_a_count_that_is_an_estimate_is_marked_as_one(kind: str) -> None:
    body = b'{"input_tokens": 7, "antiphon": {"usage": "estimated"}}'
    answer = Answer(pieces=[body], content_type="application/json")
    async with native(answer) as server, calling(kind, server.base_url) as caller:
        count = await caller.call(lambda client: client.input_tokens(model="m", input="x"))
    assert count == InputTokens(7, True)


async def test_the_tokens_of_what_the_server_keeps_are_counted_without_new_input(
    caller: Caller,
) -> None:
    made = await caller.create(model="echo", input="word " * 400)
    kept: InputTokens = await caller.call(
        lambda client: client.input_tokens(model="echo", previous_response_id=made.id)
    )
    assert kept.input_tokens > 400


async def test_a_long_context_is_made_short_and_goes_on(caller: Caller) -> None:
    made = await caller.create(model="echo", input="word " * 400)
    short: Compaction = await caller.call(
        lambda client: client.compact(model="echo", previous_response_id=made.id)
    )
    after = await caller.create(
        model="echo", input=[*short.items, {"role": "user", "content": "go on"}]
    )
    assert short.id.startswith("resp_") and short.usage is not None
    assert any(item["type"] == "compaction" for item in short.items)
    assert after.status == "completed"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"input": "x", "session": "s"}, "session has no meaning here"),
        ({"messages": [said(1)], "previous_response_id": "resp_1"}, "give one of them"),
        ({"model": "m"}, "there is nothing to answer"),
        ({"input": "x", "stop": "y"}, "stop is not a parameter"),
        ({"conversation": "c", "previous_response_id": "r"}, "cannot both be continued"),
    ],
)
async def test_a_question_that_cannot_be_asked_is_refused(
    caller: Caller, params: Any, message: str
) -> None:
    with pytest.raises(errors.BadCall, match=message):
        await caller.call(lambda client: client.compact(**params))


async def test_a_chat_server_is_not_asked_about_contexts(kind: str) -> None:
    async with calling(kind, "http://127.0.0.1:9/v1", wire_api="chat") as caller:
        with pytest.raises(errors.BadCall, match="needs a Responses server"):
            await caller.call(lambda client: client.input_tokens(model="m", input="x"))


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"input_tokens": "many"}'])
async def test_an_answer_that_is_no_count_is_an_error(kind: str, body: bytes) -> None:
    strange = Answer(pieces=[body], content_type="application/json")
    async with native(strange) as server, calling(kind, server.base_url) as caller:
        with pytest.raises(errors.InvalidAnswer):
            await caller.call(lambda client: client.input_tokens(model="m", input="x"))


async def test_an_answer_that_is_no_compaction_is_an_error(kind: str) -> None:
    async with (
        native(whole(Response(id="resp_1", status="completed")), error(500)) as server,
        calling(kind, server.base_url) as caller,
    ):
        made: Compaction = await caller.call(lambda client: client.compact(model="m", input="x"))
        assert made.items == []
    strange = Answer(pieces=[b'{"usage": 3, "output": []}'], content_type="application/json")
    async with native(strange) as server, calling(kind, server.base_url) as caller:
        with pytest.raises(errors.InvalidAnswer, match="usage cannot be read"):
            await caller.call(lambda client: client.compact(model="m", input="x"))
