"""The official SDK on what is kept: streams again, background, conversations, sockets, webhooks."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import Response, ResponseInputParam

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.engine.keep.webhooks import Endpoint
from antiphon.gateway.assemble import ServerSettings
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Stopped, TextGrew
from antiphon.testing.gateway import serve_gateway
from antiphon.transport.secret import Secret
from tests.conformance.house import House, open_house, sdk
from tests.conformance.model import MODEL
from tests.transport.raw import Connection, Request, raw_server, reply

PATIENCE = 60.0
ESSAY = "Write an essay."
Json = dict[str, Any]


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as opened:
        yield opened


@pytest.fixture
async def client(house: House) -> AsyncIterator[AsyncOpenAI]:
    async with sdk(house.base_url) as opened:
        yield opened


class Slow:
    """A model that sends `one two`, and then ` three` when it may continue."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.backend = ScriptedBackend(self._script)

    def _script(self, _: Plan) -> Iterator[Step]:
        yield TextGrew("one")
        yield TextGrew(" two")
        yield self.may_go_on
        yield TextGrew(" three")
        yield Stopped("stop")


@asynccontextmanager
async def slow_client() -> AsyncIterator[tuple[AsyncOpenAI, Slow]]:
    model = Slow()
    async with serve_gateway(model.backend) as gateway, sdk(gateway.base_url) as client:
        yield client, model


async def everything(events: AsyncIterable[Any]) -> list[Json]:
    """Return all events of a stream as they were sent."""
    async with asyncio.timeout(PATIENCE):
        return [event.to_dict() async for event in events]


async def ended(client: AsyncOpenAI, response_id: str) -> Response:
    """Ask for a response until it has ended, as users of background mode do."""
    async with asyncio.timeout(PATIENCE):
        while True:
            response = await client.responses.retrieve(response_id)
            if response.status not in ("queued", "in_progress"):
                return response
            await asyncio.sleep(0.01)


# Streams again.


async def test_a_stream_is_retrieved_again_as_it_was(client: AsyncOpenAI) -> None:
    live = await everything(await client.responses.create(model=MODEL, input=ESSAY, stream=True))
    again = await client.responses.retrieve(live[0]["response"]["id"], stream=True)
    assert await everything(again) == live


@pytest.mark.parametrize("after", [0, 1, 17, 10_000])
async def test_a_stream_is_retrieved_from_any_event_on(client: AsyncOpenAI, after: int) -> None:
    live = await everything(await client.responses.create(model=MODEL, input=ESSAY, stream=True))
    rest = await client.responses.retrieve(
        live[0]["response"]["id"], stream=True, starting_after=after
    )
    assert await everything(rest) == live[after + 1 :]


async def test_what_was_not_streamed_can_be_streamed_later(client: AsyncOpenAI) -> None:
    created = await client.responses.create(model=MODEL, input="What is 2 + 2?")
    events = await everything(await client.responses.retrieve(created.id, stream=True))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"] == created.to_dict()


@pytest.mark.parametrize("after", [None, 5])
async def test_the_streaming_helper_takes_up_a_response(
    client: AsyncOpenAI, after: int | None
) -> None:
    async with client.responses.stream(model=MODEL, input=ESSAY) as stream:
        final = await stream.get_final_response()
    more = {} if after is None else {"starting_after": after}
    async with client.responses.stream(response_id=final.id, **cast(Any, more)) as again:
        numbers = [event.sequence_number async for event in again]
        taken_up = await again.get_final_response()
    assert taken_up.to_dict() == final.to_dict()
    assert numbers[0] == (0 if after is None else after + 1)
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


async def test_a_stream_can_be_joined_while_it_runs() -> None:
    async with slow_client() as (client, model):
        live = await client.responses.create(model="echo", input="x", stream=True)
        first = await anext(aiter(live))
        assert first.type == "response.created"
        late = await client.responses.retrieve(first.response.id, stream=True)
        second_reader = asyncio.create_task(everything(late))
        model.may_go_on.set()
        rest = await everything(live)
        assert await second_reader == [first.to_dict(), *rest]


async def test_a_response_that_never_was_has_no_stream(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_nothing", stream=True)


# Background.


async def test_a_background_response_is_queued_and_then_done(client: AsyncOpenAI) -> None:
    created = await client.responses.create(model=MODEL, input="What is 17 * 3?", background=True)
    assert created.status in ("queued", "in_progress")
    assert created.background is True
    final = await ended(client, created.id)
    assert (final.status, final.output_text) == ("completed", "51")


async def test_a_background_stream_is_taken_up_where_it_was_left() -> None:
    async with slow_client() as (client, model):
        stream = await client.responses.create(
            model="echo", input="x", background=True, stream=True
        )
        seen: list[Json] = []
        async for event in stream:
            seen.append(event.to_dict())
            if event.type == "response.output_text.delta" and event.delta == " two":
                break
        await stream.close()
        model.may_go_on.set()
        rest = await client.responses.retrieve(
            seen[0]["response"]["id"], stream=True, starting_after=seen[-1]["sequence_number"]
        )
        seen += await everything(rest)
        whole = await client.responses.retrieve(seen[0]["response"]["id"], stream=True)
        assert await everything(whole) == seen
    assert seen[-1]["response"]["output"][0]["content"][0]["text"] == "one two three"
    assert seen[-1]["response"]["status"] == "completed"


async def test_a_background_response_is_cancelled_once_and_for_all() -> None:
    async with slow_client() as (client, model):
        created = await client.responses.create(model="echo", input="x", background=True)
        cancelled = await client.responses.cancel(created.id)
        again = await client.responses.cancel(created.id)
        final = await ended(client, created.id)
        model.may_go_on.set()
        assert await client.responses.retrieve(created.id) == final
    assert final.status == "cancelled"
    assert cancelled.id == again.id == created.id
    assert again.to_dict() == final.to_dict()


async def test_cancelling_a_finished_response_answers_with_it(client: AsyncOpenAI) -> None:
    created = await client.responses.create(model=MODEL, input="Hello.", background=True)
    final = await ended(client, created.id)
    assert await client.responses.cancel(created.id) == final


# Counting and compacting.


async def test_input_tokens_are_counted_without_a_turn(house: House, client: AsyncOpenAI) -> None:
    short = await client.responses.input_tokens.count(model=MODEL, input="Hello.")
    long = await client.responses.input_tokens.count(model=MODEL, input="Hello. " * 200)
    assert short.object == "response.input_tokens"
    assert 0 < short.input_tokens < long.input_tokens
    assert house.upstream.requests == []


async def test_a_conversation_is_compacted_and_goes_on(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model=MODEL, input="My name is Ada.")
    compacted = await client.responses.compact(model=MODEL, previous_response_id=first.id)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output][-1] == "compaction"
    assert "Ada" not in str([item for item in compacted.output if item.type == "compaction"])
    # The SDK takes user messages for messages of the model there, and would warn of them.
    window = [item.to_dict(warnings=False) for item in compacted.output]
    told = await client.responses.create(
        model=MODEL,
        input=cast(ResponseInputParam, [*window, {"role": "user", "content": "What is my name?"}]),
    )
    assert told.output_text == "Ada"


# Conversations.


async def test_conversations_are_made_changed_and_deleted(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(metadata={"topic": "sea"})
    assert await client.conversations.retrieve(made.id) == made
    changed = await client.conversations.update(made.id, metadata={"topic": "land"})
    assert changed.metadata == {"topic": "land"}
    assert (await client.conversations.retrieve(made.id)).metadata == {"topic": "land"}
    gone = await client.conversations.delete(made.id)
    assert (gone.id, gone.deleted) == (made.id, True)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(made.id)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_items_are_added_listed_and_removed(client: AsyncOpenAI, order: str) -> None:
    made = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "0"}]
    )
    added = await client.conversations.items.create(
        made.id,
        items=[{"type": "message", "role": "user", "content": str(n)} for n in range(1, 5)],
    )
    assert [_text(item) for item in added.data] == ["1", "2", "3", "4"]
    listed = client.conversations.items.list(made.id, limit=2, order=cast(Any, order))
    found = [item async for item in listed]
    assert [_text(item) for item in found] == sorted("01234", reverse=order == "desc")
    one = found[0]
    assert one.type == "message"
    same = await client.conversations.items.retrieve(one.id, conversation_id=made.id)
    assert same == one
    await client.conversations.items.delete(one.id, conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve(one.id, conversation_id=made.id)


@pytest.mark.requirement("003-state-2")
async def test_a_turn_reads_a_conversation_and_adds_to_it(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    first = await client.responses.create(
        model=MODEL, input="My name is Ada.", conversation=made.id
    )
    second = await client.responses.create(
        model=MODEL, input="What is my name?", conversation={"id": made.id}
    )
    assert second.output_text == "Ada"
    assert first.conversation is not None
    assert first.conversation.id == made.id
    listed = client.conversations.items.list(made.id, order="asc")
    assert [_text(item) async for item in listed] == [
        "My name is Ada.",
        "Hello there.",
        "What is my name?",
        "Ada",
    ]


async def test_a_background_stream_adds_to_a_conversation(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    stream = await client.responses.create(
        model=MODEL, input="What is 2 + 2?", conversation=made.id, background=True, stream=True
    )
    events = await everything(stream)
    assert events[-1]["type"] == "response.completed"
    listed = client.conversations.items.list(made.id, order="asc")
    assert [_text(item) async for item in listed] == ["What is 2 + 2?", "4"]


async def test_a_conversation_and_a_previous_response_are_one_too_many(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    first = await client.responses.create(model=MODEL, input="Hello.")
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(
            model=MODEL, input="Hello.", conversation=made.id, previous_response_id=first.id
        )


async def test_a_conversation_has_one_writer_at_a_time() -> None:
    async with slow_client() as (client, model):
        made = await client.conversations.create()
        first = await client.responses.create(
            model="echo", input="x", conversation=made.id, background=True
        )
        with pytest.raises(openai.ConflictError) as caught:
            await client.responses.create(model="echo", input="y", conversation=made.id)
        model.may_go_on.set()
        assert (await ended(client, first.id)).status == "completed"
    assert caught.value.code == "conversation_locked"


def _text(item: Any) -> str:  # any of the SDK's item classes
    return "".join(part.text for part in item.content)


# Sockets.


async def _turn(connection: Any, **request: Any) -> list[Any]:  # the SDK's own types
    """Ask over a socket and return the events until the end of the turn."""
    await connection.response.create(**request)
    events = []
    async with asyncio.timeout(PATIENCE):
        while True:
            events.append(await connection.recv())
            if events[-1].type in ("response.completed", "response.failed", "error"):
                return events


async def test_turns_over_a_socket_go_on_from_each_other(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        first = await _turn(connection, model=MODEL, input="My name is Ada.", store=False)
        second = await _turn(
            connection,
            model=MODEL,
            input="What is my name?",
            previous_response_id=first[-1].response.id,
            store=False,
        )
    assert second[-1].response.output_text == "Ada"
    assert [event.sequence_number for event in first] == list(range(len(first)))
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(second[-1].response.id)


async def test_a_socket_outlives_a_mistake(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        (mistake,) = await _turn(
            connection, model=MODEL, input="Hello.", previous_response_id="resp_nothing"
        )
        right = await _turn(connection, model=MODEL, input="What is 2 + 2?")
    assert mistake.type == "error"
    assert right[-1].response.output_text == "4"


async def test_a_socket_is_warmed_up_without_an_answer(house: House, client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        warm = await _turn(
            connection, model=MODEL, input="My name is Ada.", generate=False, store=False
        )
        assert warm[-1].response.output == []
        told = await _turn(
            connection,
            model=MODEL,
            input="What is my name?",
            previous_response_id=warm[-1].response.id,
            store=False,
        )
    assert told[-1].response.output_text == "Ada"


async def test_lanes_of_a_socket_are_told_apart(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        for lane, question in (("a", "What is 2 + 2?"), ("b", "What is 3 * 3?")):
            await connection.response.create(model=MODEL, input=question, stream_id=lane)
        answers: dict[str, str] = {}
        async with asyncio.timeout(PATIENCE):
            while len(answers) < 2:
                event = await connection.recv()
                if event.type == "response.completed":
                    lane = str(event.to_dict()["stream_id"])
                    answers[lane] = event.response.output_text
    assert answers == {"a": "4", "b": "9"}


async def test_steering_is_refused_and_the_socket_goes_on(client: AsyncOpenAI) -> None:
    async with client.responses.connect() as connection:
        first = await _turn(connection, model=MODEL, input="Hello.")
        await connection.response.steer(input="stop", previous_response_id=first[-1].response.id)
        refusal = await asyncio.wait_for(connection.recv(), PATIENCE)
        right = await _turn(connection, model=MODEL, input="What is 2 + 2?")
    assert refusal.type in ("error", "response.steer.failed")
    assert right[-1].response.output_text == "4"


async def test_a_compacted_window_goes_on_over_a_socket(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model=MODEL, input="My name is Ada.")
    compacted = await client.responses.compact(model=MODEL, previous_response_id=first.id)
    window = [item.to_dict(warnings=False) for item in compacted.output]
    async with client.responses.connect() as connection:
        told = await _turn(
            connection,
            model=MODEL,
            input=[*window, {"role": "user", "content": "What is my name?"}],
        )
    assert told[-1].response.output_text == "Ada"


# Webhooks.


@pytest.mark.parametrize("status", ["completed", "cancelled"])
async def test_a_webhook_tells_the_end_of_a_background_response(status: str) -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    heard: asyncio.Queue[Request] = asyncio.Queue()

    async def listen(request: Request, connection: Connection) -> None:
        heard.put_nowait(request)
        await connection.write(reply(b""))

    model = Slow()
    async with raw_server(listen) as listener:
        hook = Endpoint(url=listener.url, secrets=(Secret(secret),), allow_private=True)
        settings = ServerSettings(webhooks=(hook,))
        async with (
            serve_gateway(model.backend, settings=settings) as gateway,
            sdk(gateway.base_url) as client,
        ):
            created = await client.responses.create(model="echo", input="x", background=True)
            if status == "cancelled":
                await client.responses.cancel(created.id)
            model.may_go_on.set()
            request = await asyncio.wait_for(heard.get(), PATIENCE)
            event = client.webhooks.unwrap(request.body, request.headers, secret=secret)
            assert event.type == f"response.{status}"
            assert event.data.id == created.id  # type: ignore[union-attr]
            # A turn that is not in the background sends no webhook.
            await client.responses.create(model="echo", input="x")
            created = await client.responses.create(model="echo", input="x", background=True)
            request = await asyncio.wait_for(heard.get(), PATIENCE)
            assert created.id.encode() in request.body


# Without asyncio.


async def test_the_blocking_client_does_all_of_it_too(house: House) -> None:
    await asyncio.wait_for(asyncio.to_thread(_block, house.base_url), 3 * PATIENCE)


def _block(base_url: str) -> None:
    with OpenAI(base_url=base_url, api_key="x", max_retries=0) as client:
        conversation = client.conversations.create()
        with client.responses.stream(
            model=MODEL, input="My name is Ada.", conversation=conversation.id
        ) as stream:
            first = stream.get_final_response()
        with client.responses.stream(response_id=first.id) as stream:
            assert stream.get_final_response().to_dict() == first.to_dict()
        assert [event.sequence_number for event in client.responses.retrieve(first.id, stream=True)]
        second = client.responses.create(
            model=MODEL, input="What is my name?", conversation=conversation.id, background=True
        )
        events = list(client.responses.retrieve(second.id, stream=True))
        assert events[-1].type == "response.completed"
        assert client.responses.cancel(second.id).output_text == "Ada"
        assert len(list(client.conversations.items.list(conversation.id))) == 4
        with client.responses.connect() as connection:
            connection.response.create(model=MODEL, input="What is 2 + 2?")
            for event in connection:
                if event.type == "response.completed":
                    break
            assert event.type == "response.completed"
            assert event.response.output_text == "4"
        client.responses.delete(second.id)
        client.conversations.delete(conversation.id)
