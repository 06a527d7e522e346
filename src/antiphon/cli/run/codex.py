"""Codex on any model: which settings it is started with, all of them on its command line.

The gateway is a provider of its own to Codex, so that neither its login nor its key comes into
play; the built-in provider, sent elsewhere, would take the user's login along. Requests go by
HTTP, each whole in itself. Settings are given as `-c`, which Codex reports and goes on from if
it does not know one; what stands in ARGS comes later on the line and wins.

A model that takes little has few tools and few words before the question: 1,100 tokens, where
with the gateway's own catalog it would be 3,300, and without any 10,000.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from antiphon.cli.errors import CliError
from antiphon.cli.run.client import Client, Launch, Order
from antiphon.models.facts import ASSUMED_WINDOW

__all__ = ["CLIENT", "Codex", "small_model"]

_PROVIDER: Final = "antiphon"
_PROXY_EXCEPTIONS: Final = ("NO_PROXY", "no_proxy")
_SMALL_FEATURES: Final = (
    "goals",
    "multi_agent",
    "apps",
    "plugins",
    "skill_search",
    "tool_suggest",
    "image_generation",
    "view_image",
    "sleep_tool",
)
_SMALL_SETTINGS: Final[Mapping[str, object]] = {
    "web_search": "disabled",
    "include_environment_context": False,
    "include_permissions_instructions": False,
    "skills.include_instructions": False,
    **{f"features.{name}": False for name in _SMALL_FEATURES},
}
_SMALL_INSTRUCTIONS: Final = (
    "You are a coding assistant in a terminal. Run shell commands with the tool exec_command; "
    "give it only the argument cmd. Look at files, change files and run programs this way. Call "
    "one tool at a time and wait for its output. When the task is done, answer the user in one or "
    "two sentences."
)
_SMALL_OUTPUT: Final = 2_000


class Codex:
    """The `codex` of the user's PATH."""

    name = "codex"

    def find(self) -> str:
        """Return where it is. Raise CliError if it is not installed."""
        program = shutil.which("codex")
        if program is None:
            raise CliError(
                "codex is not on the PATH; install it with `npm install -g @openai/codex`, "
                "then run this again"
            )
        return program

    def prepare(self, program: str, order: Order) -> Launch:
        """Return how to start it with the gateway as its provider."""
        settings = _settings(order)
        flags = [
            part for key, value in settings.items() for part in ("-c", f"{key}={_toml(value)}")
        ]
        return Launch([program, *flags, *order.arguments], _environment(os.environ))


CLIENT: Final[Client] = Codex()


def small_model(name: str, context: int | None) -> dict[str, Any]:
    """Return the entry of Codex's catalog for a model that takes little."""
    window = context or ASSUMED_WINDOW
    return {
        "slug": name,
        "display_name": name,
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": 0,
        "support_verbosity": False,
        "supports_parallel_tool_calls": False,
        "truncation_policy": {"mode": "tokens", "limit": min(_SMALL_OUTPUT, window // 8)},
        "experimental_supported_tools": [],
        "base_instructions": _SMALL_INSTRUCTIONS,
        "context_window": window,
    }


def _settings(order: Order) -> dict[str, object]:
    provider = f"model_providers.{_PROVIDER}"
    settings: dict[str, object] = {
        "model_provider": _PROVIDER,
        f"{provider}.name": _PROVIDER,
        f"{provider}.base_url": order.base_url,
        f"{provider}.wire_api": "responses",
        "model": order.model,
    }
    if order.is_small:
        settings |= _SMALL_SETTINGS
    catalog = [small_model(order.model, order.context)] if order.is_small else order.models
    if catalog:
        settings["model_catalog_json"] = str(_write_catalog(order.directory, catalog))
    return settings


def _write_catalog(directory: Path, models: Sequence[Mapping[str, object]]) -> Path:
    path = directory / "models.json"
    path.write_text(json.dumps({"models": list(models)}))
    return path


def _toml(value: object) -> str:
    """Return a string or a truth value as TOML, which writes these two as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment, in which this machine is reached without a proxy."""
    found = dict(environ)
    for name in _PROXY_EXCEPTIONS:
        found[name] = ",".join(filter(None, [found.get(name, ""), "127.0.0.1"]))
    return found
