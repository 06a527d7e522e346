"""Which settings does a reload change, and which need a restart?

Every key of the file is in exactly one of the two sets; a test fails for a key that is in none.
A reload keeps the values of the second set as they are and reports those that differ.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from antiphon.gateway.config import Settings

__all__ = ["NEED_RESTART", "RELOADED", "RESTART_LIMITS", "Change", "compare"]

RELOADED: Final = frozenset(
    {
        "upstream",
        "upstream_key_env",
        "profile",
        "use_proxies",
        "local_model",
        "default_model",
        "dialect",
        "strict",
        "reasoning_as",
        "auth",
        "allowed_origins",
        "rerun_background",
        "on_disconnect",
        "log_level",
        "limits",
        "files",
        "upstream_limits",
        "mcp",
        "providers",
        "models",
        "routes",
        "prompts",
        "tools",
        "web_search",
        "images",
        "input_files",
        "webhooks",
    }
)
"""What new requests and turns obey after a reload."""

NEED_RESTART: Final = frozenset(
    {
        # What the process has opened: sockets, store, other processes, the log.
        "host",
        "port",
        "store",
        "workers",
        "tls_cert",
        "tls_key",
        "metrics_host",
        "metrics_port",
        "log_format",
        "telemetry",
        # Who may enter, and what there is: decided and checked once, at the start.
        "require_keys",
        "ui",
        "keep_upstream_requests",
        "doors",
        "id_mark",
        "seal_keys_env",
        # What runs beside the requests: indexing, readers of documents, sandboxes.
        "file_search",
        "documents",
        "code_interpreter",
        "shell",
        "programs",
        "containers",
        "sandbox",
    }
)
"""What stays as it is until the gateway is started again."""

RESTART_LIMITS: Final = frozenset({"header_bytes", "header_count", "keep_alive_seconds"})
"""Keys of `[limits]` that the HTTP server is made with."""


class Change(NamedTuple):
    """What a reload would do."""

    settings: Settings
    """The settings after it."""
    changed: list[str]
    """The keys whose values it changes."""
    restart: list[str]
    """The keys that differ in the file, and stay as they are."""


def compare(old: Settings, new: Settings) -> Change:
    """Return what becomes of the old settings when the new ones are read."""
    kept = _differing(old, new, NEED_RESTART)
    limits = {
        f"limits.{name}": getattr(old.limits, name)
        for name in sorted(RESTART_LIMITS)
        if getattr(old.limits, name) != getattr(new.limits, name)
    }
    bounds = {name.removeprefix("limits."): value for name, value in limits.items()}
    merged = msgspec.structs.replace(
        new,
        limits=msgspec.structs.replace(new.limits, **bounds),
        **{name: getattr(old, name) for name in kept},
    )
    return Change(merged, _differing(old, merged, RELOADED), [*kept, *limits])


def _differing(one: Settings, other: Settings, names: frozenset[str]) -> list[str]:
    return [
        name
        for name in Settings.__struct_fields__
        if name in names and getattr(one, name) != getattr(other, name)
    ]
