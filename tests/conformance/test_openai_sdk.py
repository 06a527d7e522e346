"""The official SDK, as its users use it, on everything that is built."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import cast

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import FunctionToolParam, ResponseInputParam
from pydantic import BaseModel

from antiphon.gateway.assemble import ServerSettings
from antiphon.server.auth import new_key
from antiphon.testing import Reset, Script, Status
from tests.conformance.house import House, open_house, sdk
from tests.conformance.model import MODEL
from tests.conformance.turns import TOOLS

WEATHER = cast(FunctionToolParam, TOOLS[0])


class Person(BaseModel):
    """What `parse` is asked to return."""

    name: str
    age: int


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with open_house() as opened:
        yield opened


@pytest.fixture
async def client(house: House) -> AsyncIterator[AsyncOpenAI]:
    async with sdk(house.base_url) as opened:
        yield opened


# Creating.


async def test_create(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model=MODEL, input="What is 17 * 3?", metadata={"for": "a test"}
    )
    assert response.output_text == "51"
    assert response.status == "completed"
    assert response.metadata == {"for": "a test"}
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


async def test_create_with_a_stream(client: AsyncOpenAI) -> None:
    events = await client.responses.create(model=MODEL, input="What is 2 + 2?", stream=True)
    deltas = [event.delta async for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "4"


async def test_stream(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model=MODEL, input="What is 2 + 2?") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "4"


async def test_parse(client: AsyncOpenAI) -> None:
    response = await client.responses.parse(
        model=MODEL, input="Invent a person.", text_format=Person
    )
    assert response.output_parsed == Person(name="Ada", age=36)


async def test_stream_with_a_text_format(client: AsyncOpenAI) -> None:
    async with client.responses.stream(
        model=MODEL, input="Invent a person.", text_format=Person
    ) as stream:
        final = await stream.get_final_response()
    assert final.output_parsed == Person(name="Ada", age=36)


@pytest.mark.requirement("22-E2")
async def test_a_tool_loop(client: AsyncOpenAI) -> None:
    asked = await client.responses.create(
        model=MODEL, input="What is the weather in Paris?", tools=[WEATHER]
    )
    (call,) = asked.output
    assert call.type == "function_call"
    assert call.arguments == '{"city": "Paris"}'
    told = await client.responses.create(
        model=MODEL,
        previous_response_id=asked.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}],
        tools=[WEATHER],
    )
    assert told.output_text == "The tool says: rain"


@pytest.mark.requirement("003-content-limits-4", "22-E2")
async def test_output_can_be_sent_back_as_input(client: AsyncOpenAI) -> None:
    first = await client.responses.create(
        model=MODEL,
        input="My name is Ada.",
        reasoning={"effort": "low"},
        store=False,
    )
    everything = [
        {"role": "user", "content": "My name is Ada."},
        *(item.to_dict() for item in first.output),
        {"role": "user", "content": "What is my name?"},
    ]
    second = await client.responses.create(
        model=MODEL, input=cast(ResponseInputParam, everything), store=False
    )
    assert [item.type for item in first.output] == ["reasoning", "message"]
    assert second.output_text == "Ada"


# Remembering.


@pytest.mark.requirement("003-comparison-6", "003-state-1", "22-E2")
async def test_previous_response_id(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model=MODEL, input="My name is Ada.")
    second = await client.responses.create(
        model=MODEL, input="What is my name?", previous_response_id=first.id
    )
    assert second.output_text == "Ada"
    assert second.previous_response_id == first.id


async def test_retrieve(client: AsyncOpenAI) -> None:
    created = await client.responses.create(model=MODEL, input="Hello.")
    assert await client.responses.retrieve(created.id) == created


async def test_delete(client: AsyncOpenAI) -> None:
    created = await client.responses.create(model=MODEL, input="Hello.")
    await client.responses.delete(created.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(created.id)


async def test_what_was_not_stored_cannot_be_retrieved(client: AsyncOpenAI) -> None:
    created = await client.responses.create(model=MODEL, input="Hello.", store=False)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(created.id)


async def test_input_items_are_listed_newest_first(client: AsyncOpenAI) -> None:
    created = await _with_five_messages(client)
    page = await client.responses.input_items.list(created)
    assert [_content(item) for item in page.data] == ["4", "3", "2", "1", "0"]
    assert page.has_more is False


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_of_input_items_make_the_whole_list(client: AsyncOpenAI, order: str) -> None:
    created = await _with_five_messages(client)
    listed = client.responses.input_items.list(
        created,
        limit=2,
        order="asc" if order == "asc" else "desc",
    )
    found = [_content(item) async for item in listed]
    assert found == sorted("01234", reverse=order == "desc")


async def _with_five_messages(client: AsyncOpenAI) -> str:
    created = await client.responses.create(
        model=MODEL, input=[{"role": "user", "content": str(number)} for number in range(5)]
    )
    return created.id


def _content(item: object) -> str:
    return str(item.content[0].text)  # type: ignore[attr-defined] # any of the SDK's item classes


# Models.


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]


async def test_a_model_is_retrieved(client: AsyncOpenAI) -> None:
    assert (await client.models.retrieve(MODEL)).id == MODEL


# Errors.


async def test_a_bad_parameter_is_named(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(
            model=MODEL, input="Hello.", extra_body={"tools": [{"type": "function"}]}
        )
    assert caught.value.code == "missing_required_parameter"
    assert caught.value.param == "tools[0].name"
    assert caught.value.type == "invalid_request_error"


async def test_a_response_that_never_was_cannot_be_continued(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(
            model=MODEL, input="Hello.", previous_response_id="resp_nothing"
        )
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"


async def test_a_response_that_never_was_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.retrieve("resp_nothing")
    assert caught.value.code == "response_not_found"


@pytest.mark.requirement("003-errors-2", "003-flow-2")
async def test_a_model_that_does_not_exist_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.create(model="nobody", input="Hello.")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_that_breaks_off_is_a_server_error(stream: bool) -> None:
    async with open_house(Script(faults=[Reset()])) as house, sdk(house.base_url) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            await client.responses.create(model=MODEL, input="Hello.", stream=stream)
    assert caught.value.status_code == 502
    assert caught.value.code == "upstream_closed"


async def test_an_upstream_that_is_busy_is_a_rate_limit() -> None:
    script = Script(faults=[Status(429, headers={"Retry-After": "7"})])
    async with open_house(script) as house, sdk(house.base_url) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.responses.create(model=MODEL, input="Hello.")
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["retry-after"] == "7"


@pytest.mark.parametrize("api_key", ["x", "ak_0000_wrong"])
async def test_a_wrong_key_is_refused(api_key: str) -> None:
    async with (
        open_house(settings=ServerSettings(require_keys=True)) as house,
        sdk(house.base_url, api_key=api_key) as client,
    ):
        with pytest.raises(openai.AuthenticationError) as caught:
            await client.responses.create(model=MODEL, input="Hello.")
    assert caught.value.code == "invalid_api_key"


async def test_a_key_opens_what_is_its_own_and_nothing_else() -> None:
    async with open_house(settings=ServerSettings(require_keys=True)) as house:
        keys = []
        for owner in ("ada", "bob"):
            key, record = new_key(owner, int(time.time()))
            await house.gateway.store.add_key(record)
            keys.append(key)
        async with sdk(house.base_url, api_key=keys[0]) as ada:
            created = await ada.responses.create(model=MODEL, input="Hello.")
            assert await ada.responses.retrieve(created.id) == created
        async with sdk(house.base_url, api_key=keys[1]) as bob:
            with pytest.raises(openai.NotFoundError):
                await bob.responses.retrieve(created.id)


# Headers.


async def test_every_answer_has_a_request_id(client: AsyncOpenAI) -> None:
    raw = await client.responses.with_raw_response.create(model=MODEL, input="Hello.")
    assert raw.headers["x-request-id"] == raw.request_id
    assert raw.parse()._request_id == raw.request_id


async def test_an_error_has_a_request_id(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.retrieve("resp_nothing")
    assert caught.value.request_id is not None


async def test_what_was_not_honoured_is_said(client: AsyncOpenAI) -> None:
    raw = await client.responses.with_raw_response.create(
        model=MODEL, input="Hello.", tools=[{"type": "web_search"}]
    )
    assert raw.headers["x-antiphon-degraded"] == "tools[0] (web_search): it cannot be run here"
    assert raw.parse().to_dict()["antiphon"] == {
        "degraded": ["tools[0] (web_search): it cannot be run here"]
    }


async def test_when_all_was_honoured_nothing_is_said(client: AsyncOpenAI) -> None:
    raw = await client.responses.with_raw_response.create(model=MODEL, input="Hello.")
    assert "x-antiphon-degraded" not in raw.headers


async def test_a_strict_caller_is_refused_instead(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(
            model=MODEL,
            input="Hello.",
            tools=[{"type": "web_search"}],
            extra_headers={"x-antiphon-strict": "1"},
        )
    assert caught.value.param == "tools[0]"
