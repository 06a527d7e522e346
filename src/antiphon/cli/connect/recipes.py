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
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.cli.connect import places
from antiphon.cli.connect.jsonc_piece import Addition, JsonPiece
from antiphon.cli.connect.lines import EnvPiece, YamlPiece
from antiphon.cli.connect.piece import NAME, Piece
from antiphon.cli.connect.programs import PROGRAMS, UNUSED, program
from antiphon.cli.connect.toml_piece import TomlPiece
from antiphon.models.facts import ASSUMED_WINDOW

__all__ = ["RECIPES", "Model", "Recipe", "Target", "program", "quoted"]

_ASSUMED_OUTPUT: Final = 8_192
_NO_TRACES: Final = "OPENAI_AGENTS_DISABLE_TRACING"


class Model(msgspec.Struct, frozen=True):
    """A model, and what is known of it. None: not known."""

    id: str
    name: str | None = None
    context: int | None = None
    output: int | None = None
    takes_images: bool | None = None
    calls_tools: bool | None = None

    def window(self) -> int:
        """Return how many tokens it takes in and gives out, or a careful guess."""
        return self.context or ASSUMED_WINDOW

    def longest(self) -> int:
        """Return how many tokens of the window to keep for the answer."""
        return min(self.output or _ASSUMED_OUTPUT, self.window() // 4)


class Target(msgspec.Struct, frozen=True):
    """What a client is to be connected with. The first model is the one it begins with."""

    url: str
    models: tuple[Model, ...]
    key_env: str | None = None

    @property
    def model(self) -> str:
        """Return the name of the first model."""
        return self.models[0].id


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
            f"{' '.join([*_variables(self.name, target), f'OPENAI_API_KEY={key}'])}",
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


def _vscode_model(model: Model, url: str) -> dict[str, Any]:
    return {
        "id": model.id,
        "name": model.name or model.id,
        "url": f"{url}/responses",
        "toolCalling": model.calls_tools is not False,
        "vision": model.takes_images is True,
        "thinking": True,  # else VS Code takes `reasoning` and `include` out of its requests
        "maxInputTokens": model.window() - model.longest(),
        "maxOutputTokens": model.longest(),
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
    names = ", ".join(model.id for model in target.models if model.context is None)
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


def _zed_model(model: Model) -> dict[str, Any]:
    return {
        "name": model.id,
        "display_name": model.name or model.id,
        "max_tokens": model.window(),
        "max_output_tokens": model.longest(),
        "capabilities": {
            "tools": model.calls_tools is not False,
            "images": model.takes_images is True,
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


def _opencode_model(model: Model) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": model.name or model.id}
    if model.context is not None:
        entry["limit"] = {"context": model.window(), "output": model.longest()}
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
            f"  supports_tools: {_yaml(model.calls_tools is not False)}",
            "  supports_schema: true",
            f"  vision: {_yaml(model.takes_images is True)}",
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


def _variables(name: str, target: Target) -> list[str]:
    # Traces hold the conversation, and would be sent to api.openai.com.
    quiet = [f"{_NO_TRACES}=1"] if name in ("agents", "agents-js") else []
    return [f"OPENAI_BASE_URL={target.url}", *quiet]


def _dotenv(name: str) -> Callable[[Target], Piece]:
    def piece(target: Target) -> Piece:
        key = f"OPENAI_API_KEY={UNUSED}"
        if target.key_env:
            key = "# OPENAI_API_KEY must hold a key of the gateway"
        return EnvPiece(
            client=name,
            lines=(*_variables(name, target), key),
            names=("OPENAI_BASE_URL", "OPENAI_API_KEY", _NO_TRACES),
        )

    return piece


def _then_library(target: Target) -> list[str]:
    return [
        "Then: programs that read .env ask the gateway (python-dotenv, node --env-file=.env).",
        *([f"OPENAI_API_KEY must hold what {target.key_env} holds."] if target.key_env else []),
    ]


def _library(name: str, about: str) -> Recipe:
    return Recipe(name, about, places.dotenv, _dotenv(name), _then_library)


_ALL: Final = (
    Recipe("codex", "OpenAI's coding agent in the terminal.", places.codex, _codex, _then_codex),
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
