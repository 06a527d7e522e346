"""Lists of models, in the words of the servers that write them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.models.facts import ModelInfo
from antiphon.models.listing import read_models
from antiphon.models.prices import Price
from antiphon.protocol.errors import BackendError

# What each server states about a model, cut to what matters, and how it is read.
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
            "pricing": {"prompt": "0.00000125", "completion": "0.00001"},
            "supported_parameters": ["temperature", "tools"],
            "reasoning": {"supported_efforts": ["low", "high"]},
        },
        {
            "display_name": "Maker: M",
            "context_length": 131072,
            "max_output_tokens": 16384,
            "modalities": ("text", "image"),
            "reasoning": True,
            "reasoning_levels": ("low", "high"),
            "supports_tools": True,
            "price": Price(1.25, 10.0),
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
            "name": "M",
            "type": "language",
            "context_window": 200_000,
            "max_tokens": 64_000,
            "tags": ["tool-use", "vision"],
            "pricing": {"input": "0.000003", "output": "0.000015", "input_cache_read": 3e-7},
        },
        {
            "display_name": "M",
            "context_length": 200_000,
            "max_output_tokens": 64_000,
            "modalities": ("text", "image"),
            "supports_tools": True,
            "price": Price(3.0, 15.0, 0.3),
        },
        id="Vercel",
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
        {"model": "m", "name": "m", "capabilities": ["completion", "tools", "vision", "thinking"]},
        {"modalities": ("text", "image"), "supports_tools": True, "reasoning": True},
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
                "limits": {
                    "max_context_window_tokens": 128000,
                    "max_prompt_tokens": 64000,
                    "max_output_tokens": 4096,
                },
                "supports": {"tool_calls": True, "vision": True},
            },
        },
        {
            "context_length": 128000,
            "max_input_tokens": 64000,
            "max_output_tokens": 4096,
            "modalities": ("text", "image"),
            "supports_tools": True,
        },
        id="GitHub Copilot",
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
    """Return the models without the fields that were only kept."""
    return [msgspec.structs.replace(model, stated=None) for model in models]


@pytest.mark.parametrize(("entry", "facts"), SERVERS)
def test_facts_are_read_under_the_names_of_every_server(
    entry: dict[str, Any], facts: dict[str, Any]
) -> None:
    created = entry.get("created", 0)
    assert bare(read(entry)) == [model(**facts, created=created)]
    listed = read_models(json.dumps([entry]).encode())
    assert bare(listed) == [model(**facts, created=created)]


def test_two_entries_of_one_model_are_merged() -> None:
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
    assert found == model(display_name="M", reasoning=True, reasoning_levels=("low",))


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
        {"id": "m", "tags": [["tools"], {}], "supported_reasoning_levels": "high"},
        {"id": "m", "reasoning_levels": [[], {"effort": []}]},
        {"id": "m", "capabilities": {"supports": 1, "reasoning": "perhaps"}, "type": ["image"]},
        {"id": "m", "visibility": ["hide"], "supported_in_api": []},
        {"id": "m", "pricing": "none"},
        {"id": "m", "pricing": {"input": "free", "output": None}},
        {"id": "m", "pricing": {"input": "nan", "output": "0.00001"}},
        {"id": "m", "pricing": {"input": 10**400, "output": "1e999"}},
    ],
)
def test_values_that_make_no_sense_are_ignored(entry: dict[str, Any]) -> None:
    assert bare(read(entry)) == [model()]


def test_other_fields_of_an_entry_are_kept_unchanged() -> None:
    stated = {
        "description": "A model",
        "reasoning": {"mandatory": True, "supported_efforts": ["low"]},
        "pricing": {"prompt": "0.1"},
    }
    about_the_upstream = {"root": "/srv/m.gguf", "supported_parameters": ["max_tokens"]}
    (found,) = read({"id": "m", "max_model_len": 1, "name": "M", **stated, **about_the_upstream})
    assert found.stated == stated


def test_other_fields_of_an_entry_have_a_limit() -> None:
    (found,) = read({"id": "m", "long": "x" * 5000, "short": 1})
    assert found.stated == {"short": 1}


def test_entries_without_a_name_are_skipped() -> None:
    assert read({"name": "no id"}, {"id": ""}, {"id": 7}, "m", None, {"id": "m"}) == [model()]


def test_a_long_list_is_truncated() -> None:
    assert len(read(*({"id": str(index)} for index in range(10_005)))) == 10_000


def test_the_window_a_model_runs_with_comes_before_the_one_it_was_made_for() -> None:
    (found,) = read({"id": "m", "max_context_length": 131_072, "loaded_context_length": 8192})
    assert found.context_length == 8192


def test_the_id_of_an_entry_comes_before_its_slug() -> None:
    (found,) = read({"id": "m", "slug": "m-2", "context_length": 1})
    assert found.id == "m"


def test_a_price_of_a_million_tokens_is_not_taken_for_that_of_one() -> None:
    (found,) = read({"id": "m", "pricing": {"input": 3, "output": 15}})
    assert found.price is None


@pytest.mark.parametrize("levels", [["low", "high"], [{"effort": "low"}, {"effort": "high"}, {}]])
def test_levels_of_reasoning_mean_that_it_reasons(levels: list[Any]) -> None:
    (found,) = read({"id": "m", "supported_reasoning_levels": levels})
    assert (found.reasoning_levels, found.reasoning) == (("low", "high"), True)
    denied = {"supported_reasoning_levels": levels, "capabilities": {"reasoning": False}}
    assert read({"id": "m", **denied})[0].reasoning is False


def test_an_empty_list_of_levels_is_a_statement() -> None:
    (found,) = read({"id": "m", "supported_reasoning_levels": []})
    assert (found.reasoning_levels, found.reasoning) == ((), None)


@pytest.mark.parametrize(
    "entry",
    [
        {"id": "text-embedding-3-small"},
        {"id": "m", "type": "embeddings"},
        {"id": "m", "type": "image"},
        {"id": "m", "visibility": "hide"},
        {"id": "m", "supported_in_api": False},
    ],
)
def test_models_that_are_hidden_or_not_for_chat_are_marked(entry: dict[str, Any]) -> None:
    assert [model.is_chat for model in read(entry)] == [False]


@pytest.mark.parametrize("kind", ["language", "chat", "llm", "vlm", "model", "text", None])
def test_models_of_every_kind_of_chat_are_for_chat(kind: str | None) -> None:
    assert [model.is_chat for model in read({"id": "m", "type": kind})] == [True]


def test_a_model_that_one_of_its_entries_hides_is_hidden() -> None:
    body = {"data": [{"id": "m"}, {"id": "n"}], "models": [{"slug": "m", "visibility": "none"}]}
    found = read_models(json.dumps(body).encode())
    assert {model.id: model.is_chat for model in found} == {"m": False, "n": True}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"7", b"<html>", b'{"data":null}', b'"\xff"', b"[" * 100_000]
)
def test_a_body_that_is_not_a_list_is_an_error(body: bytes) -> None:
    with pytest.raises(BackendError, match="cannot be read") as caught:
        read_models(body)
    assert caught.value.code == "upstream_invalid_response"


_WORDS = st.sampled_from(
    [
        *("visibility", "supported_in_api", "type", "capabilities", "tags", "limits", "meta"),
        *("pricing", "input", "output", "architecture", "input_modalities", "max_tokens"),
        *("supported_reasoning_levels", "supported_parameters", "supports", "n_ctx", "effort"),
    ]
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(0, 1) | st.sampled_from("ab")


@given(
    st.recursive(
        _LEAVES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
        max_leaves=12,
    )
)
def test_no_entry_makes_reading_fail(value: Any) -> None:
    fields = value if isinstance(value, dict) else {"tags": value}
    assert [found.id for found in read({**fields, "id": "x"})] == ["x"]
