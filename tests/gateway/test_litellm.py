"""A configuration of the LiteLLM proxy as ours: what is mapped, and what is listed instead."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from antiphon.cli import main
from antiphon.gateway.config import Settings, load
from antiphon.gateway.errors import BadSettings
from antiphon.gateway.litellm import import_litellm
from antiphon.gateway.providers import read_sources

FILE = """
model_list:
  - model_name: coder
    litellm_params:
      model: hosted_vllm/qwen3-coder
      api_base: http://gpu1:8000/v1
      weight: 3
      rpm: 100
  - model_name: coder
    litellm_params:
      model: hosted_vllm/qwen3-coder
      api_base: http://gpu2:8000/v1
  - model_name: large
    litellm_params:
      model: openai/gpt-x
      api_key: os.environ/OPENAI_API_KEY
    model_info:
      max_tokens: 100
  - model_name: "tiny:1b"
    litellm_params:
      model: ollama_chat/tiny:1b
      api_base: http://127.0.0.1:11434
  - model_name: cloud
    litellm_params:
      model: bedrock/some-model
  - model_name: written
    litellm_params:
      model: openai/other
      api_base: http://host/v1
      api_key: sk-in-the-file
router_settings:
  routing_strategy: simple-shuffle
  num_retries: 2
  model_group_alias:
    gpt-4: coder
litellm_settings:
  fallbacks:
    - coder: [large, missing]
  context_window_fallbacks:
    - coder: [large]
  drop_params: false
  request_timeout: 600
general_settings:
  master_key: os.environ/LITELLM_MASTER_KEY
  database_url: os.environ/DATABASE_URL
environment_variables: {}
"""


def settings_of(text: str, tmp_path: Path) -> Settings:
    path = tmp_path / "antiphon.toml"
    path.write_text(text)
    settings = load({"config": str(path)}, {}, tmp_path).settings
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DATABASE_URL")
    read_sources(settings, dict.fromkeys(keys, "x"))
    return settings


def imported(tmp_path: Path) -> Any:
    path = tmp_path / "litellm.yaml"
    path.write_text(FILE)
    return CliRunner().invoke(main, ["config", "import", str(path)])


def test_the_command_prints_settings_that_can_be_used(tmp_path: Path) -> None:
    result = imported(tmp_path)
    assert result.exit_code == 0, result.output
    settings = settings_of(result.stdout, tmp_path)
    coder = settings.routes["coder"]
    assert [(one.model, one.weight) for one in coder.deployments] == [
        ("qwen3-coder", 3),
        ("qwen3-coder", 1),
    ]
    urls = [settings.providers[one.provider].base_url for one in coder.deployments]
    assert urls == ["http://gpu1:8000/v1", "http://gpu2:8000/v1"]
    assert {settings.providers[one.provider].profile for one in coder.deployments} == {"vllm"}
    assert (coder.fallbacks, coder.on_overflow) == (("large",), "large")
    assert coder.retry.attempts == 3
    assert settings.routes["gpt-4"].to == "coder"
    (large,) = settings.routes["large"].deployments
    assert settings.providers[large.provider].key_env == "OPENAI_API_KEY"
    (tiny,) = settings.routes["tiny:1b"].deployments
    assert settings.providers[tiny.provider].base_url == "http://127.0.0.1:11434/v1"
    assert (settings.strict, settings.require_keys, settings.store) == (
        True,
        True,
        "env:DATABASE_URL",
    )
    assert settings.upstream_limits.wall == 600


@pytest.mark.parametrize(
    "what",
    [
        "model_list[0] (coder): litellm_params.rpm",
        "model_list[2] (large): model_info",
        "model_list[4] (cloud): bedrock/some-model: there is no way to reach it here",
        "model_list[5] (written): litellm_params.api_key holds a key",
        "fallbacks of coder: not all of ['large', 'missing']",
        "router_settings.routing_strategy",
        "environment_variables",
    ],
)
def test_what_is_not_mapped_is_listed_by_name(tmp_path: Path, what: str) -> None:
    assert f"not mapped: {what}" in imported(tmp_path).stderr


def test_a_key_in_the_file_is_never_copied(tmp_path: Path) -> None:
    result = imported(tmp_path)
    assert "sk-in-the-file" not in result.stdout + result.stderr


@pytest.mark.parametrize("table", [None, [], {}, {"model_list": 1}, "x"])
def test_another_file_is_refused(table: object) -> None:
    with pytest.raises(BadSettings, match="no model_list"):
        import_litellm(table)


@pytest.mark.parametrize("entry", [None, 1, {}, {"model_name": "x"}, {"litellm_params": {}}])
def test_an_entry_that_cannot_be_read_is_listed(entry: object) -> None:
    found = import_litellm({"model_list": [entry]})
    assert found.unmapped == ["model_list[0]: it has no model_name or no litellm_params.model"]
    assert tomllib.loads(found.toml) == {}


def entry(name: str, model: str, **params: Any) -> dict[str, Any]:
    return {"model_name": name, "litellm_params": {"model": model, **params}}


def test_a_key_goes_only_to_the_vendor_that_it_belongs_to(tmp_path: Path) -> None:
    key = "os.environ/ANTHROPIC_API_KEY"
    found = import_litellm({"model_list": [entry("c", "claude-3-5-sonnet", api_key=key)]})
    settings = settings_of(found.toml, tmp_path)
    (one,) = settings.routes["c"].deployments
    provider = settings.providers[one.provider]
    assert (provider.wire_api, provider.base_url) == ("messages", "https://api.anthropic.com")
    assert (one.model, provider.key_env) == ("claude-3-5-sonnet", "ANTHROPIC_API_KEY")


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (entry("x", "openai/m", api_base="os.environ/BASE"), "api_base os.environ/BASE is no URL"),
        (entry("x", "openai/m", api_base="host:8000"), "api_base host:8000 is no URL"),
        (entry("x", "gemini-1.5-pro"), "gemini-1.5-pro: add a provider by hand"),
        (entry("x", "openai/m", weight=0), "litellm_params.weight"),
        (entry("x", "openai/m", weight=-2), "litellm_params.weight"),
        (entry("x", "openai/m", weight=True), "litellm_params.weight"),
    ],
)
def test_a_value_that_cannot_be_used_is_listed_and_left_out(
    tmp_path: Path, one: dict[str, Any], what: str
) -> None:
    found = import_litellm({"model_list": [one, entry("good", "openai/m")]})
    assert what in found.unmapped[0]
    assert "good" in settings_of(found.toml, tmp_path).routes


def test_names_and_rules_that_contradict_each_other_are_listed(tmp_path: Path) -> None:
    table = {
        "model_list": [entry("a", "openai/a"), entry("b\U0001f600\x7f", "openai/b")],
        "router_settings": {
            "fallbacks": [{"a": ["a"]}],
            "model_group_alias": {
                "a": "b\U0001f600\x7f",
                "loop": "loop",
                "ghost": "none",
                "c": "a",
            },
        },
    }
    found = import_litellm(table)
    settings = settings_of(found.toml, tmp_path)
    assert set(settings.routes) == {"a", "b\U0001f600\x7f", "c"}
    assert settings.routes["a"].deployments
    assert found.unmapped == [
        "fallbacks of a: ['a']",
        *(f"model_group_alias.{name}" for name in ("a", "loop", "ghost")),
    ]


def test_without_yaml_the_command_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "yaml", None)
    result = imported(tmp_path)
    assert result.exit_code != 0
    assert "pip install '.[litellm]'" in result.output


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("a: [")
    result = CliRunner().invoke(main, ["config", "import", str(path)])
    assert result.exit_code != 0
    assert "is not YAML" in result.output


def test_route_shows_who_would_answer(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text(
        '[providers.a]\nwire_api = "scripted"\nmax_inflight = 4\n'
        '[providers.b]\nwire_api = "scripted"\n'
        '[routes.coder]\ndeployments = [{ provider = "a", model = "m", weight = 3 }, '
        '{ provider = "b", model = "m" }]\nfallbacks = ["b/other"]\non_overflow = "b/long"\n'
        '[routes."claude-*"]\nto = "coder"\n'
    )
    runner = CliRunner()
    result = runner.invoke(main, ["route", "claude-opus", "--config", str(path)])
    assert result.output.splitlines() == [
        "claude-opus -> claude-* -> coder",
        "a/m  scripted, weight 3, at most 4 requests at once",
        "b/m  scripted, weight 1",
        "then b/other  scripted",
        "for long contexts b/long  scripted",
        "(affinity session, failover start, at most 3 attempts, waits of 20 s in all)",
    ]
    listed = runner.invoke(main, ["route", "echo", "--config", str(path)])
    assert listed.output.splitlines()[1].startswith("a/echo  scripted")
    missing = runner.invoke(main, ["route", "nope", "--config", str(path)])
    assert missing.exit_code != 0
    assert "does not exist" in missing.output


def test_what_can_be_reached_by_hand_comes_with_a_hint() -> None:
    entries = [
        {"model_name": "a", "litellm_params": {"model": "azure/gpt", "api_base": "https://x"}},
        {"model_name": "b", "litellm_params": {"model": "vertex_ai/gemini-2.5-pro"}},
    ]
    azure, vertex = import_litellm({"model_list": entries}).unmapped
    assert 'wire_api = "responses"' in azure
    assert 'wire_api = "gemini"' in vertex
