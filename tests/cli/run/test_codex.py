"""What Codex is started with: the gateway as a provider of its own, and no more than needed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.cli.run.client import Launch, Order
from antiphon.cli.run.codex import CLIENT, small_model


def _order(tmp_path: Path, **changes: Any) -> Order:
    order = Order(
        base_url="http://127.0.0.1:1/v1",
        model='odd "name"',
        context=4096,
        models=[],
        is_small=False,
        arguments=["exec", "-m", "x"],
        directory=tmp_path,
    )
    return msgspec.structs.replace(order, **changes)


def _settings(launch: Launch) -> dict[str, Any]:
    """Return the `-c` settings as Codex reads them: a key with dots, and TOML."""
    words = list(launch.arguments)
    found = [words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "-c"]
    return {key: tomllib.loads(f"value = {value}")["value"] for key, value in found}


def test_the_gateway_is_a_provider_of_its_own_without_a_key(tmp_path: Path) -> None:
    launch = CLIENT.prepare("/bin/codex", _order(tmp_path))
    assert _settings(launch) == {
        "model_provider": "antiphon",
        "model_providers.antiphon.name": "antiphon",
        "model_providers.antiphon.base_url": "http://127.0.0.1:1/v1",
        "model_providers.antiphon.wire_api": "responses",
        "model": 'odd "name"',
    }


def test_what_the_user_says_comes_last_and_wins(tmp_path: Path) -> None:
    launch = CLIENT.prepare("/bin/codex", _order(tmp_path))
    assert launch.arguments[0] == "/bin/codex"
    assert launch.arguments[-3:] == ["exec", "-m", "x"]


def test_models_that_the_gateway_describes_are_handed_on_in_a_file(tmp_path: Path) -> None:
    models = [{"slug": "a"}, {"slug": "b"}]
    launch = CLIENT.prepare("codex", _order(tmp_path, models=models))
    path = Path(_settings(launch)["model_catalog_json"])
    assert path.parent == tmp_path
    assert json.loads(path.read_text()) == {"models": models}


def test_a_small_model_has_a_catalog_of_its_own_and_fewer_tools(tmp_path: Path) -> None:
    launch = CLIENT.prepare("codex", _order(tmp_path, is_small=True, models=[{"slug": "a"}]))
    settings = _settings(launch)
    (model,) = json.loads(Path(settings["model_catalog_json"]).read_text())["models"]
    assert (model["slug"], model["context_window"]) == ('odd "name"', 4096)
    assert len(model["base_instructions"]) < 500
    assert settings["web_search"] == "disabled"
    assert settings["features.multi_agent"] is False


def test_the_entry_of_a_model_has_all_that_codex_requires() -> None:
    required = (
        "slug display_name supported_reasoning_levels shell_type visibility supported_in_api "
        "priority support_verbosity truncation_policy experimental_supported_tools "
        "base_instructions"
    )
    assert set(required.split()) <= small_model("m", None).keys()


@pytest.mark.parametrize(("before", "after"), [(None, "127.0.0.1"), ("a.b", "a.b,127.0.0.1")])
def test_the_gateway_is_reached_without_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        if before is not None:
            monkeypatch.setenv(name, before)
    environ = CLIENT.prepare("codex", _order(tmp_path)).environ
    assert environ["NO_PROXY"] == environ["no_proxy"] == after


def test_the_environment_is_otherwise_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", "/mine")
    environ = CLIENT.prepare("codex", _order(tmp_path)).environ
    assert environ["CODEX_HOME"] == "/mine"
    assert "CODEX_API_KEY" not in environ
