"""openai-python, unmodified, on a real model: the embedded one, small as it is.

What it says is its own affair; what it says it in is ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from openai import AsyncOpenAI

from antiphon.backends.local import LocalBackend
from antiphon.testing.gateway import serve_gateway

MODEL: Final = "smollm2-135m"
CITY: Final = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Final[Any] = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}
SUM: Final[Any] = {
    "type": "custom",
    "name": "add",
    "description": "Adds two numbers.",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: N " + " N\nN: /[0-9]{1,3}/',
    },
}

pytestmark = pytest.mark.slow


@pytest.fixture
async def client() -> AsyncIterator[AsyncOpenAI]:
    async with (
        serve_gateway(LocalBackend(threads=1, context=2048)) as gateway,
        AsyncOpenAI(base_url=gateway.base_url, api_key="x", max_retries=0) as client,
    ):
        yield client


@pytest.mark.turn(
    "openai-python", "a stream and its next turn on the embedded model", transport="http"
)
async def test_two_turns(client: AsyncOpenAI) -> None:
    async with client.responses.stream(
        model=MODEL, input="My name is Ada.", max_output_tokens=24
    ) as stream:
        text = "".join(
            [event.delta async for event in stream if event.type == "response.output_text.delta"]
        )
    first = await client.responses.create(model=MODEL, input="My name is Ada.", temperature=0)
    second = await client.responses.create(
        model=MODEL, input="Say my name.", previous_response_id=first.id, temperature=0
    )

    assert text.strip()
    assert (first.status, second.status) == ("completed", "completed")
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens


@pytest.mark.turn(
    "openai-python", "a required strict function on the embedded model", transport="http"
)
async def test_a_required_function(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model=MODEL,
        input="What is the weather in Rome?",
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
    )

    (call,) = response.output
    assert call.type == "function_call"
    assert json.loads(call.arguments).keys() == {"city"}


@pytest.mark.turn(
    "openai-python", "a custom tool under its grammar on the embedded model", transport="http"
)
async def test_a_custom_tool(client: AsyncOpenAI) -> None:
    response = await client.responses.create(
        model=MODEL,
        input="Add 2 and 3.",
        tools=[SUM],
        tool_choice={"type": "custom", "name": "add"},
        temperature=0,
    )

    (call,) = response.output
    assert call.type == "custom_tool_call"
    assert re.fullmatch(r"[0-9]{1,3} \+ [0-9]{1,3}", call.input)
