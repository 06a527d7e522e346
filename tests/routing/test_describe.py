"""Who is believed about a model."""

from __future__ import annotations

from antiphon.backends.base import ModelInfo
from antiphon.routing.describe import ModelSettings, describe

LISTED = ModelInfo("gpt-oss-20b", owned_by="vllm", context_length=8192)


def test_config_comes_before_the_server_and_the_server_before_the_table() -> None:
    config = {"gpt-oss-20b": ModelSettings(context_length=4096, supports_tools=False)}
    found = describe(LISTED, "up", config)
    assert (found.context_length, found.supports_tools) == (4096, False)
    assert found.reasoning_levels == ("low", "medium", "high")
    assert describe(LISTED, "up", {}).context_length == 8192


def test_config_can_say_that_there_are_no_levels() -> None:
    config = {"gpt-oss-20b": ModelSettings(reasoning_levels=())}
    assert describe(LISTED, "up", config).reasoning_levels == ()


def test_config_for_one_provider_is_for_that_one_alone() -> None:
    config = {
        "gpt-oss-20b": ModelSettings(context_length=1),
        "up/gpt-oss-20b": ModelSettings(context_length=2),
    }
    assert describe(LISTED, "up", config).context_length == 2
    assert describe(LISTED, "other", config).context_length == 1


def test_what_nobody_knows_stays_unknown() -> None:
    assert describe(ModelInfo("x"), "up", {"y": ModelSettings(context_length=1)}) == ModelInfo("x")
