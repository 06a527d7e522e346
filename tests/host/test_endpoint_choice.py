"""The gate: which endpoint for which model, URL, configuration and environment."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from antiphon.client.settings import WireApi
from antiphon.host import endpoint_choice
from antiphon.host.endpoint_choice import (
    CHAT_ONLY_MODELS,
    RESPONSES_API_MODELS,
    GateConfig,
    choose_wire,
    is_listed,
)

OFFICIAL = "https://api.openai.com/v1"
CUSTOM = "http://127.0.0.1:4680/v1"
UNDECIDED = GateConfig()
ENABLED = GateConfig(responses_enabled=True)
REFUSED = GateConfig(responses_enabled=False)

MODELS = {
    "new": "gpt-5",
    "legacy": "gpt-3.5-turbo",
    "ours": "llama-3.3",
    "search": "gpt-5-search-api",
}
URLS = {"official": OFFICIAL, "custom": CUSTOM}
CONFIGS = {
    "undecided": UNDECIDED,
    "undecided, ours": GateConfig(models=("llama-3.3",)),
    "enabled": ENABLED,
    "enabled, ours": GateConfig(responses_enabled=True, models=("llama-3.3",)),
    "enabled, all": GateConfig(responses_enabled=True, models=("*",)),
    "refused": REFUSED,
    "refused, all": GateConfig(responses_enabled=False, models=("*",)),
}
ENVIRONMENTS: dict[str, Mapping[str, str]] = {
    "silent": {},
    "off": {"OPENAI_RESPONSES_DISABLE": "false"},
    "on": {"OPENAI_RESPONSES_DISABLE": "true"},
}
# Every combination that is not named here asks chat completions.
RESPONSES = {
    ("new", "official", "undecided"),
    ("new", "official", "undecided, ours"),
    ("new", "official", "enabled"),
    ("new", "official", "enabled, ours"),
    ("new", "official", "enabled, all"),
    ("new", "custom", "enabled"),
    ("new", "custom", "enabled, ours"),
    ("new", "custom", "enabled, all"),
    ("legacy", "official", "enabled, all"),
    ("legacy", "custom", "enabled, all"),
    ("search", "official", "enabled, all"),
    ("search", "custom", "enabled, all"),
    ("ours", "official", "undecided, ours"),
    ("ours", "official", "enabled, ours"),
    ("ours", "official", "enabled, all"),
    ("ours", "custom", "enabled, ours"),
    ("ours", "custom", "enabled, all"),
}
MATRIX = [
    (*row, environment, "responses" if row in RESPONSES and environment != "on" else "chat")
    for row in itertools.product(MODELS, URLS, CONFIGS)
    for environment in ENVIRONMENTS
]


@pytest.mark.requirement("22-A1", "22-A4", "22-A-AC3", "REQ-005.1", "REQ-005.2", "REQ-009.2")
@pytest.mark.parametrize(("model", "url", "config", "environment", "wire"), MATRIX)
def test_the_matrix(model: str, url: str, config: str, environment: str, wire: WireApi) -> None:
    chosen = choose_wire(MODELS[model], URLS[url], CONFIGS[config], ENVIRONMENTS[environment])
    assert chosen == wire


@pytest.mark.requirement("22-A1")
@pytest.mark.parametrize(
    "model",
    [
        *("gpt-5", "gpt-5-mini", "gpt-5-2025-08-07", "gpt-5.1-codex-max", "gpt-5.5-pro"),
        *("gpt-6-sol", "gpt-6.1-terra", "gpt-4.1", "gpt-4.1-nano", "gpt-4o", "gpt-4o-2024-11-20"),
        *("gpt-4o-mini", "gpt-4o-mini-2024-07-18", "o1", "o1-pro", "o1-2024-12-17", "o3"),
        *("o3-mini", "o3-deep-research", "o4-mini", "codex-mini-latest", "computer-use-preview"),
        *("openai/gpt-5", "gateway/openai/o3", "GPT-5"),
    ],
)
def test_new_models_are_asked_over_responses(model: str) -> None:
    assert choose_wire(model, OFFICIAL, UNDECIDED, {}) == "responses"


@pytest.mark.requirement("22-A1", "REQ-009.1")
@pytest.mark.parametrize(
    "model",
    [
        *(
            "gpt-3.5-turbo",
            "gpt-4",
            "gpt-4-0613",
            "gpt-4-turbo",
            "gpt-4-32k",
            "gpt-4o-audio-preview",
        ),
        *("gpt-4o-mini-search-preview", "o1-preview", "o1-mini", "claude-sonnet-4", "", "gpt-"),
        *("openai/gpt-4", "gpt-5/llama", "my-gpt-5"),
    ],
)
def test_legacy_and_unknown_models_stay_with_chat_completions(model: str) -> None:
    assert choose_wire(model, OFFICIAL, UNDECIDED, {}) == "chat"


@pytest.mark.requirement("22-A-AC2")
def test_a_new_model_is_one_line_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_wire("gpt-99", OFFICIAL, UNDECIDED, {}) == "chat"
    monkeypatch.setattr(endpoint_choice, "RESPONSES_API_MODELS", (*RESPONSES_API_MODELS, "gpt-99"))
    assert choose_wire("gpt-99", OFFICIAL, UNDECIDED, {}) == "responses"
    assert (
        choose_wire("gpt-99", OFFICIAL, UNDECIDED, {endpoint_choice.DISABLE_VARIABLE: "1"})
        == "chat"
    )


@pytest.mark.requirement("22-A1", "REQ-009.2")
@pytest.mark.parametrize("value", ["1", "true", "TRUE", "Yes", "on", " 1 "])
def test_the_switch_is_on(value: str) -> None:
    everything = GateConfig(responses_enabled=True, models=("*",))
    assert (
        choose_wire("gpt-5", OFFICIAL, everything, {endpoint_choice.DISABLE_VARIABLE: value})
        == "chat"
    )


@pytest.mark.requirement("22-A1")
@pytest.mark.parametrize("value", ["", "0", "false", "no", "off"])
def test_the_switch_is_off(value: str) -> None:
    assert (
        choose_wire("gpt-5", OFFICIAL, UNDECIDED, {endpoint_choice.DISABLE_VARIABLE: value})
        == "responses"
    )


@pytest.mark.requirement("REQ-005.1")
@pytest.mark.parametrize(
    ("url", "wire"),
    [
        (None, "responses"),
        ("", "responses"),
        ("https://api.openai.com/v1", "responses"),
        ("https://api.openai.com/v1/", "responses"),
        ("HTTPS://API.OpenAI.com:443/v1", "responses"),
        ("http://api.openai.com/v1", "chat"),
        ("https://api.openai.com", "chat"),
        ("https://api.openai.com:8443/v1", "chat"),
        ("https://api.openai.com/v1?proxy=1", "chat"),
        ("https://api.openai.com.example.org/v1", "chat"),
        ("https://example.org/api.openai.com/v1", "chat"),
        ("https://api.openai.com:port/v1", "chat"),
        ("https://[broken/v1", "chat"),
    ],
)
def test_which_base_urls_are_openais_own(url: str | None, wire: WireApi) -> None:
    assert choose_wire("gpt-5", url, UNDECIDED, {}) == wire


@pytest.mark.requirement("REQ-005.1")
def test_the_base_url_of_the_environment_counts_where_none_is_given() -> None:
    environ = {"OPENAI_BASE_URL": CUSTOM}
    assert choose_wire("gpt-5", None, UNDECIDED, environ) == "chat"
    assert choose_wire("gpt-5", None, ENABLED, environ) == "responses"
    assert choose_wire("gpt-5", OFFICIAL, UNDECIDED, environ) == "responses"


@pytest.mark.requirement("REQ-005.1")
@pytest.mark.parametrize(
    ("entry", "wire"),
    [
        ("acme/sonnet-4", "responses"),
        ("sonnet-4", "responses"),
        ("acme/*", "responses"),
        ("Sonnet*", "responses"),
        ("acme/sonnet", "chat"),
        ("other/sonnet-4", "chat"),
    ],
)
def test_config_names_models_with_their_provider_or_without(entry: str, wire: WireApi) -> None:
    config = GateConfig(responses_enabled=True, models=(entry,))
    assert choose_wire("acme/sonnet-4", CUSTOM, config, {}) == wire


@pytest.mark.parametrize(
    ("entries", "listed"),
    [((), False), (("o3",), True), (("acme/o3",), True), (("O*",), True), (("o3-mini",), False)],
)
def test_a_model_is_listed_by_its_whole_name_or_without_its_provider(
    entries: tuple[str, ...], listed: bool
) -> None:
    assert is_listed(entries, "acme/o3") is listed


@pytest.mark.requirement("22-A1", "REQ-009.1")
@pytest.mark.parametrize(
    "model",
    [
        *("gpt-5-search-api", "gpt-5-search-api-2025-10-14", "openai/GPT-5-search-api"),
        *("gpt-4.1-search-preview", "gpt-4o-2024-11-20-audio", "gpt-5-audio-mini", "gpt-6-tts"),
        *("gpt-5-realtime", "gpt-5-transcribe", "gpt-5-image", "gpt-5-image-mini"),
    ],
)
def test_models_that_search_speak_listen_or_draw_stay_with_chat(model: str) -> None:
    assert choose_wire(model, OFFICIAL, UNDECIDED, {}) == "chat"
    assert choose_wire(model, OFFICIAL, GateConfig(models=(model,)), {}) == "responses"


def test_the_reference_lists_the_models_of_chat_alone() -> None:
    page = Path(__file__).parents[2] / "docs/reference/host.md"
    assert f"`{' '.join(CHAT_ONLY_MODELS)}`" in page.read_text()
