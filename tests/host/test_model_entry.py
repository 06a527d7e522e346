"""Lists of models as different servers write them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.client.errors import InvalidAnswer
from antiphon.host.model_entry import read_models
from antiphon.host.model_table import ModelFacts, Price


def _read(**entry: Any) -> ModelFacts:
    models = read_models(msgspec.json.encode({"data": [{"id": "m", **entry}]}))
    return models["m"]


@pytest.mark.parametrize(
    ("entry", "facts"),
    [
        # OpenAI
        ({"object": "model", "created": 1, "owned_by": "openai"}, ModelFacts()),
        # our gateway, vLLM, llama.cpp
        ({"context_length": 2048}, ModelFacts(context_window=2048)),
        ({"max_model_len": 4096, "root": "m"}, ModelFacts(context_window=4096)),
        ({"meta": {"n_ctx_train": 8192, "n_vocab": 7}}, ModelFacts(context_window=8192)),
        # OpenRouter
        (
            {
                "name": "M Large",
                "context_length": 1000,
                "architecture": {"input_modalities": ["text", "image"]},
                "pricing": {"prompt": "0.00000125", "completion": "0.00001"},
                "top_provider": {"context_length": 900, "max_completion_tokens": 100},
                "supported_parameters": ["tools", "temperature", "reasoning"],
            },
            ModelFacts(
                name="M Large",
                context_window=1000,
                max_output_tokens=100,
                image_input=True,
                tool_calling=True,
                reasoning=True,
                price=Price(1.25, 10.0),
            ),
        ),
        # Vercel
        (
            {
                "name": "M",
                "type": "language",
                "context_window": 200_000,
                "max_tokens": 64_000,
                "tags": ["tool-use", "vision"],
                "pricing": {
                    "input": "0.000003",
                    "output": "0.000015",
                    "input_cache_read": "0.0000003",
                },
            },
            ModelFacts(
                name="M",
                context_window=200_000,
                max_output_tokens=64_000,
                image_input=True,
                tool_calling=True,
                price=Price(3.0, 15.0, 0.3),
            ),
        ),
        # Mistral
        (
            {
                "max_context_length": 32_000,
                "capabilities": {"function_calling": True, "vision": False},
            },
            ModelFacts(context_window=32_000, tool_calling=True, image_input=False),
        ),
        # GitHub Copilot
        (
            {
                "capabilities": {
                    "limits": {
                        "max_context_window_tokens": 128_000,
                        "max_prompt_tokens": 64_000,
                        "max_output_tokens": 4_096,
                    },
                    "supports": {"tool_calls": True, "vision": True},
                    "family": "gpt",
                }
            },
            ModelFacts(
                context_window=128_000,
                max_input_tokens=64_000,
                max_output_tokens=4_096,
                tool_calling=True,
                image_input=True,
            ),
        ),
        # Ollama
        (
            {"capabilities": ["completion", "tools", "thinking"]},
            ModelFacts(tool_calling=True, reasoning=True),
        ),
        # anything else
        (
            {
                "context_length": True,
                "max_model_len": "many",
                "context_window": -1,
                "capabilities": [1, {"a": 2}, "tools"],
                "tags": {"reasoning": "perhaps"},
                "supported_reasoning_levels": "high",
                "pricing": {"input": "free", "output": None},
                "name": 7,
                "architecture": [],
            },
            ModelFacts(tool_calling=True),
        ),
        ({"pricing": {"input": 3, "output": 15}}, ModelFacts()),
        ({"pricing": {"input": "nan", "output": "0.00001"}}, ModelFacts()),
        ({"pricing": "none", "input_modalities": ["text"]}, ModelFacts(image_input=False)),
        ({"capabilities": {"supports": 1}, "tags": ["chat"]}, ModelFacts()),
    ],
)
def test_facts_are_read_under_every_name_servers_have_for_them(
    entry: dict[str, Any], facts: ModelFacts
) -> None:
    assert _read(**entry) == facts


@pytest.mark.parametrize("levels", [["low", "high"], [{"effort": "low"}, {"effort": "high"}, {}]])
def test_levels_of_reasoning_mean_that_it_reasons(levels: list[Any]) -> None:
    facts = _read(supported_reasoning_levels=levels)

    assert facts.reasoning_levels == ("low", "high")
    assert facts.reasoning is True
    assert _read(supported_reasoning_levels=[]).reasoning is None
    denied = _read(supported_reasoning_levels=levels, capabilities={"reasoning": False})
    assert denied.reasoning is False


def test_the_two_lists_of_a_codex_server_are_put_together() -> None:
    body = {
        "object": "list",
        "data": [{"id": "gpt-x", "object": "model"}, {"id": "plain", "object": "model"}],
        "models": [
            {"slug": "gpt-x", "display_name": "GPT X", "context_window": 272_000},
            {"slug": "gpt-y", "display_name": "GPT Y", "input_modalities": ["text", "image"]},
            {"slug": "plain", "visibility": "hide"},
            {"slug": "inner", "supported_in_api": False},
        ],
    }

    assert read_models(msgspec.json.encode(body)) == {
        "gpt-x": ModelFacts(name="GPT X", context_window=272_000),
        "gpt-y": ModelFacts(name="GPT Y", image_input=True),
    }


def test_only_models_that_chat_are_listed() -> None:
    entries: list[Any] = [
        {"id": "one"},
        {"id": "text-embedding-3-small"},
        {"id": "painter", "type": "image"},
        {"id": "talker", "type": "language"},
        {"id": ""},
        {"id": 7},
        {},
        "two",
        {"id": "one", "context_length": 5},
    ]

    models = read_models(msgspec.json.encode(entries))
    assert list(models) == ["one", "talker"]
    assert models["one"].context_window == 5


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"7", b"{}", b'{"data":{}}', b"[" * 100_000, b'"\xff"']
)
def test_what_is_no_list_of_models_is_an_error(body: bytes) -> None:
    with pytest.raises(InvalidAnswer, match="base URL"):
        read_models(body)


@pytest.mark.parametrize(
    "entry",
    [
        {"visibility": ["x"]},
        {"visibility": {}},
        {"supported_in_api": []},
        {"type": ["language"]},
        {"pricing": {"input": 10**400, "output": "1e999"}},
        {"architecture": {"input_modalities": [[]]}},
        {"supported_reasoning_levels": [[], {"effort": []}]},
    ],
)
def test_an_entry_with_strange_values_is_a_model_all_the_same(entry: dict[str, Any]) -> None:
    body = json.dumps({"data": [{"id": "house", **entry}]}).encode()
    assert list(read_models(body)) == ["house"]


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
    assert set(read_models(json.dumps([{**fields, "id": "x"}]).encode())) <= {"x"}
