"""The description of the API says what is there, and nothing else."""

from __future__ import annotations

import json
import re

import jsonschema_rs
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import CallGrew, CallOpened, ReasoningGrew, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.events import EVENT_CLASSES
from antiphon.server.api.openapi import describe
from antiphon.server.doors import DoorSettings
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask, request


def test_every_schema_that_is_named_exists() -> None:
    text = json.dumps(describe())
    named = set(re.findall(r"#/components/schemas/(\w+)", text))

    assert named <= set(describe()["components"]["schemas"])
    assert "Conversation" in named


@pytest.mark.parametrize(
    ("path", "method"), [("/v1/responses", "post"), ("/v1/responses/{id}", "get")]
)
def test_the_event_stream_is_declared_with_every_event(path: str, method: str) -> None:
    document = describe()
    content = document["paths"][path][method]["responses"]["200"]["content"]
    event = document["components"]["schemas"]["StreamEvent"]

    assert content["text/event-stream"]["schema"] == {"$ref": "#/components/schemas/StreamEvent"}
    assert set(event["discriminator"]["mapping"]) == set(EVENT_CLASSES)


async def test_every_event_that_is_sent_matches_the_document() -> None:
    document = describe()
    schemas = document["components"]["schemas"]
    call = (CallOpened(0, "f"), CallGrew(0, "{}"))
    backend = ScriptedBackend([[ReasoningGrew("hm"), TextGrew("so"), *call, BackendError("gone")]])
    async with serve_gateway(backend) as gateway:
        answer = await ask(gateway, stream=True, tools=[{"type": "function", "name": "f"}])

    lines = [line for line in answer.body.splitlines() if line.startswith(b"data: {")]
    events = [json.loads(line.removeprefix(b"data: ")) for line in lines]
    names = schemas["StreamEvent"]["discriminator"]["mapping"]
    for event in events:
        schema = document | {"$ref": names[event["type"]]}
        jsonschema_rs.validate(schema, event)
    assert {event["type"] for event in events} >= {"error", "response.failed"}


async def test_answers_match_the_schemas_that_are_written_by_hand() -> None:
    document = describe()
    turn = {"model": "echo", "input": "hi"}
    async with serve_gateway(ScriptedBackend()) as gateway:
        kept = await request(gateway, "POST", "/conversations", {"metadata": {"a": "b"}})
        one = f"/conversations/{kept.json['id']}"
        response = await ask(gateway)
        answers = {
            "Conversation": [kept, await request(gateway, "GET", one)],
            "ItemList": [
                await request(gateway, "GET", f"{one}/items"),
                await request(gateway, "GET", f"/responses/{response.json['id']}/input_items"),
            ],
            "InputTokens": [await request(gateway, "POST", "/responses/input_tokens", turn)],
            "Compaction": [await request(gateway, "POST", "/responses/compact", turn)],
            "Deleted": [
                await request(gateway, "DELETE", one),
                await request(gateway, "DELETE", f"/responses/{response.json['id']}"),
            ],
            "Error": [await request(gateway, "GET", one)],
        }
    for name, found in answers.items():
        schema = document | {"$ref": f"#/components/schemas/{name}"}
        for answer in found:
            assert answer.status == (404 if name == "Error" else 200), answer.body
            jsonschema_rs.validate(schema, answer.json)


@pytest.mark.parametrize(
    "doors", [DoorSettings(), DoorSettings(chat=False, messages=False, embeddings=False)]
)
async def test_every_route_is_described_and_every_description_is_a_route(
    doors: DoorSettings,
) -> None:
    settings = ServerSettings(doors=doors)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        document = (await request(gateway, "GET", "/../openapi.json")).json
        routes = {
            (method.lower(), path)
            for path, by_method in gateway.app._routes.items()
            for method in by_method
        }

    described = {
        (method, path)
        for path, operations in document["paths"].items()
        for method in operations
        if method != "parameters"
    }
    assert described == routes


def test_every_step_of_a_path_that_varies_is_a_parameter() -> None:
    for path, operations in describe()["paths"].items():
        names = {one["name"] for one in operations.get("parameters", ()) if one["in"] == "path"}
        assert names == set(re.findall(r"{(\w+)}", path)), path
