"""The bundled table: which entry a name finds, and what config changes."""

from __future__ import annotations

import re

import pytest

from antiphon.client.errors import BadCall
from antiphon.host.image_cost import PatchCost, TileCost
from antiphon.host.model_table import (
    FIGURES_FROM,
    MODELS,
    ModelFacts,
    ModelTable,
    Price,
    is_chat_model,
    merge,
)
from antiphon.host.vocabulary import VOCABULARIES
from antiphon.protocol.response import InputDetails, Usage

TABLE = ModelTable()


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-4o", "gpt-4o"),
        ("gpt-4o-2024-11-20", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("GPT-4o-Mini", "gpt-4o-mini"),
        ("gpt-4-0613", "gpt-4"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5.1", "gpt-5.1"),
        ("openai/gpt-5-mini", "gpt-5-mini"),
        ("openai:gpt-5-mini", "gpt-5-mini"),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc", "gpt-4o-mini"),
        ("gpt-oss:20b", "gpt-oss"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4.5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4.5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("accounts/x/models/gpt-oss-120b", "gpt-oss"),
    ],
)
def test_a_name_finds_the_longest_entry_it_begins_with(model: str, family: str) -> None:
    assert TABLE.known(model).family == family


@pytest.mark.parametrize(
    "model", ["gpt-4.7", "gpt-4p", "gpt-55", "claude-opus-4-9", "o9", "my-gpt-4o", "llama3:8b", ""]
)
def test_another_version_is_another_model(model: str) -> None:
    assert TABLE.known(model) == ModelFacts()
    assert TABLE.facts(model) == ModelFacts()


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4.1-nano", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("gpt-5.5", "o200k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "cl100k_base"),
        ("claude-sonnet-4-5", None),
        ("gemini-2.5-pro", None),
    ],
)
def test_the_encoding_goes_with_the_model(model: str, encoding: str | None) -> None:
    assert TABLE.facts(model).encoding == encoding


@pytest.mark.parametrize(("name", "facts"), MODELS.items())
def test_every_entry_is_plausible(name: str, facts: ModelFacts) -> None:
    assert TABLE.known(name).family == name
    assert is_chat_model(name)
    window, output = facts.context_window or 10**9, facts.max_output_tokens or 1
    assert 1 <= output <= window
    assert facts.encoding is None or facts.encoding in VOCABULARIES
    assert facts.image_cost is None or facts.image_input
    assert not facts.reasoning_levels or facts.reasoning
    if facts.price is not None:
        assert 0 < (facts.price.cached or facts.price.input) <= facts.price.input
        assert facts.price.input < facts.price.output


def test_the_figures_have_a_date() -> None:
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", FIGURES_FROM)


def test_config_wins_field_by_field() -> None:
    table = ModelTable({"gpt-4o": {"context_window": 1000, "tool_calling": False}})

    facts = table.facts("gpt-4o-2024-08-06")
    assert facts.context_window == 1000
    assert facts.tool_calling is False
    assert facts.max_output_tokens == 16_384
    assert facts.family == "gpt-4o"
    assert table.known("gpt-4o").context_window == 128_000
    assert table.overrides("gpt-4o") == ModelFacts(context_window=1000, tool_calling=False)


def test_config_can_describe_a_model_of_its_own() -> None:
    fields = {
        "name": "House model",
        "encoding": "cl100k_base",
        "price": {"input": 1, "output": 2},
        "image_cost": {"type": "patches", "multiplier": 2.0},
        "reasoning_levels": ["low", "high"],
    }
    facts = ModelTable({"house": fields}).facts("house-7b")

    assert facts.name == "House model"
    assert facts.price == Price(1, 2)
    assert facts.image_cost == PatchCost(2.0)
    assert facts.reasoning_levels == ("low", "high")


@pytest.mark.parametrize("fields", [{"contextwindow": 1}, {"context_window": "big"}])
def test_a_field_that_does_not_exist_or_fit_is_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(BadCall, match="override of model 'house'") as caught:
        ModelTable({"house": fields})
    assert caught.value.param == "house"


def test_a_table_of_ones_own_replaces_ours() -> None:
    table = ModelTable(models={"toy": ModelFacts(context_window=7)})

    assert table.facts("toy-1b").context_window == 7
    assert table.facts("gpt-4o") == ModelFacts()


def test_a_tuned_model_has_no_known_price() -> None:
    assert TABLE.facts("gpt-4o").price == Price(2.5, 10, 1.25)
    assert TABLE.facts("ft:gpt-4o:acme").price is None


def test_the_first_that_knows_wins() -> None:
    merged = merge(ModelFacts(tool_calling=False), ModelFacts(tool_calling=True, image_input=True))

    assert merged == ModelFacts(tool_calling=False, image_input=True)


def test_cached_input_is_cheaper_where_a_price_for_it_is_known() -> None:
    usage = Usage(
        input_tokens=1_000_000,
        input_tokens_details=InputDetails(cached_tokens=400_000),
        output_tokens=100_000,
    )

    assert Price(2.0, 10.0, 0.5).cost(usage) == pytest.approx(1.2 + 0.2 + 1.0)
    assert Price(2.0, 10.0).cost(usage) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("model", "is_chat"),
    [
        ("gpt-5", True),
        ("llama-3.1-8b-instruct", True),
        ("scripted", True),
        ("embedded", True),
        ("text-embedding-3-small", False),
        ("nomic-embed-text", False),
        ("openai/whisper-1", False),
        ("gpt-4o-mini-tts", False),
        ("gpt-4o-realtime-preview", False),
        ("dall-e-3", False),
        ("omni-moderation-latest", False),
        ("gpt-3.5-turbo-instruct", False),
        ("gpt-image-1", False),
    ],
)
def test_models_that_cannot_chat_are_known_by_name(model: str, is_chat: bool) -> None:
    assert is_chat_model(model) is is_chat


def test_pictures_have_a_rule_where_it_is_published() -> None:
    assert TABLE.facts("gpt-5").image_cost == TileCost(70, 140)
    assert TABLE.facts("o4-mini").image_cost == PatchCost(1.72)


def test_no_more_is_kept_than_was_sent() -> None:
    usage = Usage(input_tokens=10, input_tokens_details=InputDetails(cached_tokens=1000))
    assert Price(3, 15, 0.3).cost(usage) == pytest.approx(10 * 0.3 / 1_000_000)
