"""Facts as a chat application sees them, and what the configuration changes."""

from __future__ import annotations

import pytest

from antiphon.client.errors import BadCall
from antiphon.host.model_table import ModelFacts, ModelTable
from antiphon.models.facts import ModelInfo
from antiphon.models.image_cost import PatchCost, TileCost
from antiphon.models.prices import Price

TABLE = ModelTable()


def test_facts_have_the_names_that_chat_applications_use() -> None:
    assert TABLE.facts("gpt-4o-2024-11-20") == ModelFacts(
        family="gpt-4o",
        context_window=128_000,
        max_output_tokens=16_384,
        image_input=True,
        tool_calling=True,
        reasoning=False,
        reasoning_levels=(),
        encoding="o200k_base",
        image_cost=TileCost(85, 170),
        price=Price(2.5, 10, 1.25),
    )
    assert TABLE.facts("gpt-4.7") == ModelFacts()


def test_what_a_server_states_wins_over_the_table() -> None:
    listed = ModelInfo(
        "gpt-4o", display_name="Omni", family="omni", context_length=8, modalities=("text",)
    )
    facts = TABLE.describe(listed)
    assert (facts.name, facts.family, facts.context_window) == ("Omni", "omni", 8)
    assert (facts.image_input, facts.tool_calling) == (False, True)


def test_config_wins_field_by_field() -> None:
    table = ModelTable({"gpt-4o": {"context_window": 1000, "tool_calling": False}})

    facts = table.facts("gpt-4o-2024-08-06")
    assert facts.context_window == 1000
    assert facts.tool_calling is False
    assert facts.max_output_tokens == 16_384
    assert facts.family == "gpt-4o"
    listed = ModelInfo("gpt-4o", context_length=5, supports_tools=True, max_output_tokens=4)
    described = table.describe(listed)
    assert (described.context_window, described.tool_calling) == (1000, False)
    assert described.max_output_tokens == 4
    assert table.overrides("gpt-4o") == ModelFacts(context_window=1000, tool_calling=False)


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("house", 1),
        ("acme/house-7b", 1),
        ("acme:house", 1),
        ("house.large:latest", 2),
        ("two/house", 3),
        ("house-2", None),
        ("houses", None),
        ("дом", 4),
        ("лес", None),
    ],
)
def test_the_longest_name_that_begins_a_model_is_used(model: str, window: int | None) -> None:
    windows = {"house": 1, "house-large": 2, "two/house": 3, "дом": 4}
    table = ModelTable({name: {"context_window": it} for name, it in windows.items()})
    assert table.facts(model).context_window == window


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


def test_images_have_a_rule_where_it_is_published() -> None:
    assert TABLE.facts("gpt-5").image_cost == TileCost(70, 140)
    assert TABLE.facts("o4-mini").image_cost == PatchCost(1.72)
