"""Which source wins for each fact about a model."""

from __future__ import annotations

from antiphon.models.facts import ModelInfo
from antiphon.routing.describe import ModelSettings, describe

LISTED = ModelInfo("gpt-oss-20b", owned_by="vllm", context_length=8192)


def test_settings_win_over_the_server_and_the_server_over_the_table() -> None:
    config = {"gpt-oss-20b": ModelSettings(context_length=4096, supports_tools=False)}
    found = describe(LISTED, "up", config)
    assert (found.context_length, found.supports_tools) == (4096, False)
    assert found.reasoning_levels == ("low", "medium", "high")
    assert describe(LISTED, "up", {}).context_length == 8192


def test_settings_can_state_that_there_are_no_levels() -> None:
    config = {"gpt-oss-20b": ModelSettings(reasoning_levels=())}
    assert describe(LISTED, "up", config).reasoning_levels == ()


def test_settings_for_one_provider_do_not_reach_another() -> None:
    config = {
        "gpt-oss-20b": ModelSettings(context_length=1),
        "up/gpt-oss-20b": ModelSettings(context_length=2),
    }
    assert describe(LISTED, "up", config).context_length == 2
    assert describe(LISTED, "other", config).context_length == 1


def test_facts_that_no_source_states_stay_unknown() -> None:
    assert describe(ModelInfo("x"), "up", {"y": ModelSettings(context_length=1)}) == ModelInfo("x")
