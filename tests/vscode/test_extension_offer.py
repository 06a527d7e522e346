"""The editor's own models, offered by the extension and reached through a gateway.

A second extension, the probe, has a scripted model. The gateway of these tests has the provider
`editor`, with `wire_api = "host"`.
"""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import pytest
import pytest_asyncio

from antiphon.client import AsyncClient
from antiphon.client.errors import ClientError
from tests.vscode.studio import Studio

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PARROT: Final = "probe/parrot"
PATIENCE: Final = 60.0
Json = dict[str, Any]


def text(value: str) -> Json:
    """Return a part of the scripted model."""
    return {"type": "text", "value": value}


@pytest_asyncio.fixture(loop_scope="session")
async def offering(studio: Studio) -> AsyncIterator[Studio]:
    """The editor while it offers its models."""
    await studio.probe.order("configure", setting="antiphon.offerEditorModels", value=True)
    await studio.probe.order("file", path=str(studio.offer), exists=True)
    yield studio
    await studio.probe.order("configure", setting="antiphon.offerEditorModels", value=False)
    await studio.probe.order("file", path=str(studio.offer), exists=False)


class Asker:
    """A gateway in a few lines: what it may see without being one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, **message: object) -> None:
        """Send a message."""
        self.writer.write(json.dumps(message).encode() + b"\n")

    async def read(self) -> Json:
        """Return the next message, or nothing at the end."""
        line = await asyncio.wait_for(self.reader.readline(), PATIENCE)
        answer: Json = json.loads(line or b"{}")
        return answer


@asynccontextmanager
async def asker(studio: Studio, token: str | None = None) -> AsyncIterator[tuple[Asker, Json]]:
    """Connect as the file says, and greet; yield the connection and the answer."""
    told = json.loads(studio.offer.read_text("utf-8"))
    host, _, port = told["address"].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    asking = Asker(reader, writer)
    asking.send(type="hello", version=1, token=token or told["token"])
    try:
        yield asking, await asking.read()
    finally:
        writer.close()


async def test_nothing_is_offered_unless_it_is_turned_on(studio: Studio) -> None:
    assert not studio.offer.exists()


async def test_the_file_is_for_its_user_alone(offering: Studio) -> None:
    told = json.loads(offering.offer.read_text("utf-8"))

    assert stat.S_IMODE(offering.offer.stat().st_mode) == 0o600
    assert told["version"] == 1
    assert told["address"].startswith("127.0.0.1:")
    assert len(told["token"]) == 64
    assert told["name"].startswith("code-server 1.") or "1." in told["name"]


async def test_a_wrong_token_is_refused_and_the_connection_closed(offering: Studio) -> None:
    async with asker(offering, token="0" * 64) as (asking, answer):
        assert answer["error"]["code"] == "auth_failed"
        assert await asking.read() == {}


async def test_messages_before_the_greeting_and_nonsense_are_refused(offering: Studio) -> None:
    told = json.loads(offering.offer.read_text("utf-8"))
    host, _, port = told["address"].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    asking = Asker(reader, writer)
    asking.send(type="models", id=1)
    assert (await asking.read())["error"]["code"] == "not_greeted"
    writer.write(b"nonsense\n")
    assert (await asking.read())["error"]["code"] == "invalid_message"
    writer.write(b"x" * 100_000 + b"\n")
    assert (await asking.read())["error"]["code"] == "line_too_long"
    writer.close()


async def test_models_of_antiphon_itself_are_not_offered(offering: Studio) -> None:
    async with asker(offering) as (asking, welcome):
        assert (welcome["type"], welcome["version"]) == ("welcome", 1)
        asking.send(type="models", id=1)
        models = (await asking.read())["models"]

    ids = [model["id"] for model in models]
    assert PARROT in ids
    assert not [one for one in ids if one.startswith("antiphon/")]
    (parrot,) = [model for model in models if model["id"] == PARROT]
    assert (parrot["name"], parrot["max_input_tokens"]) == ("Parrot", 8000)


async def test_counts_and_unknown_requests_are_answered(offering: Studio) -> None:
    async with asker(offering) as (asking, _):
        asking.send(type="count", id="c", model=PARROT, contents=["seven", ""])
        assert await asking.read() == {"type": "counted", "id": "c", "tokens": [5, 0]}
        asking.send(type="sing", id=2)
        assert (await asking.read())["error"]["code"] == "unknown_type"
        asking.send(type="respond", id=3, model="probe/gone", messages=[])
        assert (await asking.read())["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("thrown", "code"), [("NoPermissions", "no_consent"), ("Blocked", "blocked")]
)
async def test_errors_of_the_editor_have_their_codes(
    offering: Studio, thrown: str, code: str
) -> None:
    turn = {"parts": [text("Half")], "error": thrown, "message": "The user said no."}
    await offering.probe.order("play", turns=[turn])
    message = {"role": "user", "content": [text("Hello?")]}

    async with asker(offering) as (asking, _):
        asking.send(type="respond", id=1, model=PARROT, messages=[message])
        answers = [await asking.read()]
        while answers[-1]["type"] == "parts":
            answers.append(await asking.read())

    assert answers[-1]["error"]["code"] == code
    assert "The user said no." in answers[-1]["error"]["message"]
    if code == "no_consent":
        assert "Manage Language Model Access" in answers[-1]["error"]["action"]


@pytest.mark.requirement("003-flow-2")
@pytest.mark.turn(
    "vscode-extension", "a model of the editor answers through the gateway", transport="http"
)
async def test_a_turn_with_a_tool_through_the_gateway(offering: Studio) -> None:
    call = {"type": "call", "callId": "call_7", "name": "weather", "input": {"city": "Ulm"}}
    turns = [{"parts": [text("Let me look. "), call]}, {"parts": [text("It is "), text("sunny.")]}]
    await offering.probe.order("play", turns=turns)
    tool = {
        "type": "function",
        "name": "weather",
        "description": "Returns the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }

    async with AsyncClient(base_url=offering.house.base_url, api_key="") as client:
        asked: Json = {"model": PARROT, "tools": [tool], "instructions": "Be short."}
        first = await client.create(input="How is it in Ulm?", **asked)
        (made,) = [item for item in first.output if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": made["call_id"], "output": "sun"}
        second = await client.create(input=[result], previous_response_id=first.id, **asked)

    assert (made["name"], json.loads(made["arguments"])) == ("weather", {"city": "Ulm"})
    assert second.output_text == "It is sunny."
    one, two = await offering.probe.order("asked")
    assert [tool["name"] for tool in one["tools"]] == ["weather"]
    told = json.dumps(two["messages"])
    assert all(words in told for words in ("Be short.", "How is it in Ulm?", "call_7", "sun"))


async def test_a_client_that_leaves_stops_the_model_of_the_editor(offering: Studio) -> None:
    await offering.probe.order("play", turns=[{"parts": [text("One. ")], "waits": True}])
    body = {"model": PARROT, "input": "Count.", "stream": True}

    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{offering.house.base_url}/responses", json=body) as reply,
    ):
        async for line in reply.content:
            if b"output_text.delta" in line:
                break
    await offering.probe.order("cancelled")


async def test_without_the_editor_the_gateway_says_so(studio: Studio) -> None:
    async with AsyncClient(base_url=studio.house.base_url, api_key="", max_retries=0) as client:
        with pytest.raises(ClientError):
            await client.create(model=f"editor/{PARROT}", input="Hello?")
