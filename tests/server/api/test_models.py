"""GET /v1/models, for OpenAI's clients and for Codex."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from openai import AsyncOpenAI, NotFoundError

from antiphon.backends.base import ModelInfo
from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.host.model_table import ModelFacts, ModelTable
from antiphon.models.listing import read_models
from antiphon.routing.describe import ModelSettings
from antiphon.testing import ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from tests.asking import request


class Listing(ScriptedBackend):
    """A backend that says much of one model, and nothing of another."""

    async def models(self) -> Sequence[ModelInfo]:
        known = ModelInfo(
            "maker/m",
            created=7,
            owned_by="maker",
            context_length=131_072,
            display_name="M",
            max_output_tokens=4_096,
            reasoning_levels=("low", "high"),
            modalities=("text", "image"),
            supports_tools=True,
        )
        return [known, ModelInfo("unheard-of")]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with serve_gateway(Listing(), default_model="unheard-of") as gateway:
        yield gateway


async def test_an_object_says_what_is_known(gateway: Gateway) -> None:
    listed = (await request(gateway, "GET", "/models")).json
    assert listed["object"] == "list"
    assert listed["data"] == [
        {
            "id": "maker/m",
            "object": "model",
            "created": 7,
            "owned_by": "maker",
            "display_name": "M",
            "context_length": 131_072,
            "max_output_tokens": 4_096,
            "input_modalities": ["text", "image"],
            "reasoning_levels": ["low", "high"],
            "capabilities": {"function_calling": True},
        },
        {"id": "unheard-of", "object": "model", "created": 0, "owned_by": "antiphon"},
    ]
    single = (await request(gateway, "GET", "/models/maker%2Fm")).json
    assert single == listed["data"][0]


async def test_codex_finds_its_entries_beside_the_objects(gateway: Gateway) -> None:
    answer = await request(gateway, "GET", "/models?client_version=0.166.0")
    assert answer.status == 200
    entries = answer.json["models"]
    assert [(entry["slug"], entry["priority"]) for entry in entries] == [
        ("unheard-of", 0),
        ("maker/m", 1),
    ]
    assert answer.body == (await request(gateway, "GET", "/models")).body


async def test_the_openai_sdk_reads_both_forms(gateway: Gateway) -> None:
    async with AsyncOpenAI(base_url=gateway.base_url, api_key="x") as client:
        page = await client.models.list()
        assert [model.id for model in page.data] == ["maker/m", "unheard-of"]
        single = await client.models.retrieve("unheard-of")
        assert (single.object, single.owned_by) == ("model", "antiphon")
        assert single.model_extra == {}
        with pytest.raises(NotFoundError):
            await client.models.retrieve("ghost")


@pytest.mark.parametrize("name", ["a/b/c", "a b", "sp%20ace", "100%", "ü", "?q#f", "a//b", "../x"])
async def test_any_name_finds_its_model(name: str) -> None:
    async with serve_gateway(ScriptedBackend(models=[name])) as gateway:
        answer = await request(gateway, "GET", f"/models/{quote(name, safe='')}")
        assert (answer.status, answer.json["id"]) == (200, name)


async def test_config_makes_no_model() -> None:
    told = {"echo": ModelSettings(context_length=10), "ghost": ModelSettings(context_length=10)}
    async with serve_gateway(ScriptedBackend(models=["echo"]), models=told) as gateway:
        listed = (await request(gateway, "GET", "/models")).json
        assert [model["id"] for model in listed["data"]] == ["echo"]
        assert listed["data"][0]["context_length"] == 10
        assert (await request(gateway, "GET", "/models/ghost")).status == 404


async def test_one_gateway_behind_another_hands_on_what_is_known() -> None:
    async with (
        serve_gateway(Listing()) as inner,
        serve_gateway(ChatBackend(inner.base_url)) as outer,
    ):
        near = (await request(inner, "GET", "/models")).json
        assert (await request(outer, "GET", "/models")).json == near


STATED = {
    "description": "A model that thinks",
    "reasoning": {"mandatory": False, "supported_efforts": ["low", "high"]},
    "pricing": {"prompt": "0.000001"},
}
ENTRY = {"id": "m", "object": "model", "context_length": 4096, "capabilities": ["vision"]} | STATED


@asynccontextmanager
async def upstream_with(*entries: dict[str, Any]) -> AsyncIterator[str]:
    """Run a server that lists these models and does nothing else; yield its address."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.json_response({"object": "list", "data": entries})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def test_what_the_upstream_states_of_a_model_is_passed_on() -> None:
    async with (
        upstream_with(ENTRY | {"root": "/srv/m", "supported_parameters": ["max_tokens"]}) as url,
        serve_gateway(ChatBackend(url)) as gateway,
    ):
        (listed,) = (await request(gateway, "GET", "/models")).json["data"]
        single = (await request(gateway, "GET", "/models/m")).json

    assert single == listed
    assert listed == {
        "id": "m",
        "object": "model",
        "created": 0,
        "owned_by": "upstream",
        "context_length": 4096,
        "input_modalities": ["text", "image"],
        "reasoning_levels": ["low", "high"],
        "capabilities": {"vision": True, "function_calling": False},
        **STATED,
    }


async def test_what_config_states_is_not_contradicted_by_the_upstream() -> None:
    told = {"m": ModelSettings(reasoning_levels=("low",), supports_tools=True)}
    async with (
        upstream_with(ENTRY | {"owned_by": "us", "created": 7}) as url,
        serve_gateway(ChatBackend(url), models=told) as gateway,
    ):
        (listed,) = (await request(gateway, "GET", "/models")).json["data"]

    assert "reasoning" not in listed
    assert listed["reasoning_levels"] == ["low"]
    assert listed["capabilities"] == {"function_calling": True}
    assert listed["pricing"] == STATED["pricing"]


def described(body: bytes) -> dict[str, ModelFacts]:
    """Return what a chat application makes of the list."""
    return {model.id: ModelTable().describe(model) for model in read_models(body)}


async def test_our_own_client_reads_the_list(gateway: Gateway) -> None:
    facts = described((await request(gateway, "GET", "/models")).body)["maker/m"]
    assert (facts.name, facts.context_window, facts.max_output_tokens) == ("M", 131_072, 4_096)
    assert (facts.image_input, facts.tool_calling) == (True, True)
    assert facts.reasoning_levels == ("low", "high")


async def test_a_bare_name_of_an_upstream_is_found_in_the_table() -> None:
    async with (
        ScriptedUpstream(models=["Qwen/Qwen2.5-Coder-1.5B-Instruct"]) as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        (model,) = (await request(gateway, "GET", "/models")).json["data"]
        assert model["context_length"] == 32_768
        assert model["input_modalities"] == ["text"]
        assert model["reasoning_levels"] == []


@pytest.mark.parametrize("path", ["/models/maker/m", "/models/maker%2Fm"])
async def test_a_name_with_a_slash_is_found_however_it_is_written(
    gateway: Gateway, path: str
) -> None:
    answer = await request(gateway, "GET", path)
    assert (answer.status, answer.json["id"]) == (200, "maker/m")


async def test_our_own_client_takes_no_assumption_for_a_fact() -> None:
    async with serve_gateway(ScriptedBackend(models=["nobody-knows-me"])) as gateway:
        facts = described((await request(gateway, "GET", "/models")).body)["nobody-knows-me"]

    assert (facts.context_window, facts.image_input) == (None, None)
