"""Entries for Codex: always readable, careful where nothing is known."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.models.facts import ASSUMED_WINDOW, ModelInfo
from antiphon.server.api.codex import codex_entries


class Preset(msgspec.Struct):
    effort: str
    description: str


class Truncation(msgspec.Struct):
    mode: Literal["bytes", "tokens"]
    limit: int


class Entry(msgspec.Struct):
    """What Codex 0.120 to 0.166 require of an entry, and the values that they know."""

    slug: str
    display_name: str
    supported_reasoning_levels: list[Preset]
    shell_type: Literal["default", "local", "unified_exec", "disabled", "shell_command"]
    visibility: Literal["list", "hide", "none"]
    supported_in_api: bool
    priority: int
    base_instructions: str
    supports_reasoning_summaries: bool
    support_verbosity: bool
    truncation_policy: Truncation
    supports_parallel_tool_calls: bool
    experimental_supported_tools: list[str]
    input_modalities: list[Literal["text", "image"]]
    context_window: int
    assumed: list[str]
    apply_patch_tool_type: Literal["freeform"] | None
    default_reasoning_level: str | None = None
    multi_agent_version: Literal["disabled", "v1", "v2"] | None = None


def entry_of(**facts: Any) -> Entry:
    (entry,) = codex_entries([ModelInfo("m", **facts)])
    return msgspec.json.decode(msgspec.json.encode(entry), type=Entry)


WORDS = st.lists(st.text(min_size=1, max_size=8), max_size=5).map(tuple)


@given(
    st.builds(
        ModelInfo,
        id=st.text(min_size=1),
        context_length=st.none() | st.integers(1, 1_000_000_000),
        display_name=st.none() | st.text(),
        reasoning_levels=st.none() | WORDS,
        modalities=st.none() | WORDS,
        supports_tools=st.none() | st.booleans(),
    )
)
def test_whatever_is_known_codex_can_read_the_entry(model: ModelInfo) -> None:
    for entry in codex_entries([model]):
        read = msgspec.json.decode(msgspec.json.encode(entry), type=Entry)
        assert read.slug == model.id
        assert read.base_instructions
        assert read.input_modalities[0] == "text"
        assert 1_000 <= read.truncation_policy.limit <= 10_000
        assert read.default_reasoning_level in (model.reasoning_levels or (None,))


def test_what_is_known_is_said() -> None:
    entry = entry_of(
        context_length=200_000,
        display_name="My model",
        reasoning_levels=("low", "medium", "high"),
        modalities=("text", "image", "video"),
        supports_tools=True,
    )
    assert entry.display_name == "My model"
    assert entry.context_window == 200_000
    assert [preset.effort for preset in entry.supported_reasoning_levels] == [
        "low",
        "medium",
        "high",
    ]
    assert entry.default_reasoning_level == "medium"
    assert entry.input_modalities == ["text", "image"]
    assert entry.assumed == []
    assert (entry.shell_type, entry.apply_patch_tool_type) == ("unified_exec", "freeform")
    assert entry.multi_agent_version is None


def test_what_is_not_known_is_assumed_and_named() -> None:
    entry = entry_of()
    assert entry.display_name == "m"
    assert entry.context_window == ASSUMED_WINDOW
    assert entry.supported_reasoning_levels == []
    assert entry.default_reasoning_level is None
    assert entry.input_modalities == ["text"]
    assert entry.assumed == ["context_window", "supported_reasoning_levels", "input_modalities"]
    assert entry.shell_type == "unified_exec"


@pytest.mark.parametrize(
    ("levels", "default"),
    [(("high",), "high"), (("low", "high"), "high"), (("none", "default", "more"), "default")],
)
def test_without_a_medium_the_middle_is_the_default(levels: tuple[str, ...], default: str) -> None:
    assert entry_of(reasoning_levels=levels).default_reasoning_level == default


@pytest.mark.parametrize(
    ("window", "kept", "agents"),
    [(4_096, 1_000, "disabled"), (32_768, 4_096, "disabled"), (131_072, 10_000, None)],
)
def test_a_small_window_is_not_filled_with_tools_and_output(
    window: int, kept: int, agents: str | None
) -> None:
    entry = entry_of(context_length=window)
    assert entry.truncation_policy == Truncation("tokens", kept)
    assert entry.multi_agent_version == agents


def test_a_model_that_calls_no_tools_gets_no_shell() -> None:
    entry = entry_of(supports_tools=False)
    assert (entry.shell_type, entry.apply_patch_tool_type) == ("disabled", None)


def test_models_that_cannot_chat_are_left_out() -> None:
    names = ["text-embedding-3-small", "whisper-1", "m", "nomic-embed-text:latest", "tts-1",
             "dall-e-3", "gpt-image-1", "omni-moderation-latest", "bge-reranker-v2-m3"]  # fmt: skip
    assert [entry["slug"] for entry in codex_entries([ModelInfo(name) for name in names])] == ["m"]
    assert codex_entries([ModelInfo("imagenary"), ModelInfo("settts")])


def test_the_default_model_comes_first() -> None:
    models = [ModelInfo(name) for name in ("a", "b", "c")]
    priorities = {entry["slug"]: entry["priority"] for entry in codex_entries(models, "b")}
    assert priorities == {"b": 0, "a": 1, "c": 2}


def test_a_long_list_is_cut() -> None:
    assert len(codex_entries([ModelInfo(str(index)) for index in range(1_500)])) == 1_000
