"""What each client is told, as that client reads it."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from typing import Any

import pytest

from antiphon.cli.claude_code import gateway_variables
from antiphon.cli.connect.places import Machine
from antiphon.cli.connect.recipes import RECIPES, quoted
from antiphon.cli.connect.target import Target, unknown_model
from antiphon.host.models import ModelAbilities, ModelDescription
from antiphon.models.facts import ASSUMED_WINDOW
from tests.cli.connect.settings_texts import read_entries

_URL = "http://127.0.0.1:4680/v1"
_KNOWN = ModelDescription(
    id="qwen",
    name="Qwen",
    family="qwen",
    capabilities=ModelAbilities(image_input=True, tool_calling=False),
    context_window=40_000,
    max_output_tokens=4_000,
)
_TARGET = Target(_URL, (unknown_model("m:1"), _KNOWN))
_KEYED = Target(_URL, (unknown_model("m:1"),), "SOME_KEY")


def _pasted(client: str, target: Target = _TARGET) -> str:
    return RECIPES[client].piece(target).paste()


@pytest.mark.parametrize(
    ("target", "key"),
    [(_TARGET, {"experimental_bearer_token": "unused"}), (_KEYED, {"env_key": "SOME_KEY"})],
)
def test_codex(target: Target, key: dict[str, str]) -> None:
    assert tomllib.loads(_pasted("codex", target)) == {
        "model": "m:1",
        "model_provider": "antiphon",
        "model_providers": {
            "antiphon": {
                "name": "antiphon",
                "base_url": _URL,
                "wire_api": "responses",
                "model_catalog_url": f"{_URL}/models",
                **key,
            }
        },
    }


def test_codex_without_a_key_takes_the_place_of_codex_with_one() -> None:
    piece, keyed = RECIPES["codex"].piece(_TARGET), RECIPES["codex"].piece(_KEYED)
    assert piece.merge(keyed.paste()) == piece.paste()


@pytest.mark.parametrize(
    ("target", "command"), [(_TARGET, "echo unused"), (_KEYED, "printenv SOME_KEY")]
)
@pytest.mark.skipif(sys.platform == "win32", reason="the command is that of another shell")
def test_claude_code(target: Target, command: str) -> None:
    written = json.loads(_pasted("claude-code", target))
    variables = gateway_variables(_URL, "m:1", ASSUMED_WINDOW)
    assert written == {
        "apiKeyHelper": command,
        "env": {"ANTIPHON_CONNECT": "claude-code"} | variables,
    }
    assert variables["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:4680"


def test_claude_code_is_told_the_window_that_is_known() -> None:
    written = json.loads(_pasted("claude-code", Target(_URL, (_KNOWN,))))
    assert written["env"]["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "40000"
    assert not any(
        "assumed" in line for line in RECIPES["claude-code"].then(Target(_URL, (_KNOWN,)))
    )


def test_settings_of_claude_code_without_our_mark_are_left_alone() -> None:
    text = '{"env": {"ANTHROPIC_BASE_URL": "https://mine.example"}, "apiKeyHelper": "mine"}'
    assert RECIPES["claude-code"].piece(_TARGET).take_out(text) == text


@pytest.mark.parametrize(("target", "key"), [(_TARGET, {"apiKey": "unused"}), (_KEYED, {})])
def test_cline(target: Target, key: dict[str, str]) -> None:
    written = json.loads(_pasted("cline", target))
    assert (written["version"], written["lastUsedProvider"]) == (1, "openai-compatible")
    assert written["providers"]["openai-compatible"]["settings"] == {
        "provider": "openai-compatible",
        "baseUrl": _URL,
        "model": "m:1",
        "headers": {"x-antiphon-connect": "cline"},
        **key,
    }


def test_a_provider_of_cline_without_our_header_is_left_alone() -> None:
    text = '{"version": 1, "providers": {"openai-compatible": {"settings": {"model": "mine"}}}}'
    assert RECIPES["cline"].piece(_TARGET).take_out(text) == text


@pytest.mark.parametrize(
    ("target", "key"), [(_TARGET, "unused"), (_KEYED, "${{ secrets.SOME_KEY }}")]
)
def test_continue(target: Target, key: str) -> None:
    lines = _pasted("continue", target).splitlines()[1:-1]
    assert lines[:4] == ["name: Models of antiphon", "version: 1.0.0", "schema: v1", "models:"]
    assert lines[4:13] == [
        '  - name: "antiphon/m:1"',
        "    provider: openai",
        '    model: "m:1"',
        f'    apiBase: "{_URL}"',
        f"    apiKey: {key}",
        "    capabilities: [tool_use]",
        "    defaultCompletionOptions:",
        f"      contextLength: {ASSUMED_WINDOW}",
        "      maxTokens: 8192",
    ]


def test_continue_knows_what_a_model_can_do() -> None:
    lines = _pasted("continue", Target(_URL, (_KNOWN,)))
    assert "capabilities: [image_input]" in lines
    assert "contextLength: 40000" in lines


@pytest.mark.parametrize(
    ("target", "key"),
    [
        (_TARGET, "openai-api-key: unused"),
        (_KEYED, "# OPENAI_API_KEY must hold a key of the gateway"),
    ],
)
def test_aider(target: Target, key: str) -> None:
    assert _pasted("aider", target).splitlines()[1:-1] == [
        f'openai-api-base: "{_URL}"',
        'model: "openai/m:1"',
        key,
    ]


def test_vscode() -> None:
    (group,) = json.loads(_pasted("vscode"))
    assert (group["vendor"], group["apiType"]) == ("customendpoint", "responses")
    assert "apiKey" not in group
    assert group["models"] == [
        {
            "id": "m:1",
            "name": "m:1",
            "url": f"{_URL}/responses",
            "toolCalling": True,
            "vision": False,
            "thinking": True,
            "maxInputTokens": 24_576,
            "maxOutputTokens": 8_192,
        },
        {
            "id": "qwen",
            "name": "Qwen",
            "url": f"{_URL}/responses",
            "toolCalling": False,
            "vision": True,
            "thinking": True,
            "maxInputTokens": 36_000,
            "maxOutputTokens": 4_000,
        },
    ]


def test_for_vscode_it_is_told_what_shows_the_model_and_its_thoughts() -> None:
    said = "\n".join(RECIPES["vscode"].then(_TARGET))
    assert "Manage Models" in said
    assert "ANTIPHON_REASONING_AS=summary" in said


def test_zed_is_told_to_speak_responses() -> None:
    provider = json.loads(_pasted("zed"))["language_models"]["openai_compatible"]["antiphon"]
    assert provider["api_url"] == _URL
    assert [model["max_tokens"] for model in provider["available_models"]] == [32_768, 40_000]
    capabilities = provider["available_models"][1]["capabilities"]
    assert capabilities["chat_completions"] is False
    assert (capabilities["tools"], capabilities["images"]) == (False, True)


def test_opencode() -> None:
    settings = json.loads(_pasted("opencode"))
    provider = settings["provider"]["antiphon"]
    assert settings["model"] == "antiphon/m:1"
    assert provider["npm"] == "@ai-sdk/openai"
    assert provider["options"] == {"baseURL": _URL, "apiKey": "unused"}
    assert provider["models"] == {
        "m:1": {"name": "m:1"},
        "qwen": {"name": "Qwen", "limit": {"context": 40_000, "output": 4_000}},
    }
    keyed = json.loads(_pasted("opencode", _KEYED))["provider"]["antiphon"]["options"]
    assert keyed["apiKey"] == "{env:SOME_KEY}"


def test_llm() -> None:
    first, second = read_entries(_pasted("llm"))
    assert first == {
        "model_id": "antiphon/m:1",
        "model_name": "m:1",
        "api_base": _URL,
        "responses": True,
        "supports_tools": True,
        "supports_schema": True,
        "vision": False,
    }
    assert (second["vision"], second["supports_tools"]) == (True, False)
    (keyed,) = read_entries(_pasted("llm", _KEYED))
    assert keyed["api_key_name"] == "antiphon"


@pytest.mark.parametrize(
    "client", ["openai-python", "openai-node", "agents", "agents-js", "ai-sdk"]
)
def test_libraries(client: str) -> None:
    lines = _pasted(client).splitlines()
    ours = [line for line in lines[1:-1] if "TRACING" not in line]
    assert ours == [f"OPENAI_BASE_URL={_URL}", "OPENAI_API_KEY=unused"]
    assert "OPENAI_API_KEY=" not in _pasted(client, _KEYED)
    assert RECIPES[client].program(_TARGET)


@pytest.mark.parametrize("client", ["agents", "agents-js"])
def test_agents_that_read_the_file_send_no_traces_to_openai(client: str) -> None:
    assert "OPENAI_AGENTS_DISABLE_TRACING=1" in _pasted(client).splitlines()
    assert "OPENAI_AGENTS_DISABLE_TRACING=1 " in RECIPES[client].run(_TARGET)[-1]


def test_a_file_for_one_library_becomes_that_of_another() -> None:
    other = RECIPES["openai-python"].piece(_TARGET)
    assert other.merge(_pasted("agents")) == other.paste()


@pytest.mark.parametrize("client", ["llm", "opencode"])
def test_a_command_can_be_pasted_whatever_the_model_is_called(client: str) -> None:
    (said, *_) = RECIPES[client].then(Target(_URL, (unknown_model("it's; two"),)))
    assert shlex.split(said)[3] == "antiphon/it's; two"


def test_windows_quotes_in_its_own_way() -> None:
    assert (quoted("a b", "win32"), quoted("a b", "linux")) == ('"a b"', "'a b'")


@pytest.mark.parametrize("client", RECIPES)
@pytest.mark.parametrize("target", [_TARGET, _KEYED])
def test_every_recipe_says_what_to_do_then(client: str, target: Target) -> None:
    recipe = RECIPES[client]
    said = recipe.then(target)
    assert said[0].startswith("Then: ")
    if recipe.program(target):
        assert recipe.run(target)[0].startswith("Save it as hello.")
    if target.key_env:
        assert any("key" in line.lower() for line in said)


@pytest.mark.parametrize("client", RECIPES)
def test_every_recipe_comes_out_of_what_it_wrote(client: str, tmp_path: Any) -> None:
    recipe = RECIPES[client]
    assert recipe.place(Machine({}, "linux", tmp_path, tmp_path)).is_relative_to(tmp_path)
    nothing = recipe.piece(Target("", (unknown_model(""),)))
    assert nothing.is_blank(nothing.take_out(_pasted(client)))
