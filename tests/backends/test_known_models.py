"""The bundled table: in order, true to itself, and silent about what it does not know."""

from __future__ import annotations

import pytest

from antiphon.backends.base import ModelInfo
from antiphon.backends.known_models import KNOWN, Known, fill_in, find_known
from antiphon.host.model_table import MODELS, ModelFacts


def test_the_table_is_sorted_and_has_nothing_twice() -> None:
    patterns = [row.pattern for row in KNOWN]
    assert patterns == sorted(set(patterns))
    assert len({row.example for row in KNOWN}) == len(KNOWN)


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.example)
def test_every_pattern_finds_its_example(row: Known) -> None:
    assert find_known(row.example) is row


@pytest.mark.parametrize("row", KNOWN, ids=lambda row: row.example)
def test_every_row_makes_sense(row: Known) -> None:
    assert row.context is None or 1_000 < row.context < 3_000_000
    assert row.output is None or (row.context is not None and 0 < row.output <= row.context)
    assert row.modalities[0] == "text"
    order = ("none", "minimal", "low", "medium", "high", "xhigh")
    assert row.levels is None or list(row.levels) == sorted(row.levels, key=order.index)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("qwen2.5-coder:1.5b", "qwen-?2-5"),
        ("/models/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf", "qwen-?2-5"),
        ("Qwen/Qwen3-0.6B", "qwen-?3"),
        ("hf.co/unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M", "qwen-?3-coder"),
        ("llama3.1:8b", "(?:meta-)?llama-?3-(?:1|2|3)"),
        ("Meta-Llama-3.1-8B-Instruct", "(?:meta-)?llama-?3-(?:1|2|3)"),
        ("llama-3.3-70b-versatile", "(?:meta-)?llama-?3-(?:1|2|3)"),
        ("gemma-3-4b-it", "gemma-?3"),
        ("gpt-oss:20b", "gpt-oss"),
        ("command-r-08-2024", "command-r(?:-plus)?"),
        ("DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1"),
    ],
)
def test_names_are_found_however_they_are_written(name: str, pattern: str) -> None:
    row = find_known(name)
    assert row is not None
    assert row.pattern == pattern


@pytest.mark.parametrize(
    "name",
    ["", "/", "echo", "qwen3.5", "qwen3.5:4b", "qwen30b", "gpt-5.9", "gpt-4ox", "my-gpt-4o",
     "kimi-k2.5", "gpt-5-chat-latest", "o1-mini", "gpt-4o-mini-audio-preview"],
)  # fmt: skip
def test_another_version_is_another_model(name: str) -> None:
    assert find_known(name) is None


@pytest.mark.parametrize("name", MODELS)
def test_it_says_nothing_that_the_client_s_table_denies(name: str) -> None:
    row, facts = find_known(name), MODELS[name]
    if row is not None:
        assert contradictions(row, facts) == []


def contradictions(row: Known, facts: ModelFacts) -> list[str]:
    sees = "image" in row.modalities
    pairs = {
        "context": (row.context, facts.context_window),
        "output": (row.output, facts.max_output_tokens),
        "levels": (row.levels or None, facts.reasoning_levels),
        "tools": (row.has_tools, facts.tool_calling),
        "images": (sees, facts.image_input),
    }
    return [
        name
        for name, (ours, theirs) in pairs.items()
        if None not in (ours, theirs) and ours != theirs
    ]


def test_the_table_fills_in_what_the_server_left_out() -> None:
    listed = ModelInfo("gpt-oss-20b", owned_by="vllm", context_length=4096)
    assert fill_in(listed) == ModelInfo(
        "gpt-oss-20b",
        owned_by="vllm",
        context_length=4096,
        reasoning_levels=("low", "medium", "high"),
        modalities=("text",),
        supports_tools=True,
    )
    assert fill_in(ModelInfo("nobody-knows")) == ModelInfo("nobody-knows")


@pytest.mark.parametrize("owner", ["library", "organization_owner"])
def test_a_server_that_chooses_the_window_is_not_spoken_for(owner: str) -> None:
    listed = fill_in(ModelInfo("qwen3-coder:30b", owned_by=owner))
    assert listed.context_length is None
    assert listed.supports_tools is True
