"""The description of the API says what is there, and nothing else."""

from __future__ import annotations

import json
import re

from antiphon.backends.scripted import ScriptedBackend
from antiphon.server.openapi import describe
from antiphon.testing.gateway import serve_gateway
from tests.asking import request


def test_every_schema_that_is_named_exists() -> None:
    text = json.dumps(describe())
    named = set(re.findall(r"#/components/schemas/(\w+)", text))

    assert named <= set(describe()["components"]["schemas"])
    assert "Conversation" in named


async def test_every_route_is_described_and_every_description_is_a_route() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
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
