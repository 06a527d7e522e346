"""The bundled table: which row a name finds, and what the row may state."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from antiphon.host.vocabulary import VOCABULARIES
from antiphon.models.facts import Facts, ModelInfo
from antiphon.models.names import is_chat_model
from antiphon.models.prices import Price
from antiphon.models.table import FIGURES_FROM, ROWS, Row, fill_in, find_facts

LEVELS = ("none", "minimal", "low", "medium", "high", "xhigh")


def test_no_family_and_no_pattern_is_in_the_table_twice() -> None:
    counts = Counter(row.name for row in ROWS) + Counter(row.pattern for row in ROWS)
    aliases = {row.name for row in ROWS if row.name == row.pattern}
    assert {name for name, count in counts.items() if count > 1} == aliases


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_pattern_finds_its_own_name(row: Row) -> None:
    assert find_facts(row.name) is row.facts
    assert is_chat_model(row.name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_is_plausible(row: Row) -> None:
    facts = row.facts
    assert facts.context_length is None or 1_000 < facts.context_length < 3_000_000
    assert 1 <= (facts.max_output_tokens or 1) <= (facts.context_length or 1)
    assert facts.modalities is None or facts.modalities[0] == "text"
    levels = facts.reasoning_levels or ()
    assert list(levels) == sorted(levels, key=LEVELS.index)
    assert not (levels and facts.reasoning is False)
    assert facts.encoding is None or facts.encoding in VOCABULARIES
    assert facts.image_cost is None or facts.image_input
    assert facts.family in (None, row.name)


def test_the_figures_have_a_date() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", FIGURES_FROM)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("qwen2.5-coder:1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct"),
        (
            "/models/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
            "Qwen/Qwen2.5-Coder-1.5B-Instruct",
        ),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-8B"),
        ("hf.co/unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M", "qwen3-coder:30b"),
        ("llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3.3-70b-versatile", "meta-llama/Llama-3.1-8B-Instruct"),
        ("gemma-3-4b-it", "google/gemma-3-27b-it"),
        ("command-r-08-2024", "command-r-plus-08-2024"),
        ("DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1:7b"),
    ],
)
def test_names_are_found_in_every_spelling(name: str, row: str) -> None:
    assert find_facts(name) is find_facts(row) != Facts()


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-11-20", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("GPT-4o-Mini", "gpt-4o-mini"),
        ("gpt-4-0613", "gpt-4"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5.1", "gpt-5.1"),
        ("openai/gpt-5-chat", "gpt-5-chat-latest"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("openai:gpt-5-mini", "gpt-5-mini"),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc", "gpt-4o-mini"),
        ("gpt-oss:20b", "gpt-oss"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4.5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4.5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("accounts/x/models/gpt-oss-120b", "gpt-oss"),
        ("gpt-4o-mini-audio-preview-2024-12-17", "gpt-4o-mini-audio-preview"),
        ("gpt-4o-mini-search-preview", "gpt-4o-mini-search-preview"),
    ],
)
def test_the_longest_family_that_begins_a_name_is_found(name: str, family: str) -> None:
    assert find_facts(name).family == family


@pytest.mark.parametrize(
    "name",
    ["", "/", ":", "echo", "qwen3.5", "qwen3.5:4b", "qwen30b", "gpt-5.9", "gpt-4.7", "gpt-4p",
     "gpt-55", "gpt-4ox", "gpt-4oé", "my-gpt-4o", "kimi-k2.5", "claude-opus-4-9", "o9",
     "gpt-5.4-chat", "gpt-5.9-2025-12-11", "gpt-5.10-2025-12-11"],
)  # fmt: skip
def test_another_version_is_another_model(name: str) -> None:
    assert find_facts(name) == Facts()


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("gpt-4.1-nano", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-5.5", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("claude-sonnet-4-5", None),
        ("gemini-2.5-pro", None),
    ],
)
def test_the_encoding_goes_with_the_model(name: str, encoding: str | None) -> None:
    assert find_facts(name).encoding == encoding


def test_a_tuned_model_has_no_known_price() -> None:
    assert find_facts("gpt-4o").price == Price(2.5, 10, 1.25)
    assert find_facts("ft:gpt-4o:acme").price is None
    assert find_facts("openai/ft:gpt-4o:acme").price is None


def test_the_table_fills_in_what_the_server_does_not_state() -> None:
    filled = fill_in(ModelInfo("gpt-oss-20b", owned_by="vllm", context_length=4096))
    assert filled == ModelInfo(
        "gpt-oss-20b",
        owned_by="vllm",
        family="gpt-oss",
        context_length=4096,
        modalities=("text",),
        supports_tools=True,
        reasoning=True,
        reasoning_levels=("low", "medium", "high"),
        encoding="o200k_base",
    )
    assert fill_in(ModelInfo("nobody-knows")) == ModelInfo("nobody-knows")


@pytest.mark.parametrize("owner", ["library", "organization_owner"])
def test_a_server_that_chooses_the_window_gets_none_from_the_table(owner: str) -> None:
    filled = fill_in(ModelInfo("qwen3-coder:30b", owned_by=owner))
    assert filled.context_length is None
    assert filled.supports_tools is True
