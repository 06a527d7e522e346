"""Lists of models, in the words of the servers that give them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from antiphon.backends.base import ModelInfo
from antiphon.backends.listing import read_models
from antiphon.protocol.errors import BackendError

# What each server says of a model, cut to what matters, and what is understood of it.
SERVERS: list[Any] = [
    pytest.param({"id": "m", "object": "model", "created": 7}, {}, id="OpenAI"),
    pytest.param({"id": "m", "max_model_len": 4096}, {"context_length": 4096}, id="vLLM"),
    pytest.param(
        {"id": "m", "meta": {"n_ctx": 8192, "n_ctx_train": 32768}},
        {"context_length": 8192},
        id="llama.cpp",
    ),
    pytest.param(
        {"id": "m", "meta": {"n_ctx_train": 32768, "n_vocab": 1}},
        {"context_length": 32768},
        id="llama.cpp, older",
    ),
    pytest.param(
        {
            "id": "m",
            "name": "Maker: M",
            "context_length": 131072,
            "architecture": {"input_modalities": ["text", "image"]},
            "top_provider": {"context_length": 65536, "max_completion_tokens": 16384},
            "supported_parameters": ["temperature", "tools"],
            "reasoning": {"supported_efforts": ["low", "high"]},
        },
        {
            "display_name": "Maker: M",
            "context_length": 131072,
            "max_output_tokens": 16384,
            "modalities": ("text", "image"),
            "reasoning_levels": ("low", "high"),
            "supports_tools": True,
        },
        id="OpenRouter",
    ),
    pytest.param(
        {"id": "m", "supported_parameters": ["temperature"]},
        {"supports_tools": False},
        id="OpenRouter, without tools",
    ),
    pytest.param(
        {
            "id": "m",
            "type": "vlm",
            "max_context_length": 131072,
            "loaded_context_length": 4096,
            "capabilities": ["tool_use"],
        },
        {"context_length": 4096, "modalities": ("text", "image"), "supports_tools": True},
        id="LM Studio",
    ),
    pytest.param(
        {"model": "m", "name": "m", "capabilities": ["completion", "tools", "vision"]},
        {"modalities": ("text", "image"), "supports_tools": True},
        id="Ollama",
    ),
    pytest.param(
        {
            "id": "m",
            "name": "m",
            "max_context_length": 32768,
            "capabilities": {"completion_chat": True, "function_calling": True, "vision": False},
        },
        {"context_length": 32768, "modalities": ("text",), "supports_tools": True},
        id="Mistral",
    ),
    pytest.param(
        {"id": "m", "type": "chat", "display_name": "M 8B", "context_length": 8192},
        {"display_name": "M 8B", "context_length": 8192},
        id="Together",
    ),
    pytest.param(
        {"id": "m", "context_window": 131072, "max_completion_tokens": 32768, "active": True},
        {"context_length": 131072, "max_output_tokens": 32768},
        id="Groq",
    ),
    pytest.param(
        {
            "id": "m",
            "context_length": 1024,
            "supports_image_input": False,
            "supports_tools": False,
        },
        {"context_length": 1024, "modalities": ("text",), "supports_tools": False},
        id="Fireworks",
    ),
    pytest.param(
        {
            "id": "m",
            "capabilities": {
                "limits": {"max_context_window_tokens": 128000, "max_output_tokens": 4096},
                "supports": {"tool_calls": True, "vision": True},
            },
        },
        {
            "context_length": 128000,
            "max_output_tokens": 4096,
            "modalities": ("text", "image"),
            "supports_tools": True,
        },
        id="limits within capabilities",
    ),
    pytest.param(
        {"id": "m", "metadata": {"context_length": 2048, "max_tokens": 512}},
        {"context_length": 2048, "max_output_tokens": 512},
        id="metadata",
    ),
    pytest.param(
        {
            "id": "m",
            "context_length": 4096,
            "input_modalities": ["text", "image"],
            "reasoning_levels": [],
            "capabilities": {"function_calling": False},
        },
        {
            "context_length": 4096,
            "modalities": ("text", "image"),
            "reasoning_levels": (),
            "supports_tools": False,
        },
        id="antiphon",
    ),
]


def model(**facts: Any) -> ModelInfo:
    return ModelInfo("m", owned_by="upstream", **facts)


def read(*entries: object) -> list[ModelInfo]:
    return read_models(json.dumps({"object": "list", "data": entries}).encode())


def bare(models: list[ModelInfo]) -> list[ModelInfo]:
    """Return what was understood, without what was only kept."""
    return [msgspec.structs.replace(model, facts=None) for model in models]


@pytest.mark.parametrize(("entry", "facts"), SERVERS)
def test_every_server_is_understood(entry: dict[str, Any], facts: dict[str, Any]) -> None:
    created = entry.get("created", 0)
    assert bare(read(entry)) == [model(**facts, created=created)]
    listed = read_models(json.dumps([entry]).encode())
    assert bare(listed) == [model(**facts, created=created)]


def test_two_lists_of_the_same_models_are_put_together() -> None:
    body = {
        "models": [{"model": "m", "capabilities": ["multimodal"], "context_length": 1}],
        "data": [{"id": "m", "owned_by": "llamacpp", "context_length": 4096}],
    }
    found = read_models(json.dumps(body).encode())
    assert bare(found) == [
        ModelInfo("m", owned_by="llamacpp", context_length=4096, modalities=("text", "image"))
    ]


def test_entries_for_codex_are_read_but_not_what_they_assume() -> None:
    entry = {
        "slug": "m",
        "display_name": "M",
        "context_window": 32768,
        "input_modalities": ["text"],
        "supported_reasoning_levels": [{"effort": "low", "description": "little"}, {"effort": 1}],
        "assumed": ["context_window", "input_modalities"],
    }
    (found,) = read_models(json.dumps({"models": [entry]}).encode())
    assert found == model(display_name="M", reasoning_levels=("low",))


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "m", "context_length": 0},
        {"id": "m", "context_length": True, "max_tokens": -1},
        {"id": "m", "context_length": "4096", "created": "today"},
        {"id": "m", "context_length": 1 << 70, "created": 1 << 70},
        {"id": "m", "owned_by": 7, "meta": [], "capabilities": "all", "architecture": None},
        {"id": "m", "input_modalities": [1, "", "x" * 201], "reasoning": {"effort": "low"}},
        {"id": "m", "capabilities": {"vision": "yes"}, "display_name": ""},
        {"id": "m", "tags": [["tools"], {}]},
    ],
)
def test_what_makes_no_sense_is_passed_over(entry: dict[str, Any]) -> None:
    assert bare(read(entry)) == [model()]


def test_what_else_an_entry_states_is_kept_as_it_was_written() -> None:
    stated = {
        "description": "A model",
        "reasoning": {"mandatory": True, "supported_efforts": ["low"]},
        "pricing": {"prompt": "0.1"},
    }
    about_the_upstream = {"root": "/srv/m.gguf", "supported_parameters": ["max_tokens"]}
    (found,) = read({"id": "m", "max_model_len": 1, "name": "M", **stated, **about_the_upstream})
    assert found.facts == stated


def test_what_an_entry_states_has_a_limit() -> None:
    (found,) = read({"id": "m", "long": "x" * 5000, "short": 1})
    assert found.facts == {"short": 1}


def test_entries_without_a_name_are_passed_over() -> None:
    assert read({"name": "no id"}, {"id": ""}, {"id": 7}, "m", None, {"id": "m"}) == [model()]


def test_a_long_list_is_cut() -> None:
    assert len(read(*({"id": str(index)} for index in range(10_005)))) == 10_000


@pytest.mark.parametrize("body", [b"", b"{}", b"<html>", b'{"data":null}', b"[" * 100_000])
def test_what_is_no_list_is_a_fault(body: bytes) -> None:
    with pytest.raises(BackendError, match="cannot be read") as caught:
        read_models(body)
    assert caught.value.code == "upstream_invalid_response"
