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
from collections.abc import Mapping
from typing import Any, Final

from antiphon.cli.run.client import Client, Launch, Order, local_environment
from antiphon.models.facts import ASSUMED_WINDOW

__all__ = ["CLIENT", "small_model"]

_PROVIDER: Final = "antiphon"
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


def _prepare(program: str, order: Order) -> Launch:
    flags = []
    for key, value in _settings(order).items():
        # TOML writes a string and a truth value as JSON does.
        flags += ["-c", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    return Launch([program, *flags, *order.arguments], local_environment())


CLIENT: Final = Client("codex", "@openai/codex", _prepare)


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
        path = order.directory / "models.json"
        path.write_text(json.dumps({"models": list(catalog)}))
        settings["model_catalog_json"] = str(path)
    return settings
