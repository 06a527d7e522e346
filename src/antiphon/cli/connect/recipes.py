"""How is each client set up to use the gateway? One recipe per client.

A recipe is what goes into a file, which file, and what to do next. It follows the documentation
and the source of the client; `tests/clients` tries it out. Keys are
never in it: only the names of the variables that hold them.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.cli.claude_code import gateway_variables
from antiphon.cli.connect import places
from antiphon.cli.connect.jsonc_piece import Addition, JsonPiece
from antiphon.cli.connect.lines import NestedYamlPiece, SettingsPiece, YamlPiece
from antiphon.cli.connect.piece import NAME, Piece
from antiphon.cli.connect.programs import PROGRAMS, UNUSED, dotenv_piece, program, variables
from antiphon.cli.connect.target import Target, longest, window
from antiphon.cli.connect.toml_piece import TomlPiece
from antiphon.host.models import ModelDescription
from antiphon.models.facts import ASSUMED_WINDOW

__all__ = ["RECIPES", "Recipe", "quoted"]


class Recipe(msgspec.Struct, frozen=True):
    """How to connect one client."""

    name: str
    about: str
    place: Callable[[places.Machine], Path]
    piece: Callable[[Target], Piece]
    then: Callable[[Target], list[str]]
    """What to do when the file is written, and what to know."""

    def program(self, target: Target) -> str | None:
        """Return a program that can be pasted and run, for libraries."""
        if self.name not in PROGRAMS:
            return None
        return program(self.name, target.url, target.model, target.key_env)

    def run(self, target: Target) -> list[str]:
        """Return how to run the program, and how to do without."""
        form = PROGRAMS[self.name]
        install, run = ("pip", "python") if form.is_python else ("npm", "node")
        key = "a key of the gateway" if target.key_env else UNUSED
        return [
            f"Save it as {form.file}: {install} install {form.packages} && {run} {form.file}",
            *_set_key(target),
            f"Or change nothing in your own program but the name of the model, to {target.model}, "
            "and put these into its environment (--write puts them into .env): "
            f"{' '.join([*variables(self.name, target.url), f'OPENAI_API_KEY={key}'])}",
        ]


def quoted(word: str, platform: str = sys.platform) -> str:
    """Return a word as one argument of a command line."""
    return subprocess.list2cmdline([word]) if platform == "win32" else shlex.quote(word)


def _set_key(target: Target) -> list[str]:
    return [f"{target.key_env} must be set where it runs."] if target.key_env else []


# Codex.


def _codex(target: Target) -> Piece:
    # Codex asks for a catalog of models only where it has something to authenticate with.
    key = {"env_key": target.key_env} if target.key_env else {"experimental_bearer_token": UNUSED}
    return TomlPiece(
        client="codex",
        keys={"model": target.model, "model_provider": NAME},
        table=("model_providers", NAME),
        fields={
            "name": NAME,
            "base_url": target.url,
            "wire_api": "responses",
            "model_catalog_url": f"{target.url}/models",
            **key,
        },
        gone=("env_key", "experimental_bearer_token"),
    )


def _then_codex(target: Target) -> list[str]:
    return ["Then: codex", *_set_key(target)]


# Claude Code.


def _claude_code(target: Target) -> Piece:
    variables = gateway_variables(target.url, target.model, window(target.models[0]))
    # It has no settings of a name of our own, so one variable says whose the others are.
    variables = {"ANTIPHON_CONNECT": "claude-code"} | variables
    return JsonPiece(
        (
            *(Addition(("env", name), value) for name, value in variables.items()),
            Addition(("apiKeyHelper",), _key_command(target.key_env)),
        ),
        is_known_by_first=True,
    )


def _key_command(key_env: str | None, platform: str = sys.platform) -> str:
    """Return the command whose output is the key."""
    if key_env is None:
        return f"echo {UNUSED}"
    return f"echo %{key_env}%" if platform == "win32" else f"printenv {key_env}"


def _then_claude_code(target: Target) -> list[str]:
    return ["Then: claude", *_set_key(target), *_assumed(target)]


# Aider.


def _aider(target: Target) -> Piece:
    return SettingsPiece(
        client="aider",
        lines=(
            f"openai-api-base: {_yaml(target.url)}",
            f"model: {_yaml(f'openai/{target.model}')}",
            "# OPENAI_API_KEY must hold a key of the gateway"
            if target.key_env
            else f"openai-api-key: {UNUSED}",
        ),
        names=("openai-api-base", "openai-api-key", "model"),
        sign=":",
    )


def _then_aider(target: Target) -> list[str]:
    return ["Then: aider", *_openai_key(target)]


# Cline.


def _cline(target: Target) -> Piece:
    provider = ("providers", "openai-compatible")
    settings = {
        "provider": provider[1],
        "baseUrl": target.url,
        "model": target.model,
        **({} if target.key_env else {"apiKey": UNUSED}),
    }
    return JsonPiece(
        (
            # Cline has one such provider; a header, which it keeps, says that it is ours.
            Addition((*provider, "settings", "headers", "x-antiphon-connect"), "cline"),
            *(Addition((*provider, "settings", key), value) for key, value in settings.items()),
            Addition((*provider, "updatedAt"), "1970-01-01T00:00:00.000Z"),
            Addition((*provider, "tokenSource"), "manual"),
            Addition(("lastUsedProvider",), provider[1]),
        ),
        empty='{"version": 1}',
        is_known_by_first=True,
    )


def _then_cline(target: Target) -> list[str]:
    key = f"cline auth -p openai-compatible -b {target.url} -m {quoted(target.model)} -k KEY"
    return ["Then: cline", *([f"Cline keeps keys itself: {key}"] if target.key_env else [])]


# Continue.


def _continue(target: Target) -> Piece:
    key = f"${{{{ secrets.{target.key_env} }}}}" if target.key_env else UNUSED
    lines: list[str] = []
    for model in target.models:
        abilities = ["tool_use"] if model.capabilities.tool_calling is not False else []
        abilities += ["image_input"] if model.capabilities.image_input else []
        lines += [
            f"- name: {_yaml(f'{NAME}/{model.id}')}",
            "  provider: openai",
            f"  model: {_yaml(model.id)}",
            f"  apiBase: {_yaml(target.url)}",
            f"  apiKey: {key}",
            f"  capabilities: [{', '.join(abilities)}]",
            "  defaultCompletionOptions:",
            f"    contextLength: {window(model)}",
            f"    maxTokens: {longest(model)}",
        ]
    return NestedYamlPiece(
        client="continue",
        lines=tuple(lines),
        begins=f'- name: "{NAME}/',
        under="models",
        head=("name: Models of antiphon", "version: 1.0.0", "schema: v1"),
    )


def _then_continue(target: Target) -> list[str]:
    return ["Then: cn, or choose the model in the extension.", *_set_key(target), *_assumed(target)]


# VS Code.


def _vscode(target: Target) -> Piece:
    group = {
        "name": NAME,
        "vendor": "customendpoint",
        "apiType": "responses",
        "models": [_vscode_model(model, target.url) for model in target.models],
    }
    known_by = {"name": NAME, "vendor": "customendpoint"}
    return JsonPiece((Addition((), group, like=known_by),), empty="[]", indent="\t")


def _vscode_model(model: ModelDescription, url: str) -> dict[str, Any]:
    return {
        "id": model.id,
        "name": model.name,
        "url": f"{url}/responses",
        "toolCalling": model.capabilities.tool_calling is not False,
        "vision": model.capabilities.image_input is True,
        "thinking": True,  # else VS Code takes `reasoning` and `include` out of its requests
        "maxInputTokens": window(model) - longest(model),
        "maxOutputTokens": longest(model),
    }


def _then_vscode(target: Target) -> list[str]:
    key = "Chat: Manage Language Models > antiphon > Update API Key takes the key; VS Code keeps it"
    return [
        "Then: choose Manage Models in the chat's model picker once, and pick the model there.",
        'Without a sign-in the chat is there with "chat.allowAnonymousAccess": true in '
        "settings.json.",
        "VS Code shows what a model thinks only if the gateway sends it as a summary: "
        "start it with ANTIPHON_REASONING_AS=summary.",
        *([f"{key} in its own store, not in the file."] if target.key_env else []),
        *_assumed(target),
    ]


def _assumed(target: Target) -> list[str]:
    names = ", ".join(model.id for model in target.models if model.context_window is None)
    if not names:
        return []
    return [f"The gateway does not report the context of {names}: {ASSUMED_WINDOW} is assumed."]


# Zed.


def _zed(target: Target) -> Piece:
    provider = {
        "api_url": target.url,
        "available_models": [_zed_model(model) for model in target.models],
    }
    return JsonPiece((Addition(("language_models", "openai_compatible", NAME), provider),))


def _zed_model(model: ModelDescription) -> dict[str, Any]:
    return {
        "name": model.id,
        "display_name": model.name,
        "max_tokens": window(model),
        "max_output_tokens": longest(model),
        "capabilities": {
            "tools": model.capabilities.tool_calling is not False,
            "images": model.capabilities.image_input is True,
            "parallel_tool_calls": False,
            "prompt_cache_key": False,
            "chat_completions": False,  # and so it speaks Responses
        },
    }


def _then_zed(target: Target) -> list[str]:
    key = "a key of the gateway" if target.key_env else f"any word, such as {UNUSED}"
    return [
        "Then: pick the model in the agent panel.",
        f"Zed takes the key from ANTIPHON_API_KEY or from Settings > AI; it wants {key}.",
        *_assumed(target),
    ]


# opencode.


def _opencode(target: Target) -> Piece:
    provider = {
        "npm": "@ai-sdk/openai",
        "name": NAME,
        "options": {
            "baseURL": target.url,
            "apiKey": f"{{env:{target.key_env}}}" if target.key_env else UNUSED,
        },
        "models": {model.id: _opencode_model(model) for model in target.models},
    }
    return JsonPiece(
        (
            Addition(("provider", NAME), provider),
            Addition(("model",), f"{NAME}/{target.model}", prefix=f"{NAME}/"),
        )
    )


def _opencode_model(model: ModelDescription) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": model.name}
    if model.context_window is not None:
        entry["limit"] = {"context": window(model), "output": longest(model)}
    return entry


def _then_opencode(target: Target) -> list[str]:
    return [f"Then: opencode --model {quoted(f'{NAME}/{target.model}')}", *_set_key(target)]


# llm.


def _llm(target: Target) -> Piece:
    lines: list[str] = []
    for model in target.models:
        lines += [
            f"- model_id: {_yaml(f'{NAME}/{model.id}')}",
            f"  model_name: {_yaml(model.id)}",
            f"  api_base: {_yaml(target.url)}",
            "  responses: true",
            f"  supports_tools: {_yaml(model.capabilities.tool_calling is not False)}",
            "  supports_schema: true",
            f"  vision: {_yaml(model.capabilities.image_input is True)}",
            *([f"  api_key_name: {NAME}"] if target.key_env else []),
        ]
    return YamlPiece("llm", tuple(lines), begins=f'- model_id: "{NAME}/')


def _yaml(value: str | bool) -> str:
    return json.dumps(value, ensure_ascii=False)


def _then_llm(target: Target) -> list[str]:
    return [
        f'Then: llm -m {quoted(f"{NAME}/{target.model}")} "Say hello."',
        *([f"llm keeps keys itself: llm keys set {NAME}"] if target.key_env else []),
    ]


# Libraries.


def _then_library(target: Target) -> list[str]:
    return [
        "Then: programs that read .env ask the gateway (python-dotenv, node --env-file=.env).",
        *_openai_key(target),
    ]


def _openai_key(target: Target) -> list[str]:
    return [f"OPENAI_API_KEY must hold what {target.key_env} holds."] if target.key_env else []


def _library(name: str, about: str) -> Recipe:
    return Recipe(name, about, places.dotenv, partial(dotenv_piece, name), _then_library)


_ALL: Final = (
    Recipe("codex", "OpenAI's coding agent in the terminal.", places.codex, _codex, _then_codex),
    Recipe(
        "claude-code",
        "Anthropic's coding agent in the terminal.",
        places.claude_code,
        _claude_code,
        _then_claude_code,
    ),
    Recipe("cline", "A coding agent, as the command cline.", places.cline, _cline, _then_cline),
    Recipe(
        "continue",
        "The extension Continue and its command cn.",
        places.continue_,
        _continue,
        _then_continue,
    ),
    Recipe("aider", "A coding agent in the terminal.", places.aider, _aider, _then_aider),
    Recipe(
        "vscode", "The chat of VS Code, as a custom endpoint.", places.vscode, _vscode, _then_vscode
    ),
    Recipe("zed", "The agent of the editor Zed.", places.zed, _zed, _then_zed),
    Recipe(
        "opencode", "A coding agent in the terminal.", places.opencode, _opencode, _then_opencode
    ),
    _library("openai-python", "The package openai for Python."),
    _library("openai-node", "The package openai for Node."),
    _library("agents", "The OpenAI Agents SDK for Python."),
    _library("agents-js", "The OpenAI Agents SDK for Node."),
    _library("ai-sdk", "The AI SDK with @ai-sdk/openai."),
    Recipe("llm", "The command llm.", places.llm, _llm, _then_llm),
)
RECIPES: Final[Mapping[str, Recipe]] = {recipe.name: recipe for recipe in _ALL}
