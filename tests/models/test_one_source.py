"""Both wings know the same about a model: there is no second table and no second reader."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.backends.chat import ChatBackend
from antiphon.host.model_table import ModelTable
from antiphon.host.models import ModelDescription, ModelDirectory
from antiphon.models.facts import ModelInfo
from antiphon.models.table import ROWS, find_facts
from antiphon.routing.catalog import Catalog
from antiphon.routing.describe import describe
from antiphon.server.api.codex import codex_entries
from antiphon.transport.http import HttpClient

SOURCE = Path(__file__).parents[2] / "src/antiphon"
NAMES = [*(row.name for row in ROWS), "ft:gpt-4o:acme", "openai:gpt-5", "text-embedding-3-small"]


@asynccontextmanager
async def listed(body: bytes) -> AsyncIterator[str]:
    """Run a server with this list of models; yield its address."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def ask_serving_wing(url: str) -> list[ModelInfo]:
    catalog = Catalog({"up": ChatBackend(url)}, time.monotonic)
    try:
        return await catalog.models()
    finally:
        await catalog.close()


async def ask_calling_wing(url: str) -> tuple[ModelDescription, ...]:
    client = HttpClient()
    directory = ModelDirectory(client, url)
    try:
        return await directory.list(silent=False)
    finally:
        await directory.close()
        await client.close()


def served(model: ModelInfo) -> dict[str, Any]:
    window, output = model.context_length, model.max_output_tokens
    return {
        "window": window,
        "output": min(output, window) if output and window else output,
        "images": model.image_input,
        "tools": model.supports_tools,
        "reasoning": model.reasoning,
        "levels": model.reasoning_levels or (),
        "price": model.price,
    }


def shown(model: ModelDescription) -> dict[str, Any]:
    return {
        "window": model.context_window,
        "output": model.max_output_tokens,
        "images": model.capabilities.image_input,
        "tools": model.capabilities.tool_calling,
        "reasoning": model.capabilities.reasoning,
        "levels": model.capabilities.reasoning_levels,
        "price": model.price,
    }


async def compare(body: object) -> None:
    async with listed(json.dumps(body).encode()) as url:
        ours, theirs = await ask_serving_wing(url), await ask_calling_wing(url)
    assert {model.id: served(model) for model in ours if model.is_chat} == {
        model.id: shown(model) for model in theirs
    }
    assert [entry["slug"] for entry in codex_entries(ours)] == [model.id for model in theirs]


@pytest.mark.parametrize("owner", ["openai", "library", "organization_owner"])
async def test_both_wings_know_the_same_about_every_name(owner: str) -> None:
    await compare({"data": [{"id": name, "owned_by": owner} for name in NAMES]})


@pytest.mark.parametrize("name", NAMES)
def test_both_wings_know_the_same_about_a_model_that_is_not_listed(name: str) -> None:
    model, facts = describe(ModelInfo(name), "up", {}), ModelTable().facts(name)
    assert (model.context_length, model.max_output_tokens, model.price, model.encoding) == (
        facts.context_window,
        facts.max_output_tokens,
        facts.price,
        facts.encoding,
    )
    assert find_facts(name).family == model.family == facts.family


_FIGURES = st.integers(-1, 200_000) | st.none() | st.booleans()
_WORDS = st.lists(
    st.sampled_from(["tools", "vision", "thinking", "multimodal", "tool-use", "chat"]), max_size=3
)
_ANSWERS = st.dictionaries(
    st.sampled_from(["function_calling", "vision", "reasoning", "tool_calls", "limits"]),
    st.booleans() | st.dictionaries(st.just("max_output_tokens"), _FIGURES),
    max_size=3,
)
_PRICES = st.sampled_from(["0.000001", 2e-6, 3, "free", None])
_ENTRIES = st.fixed_dictionaries(
    {"id": st.sampled_from([*NAMES, "house", "house-ocr", "davinci-002", "a/b-image"])},
    optional={
        "slug": st.sampled_from(["house", "other"]),
        "owned_by": st.sampled_from(["library", "vllm", "organization_owner"]),
        "context_length": _FIGURES,
        "context_window": _FIGURES,
        "loaded_context_length": _FIGURES,
        "max_context_length": _FIGURES,
        "max_model_len": _FIGURES,
        "max_output_tokens": _FIGURES,
        "metadata": st.dictionaries(st.sampled_from(["context_length", "max_tokens"]), _FIGURES),
        "meta": st.dictionaries(st.sampled_from(["n_ctx", "n_ctx_train"]), _FIGURES),
        "capabilities": _WORDS | _ANSWERS,
        "features": _WORDS,
        "supported_parameters": _WORDS,
        "supports_tools": st.booleans(),
        "supports_image_input": st.booleans(),
        "input_modalities": st.lists(st.sampled_from(["text", "image", "audio"]), max_size=2),
        "reasoning_levels": st.lists(st.sampled_from(["low", "high"]), max_size=2),
        "supported_reasoning_levels": st.lists(st.just({"effort": "low"}), max_size=1),
        "type": st.sampled_from(["llm", "vlm", "embeddings", "image", "model"]),
        "visibility": st.sampled_from(["list", "hide"]),
        "supported_in_api": st.booleans(),
        "pricing": st.fixed_dictionaries({"input": _PRICES, "output": _PRICES}),
        "assumed": st.lists(st.sampled_from(["context_window", "input_modalities"]), max_size=1),
    },
)


@settings(max_examples=60)
@given(st.lists(_ENTRIES, max_size=12), st.lists(_ENTRIES, max_size=4))
def test_both_wings_read_the_same_from_any_list(
    data: list[dict[str, Any]], models: list[dict[str, Any]]
) -> None:
    asyncio.run(compare({"data": data, "models": models}))


# Each of these is in a list of models or in the name of a model, and of use to nothing else.
_TELLING = {"max_model_len", "loaded_context_length", "n_ctx_train", "whisper", "dall-e"}


def strings(path: Path) -> set[str]:
    """Return the string constants of a module, docstrings included."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    values = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {value for value in values if isinstance(value, str)}


def test_only_one_room_reads_entries_and_names() -> None:
    found = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if any(word in text for text in strings(path) for word in _TELLING)
    }
    assert found == {"models"}
