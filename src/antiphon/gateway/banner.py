"""What `antiphon serve` prints when it starts, with a command to paste."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from antiphon.version import __version__

__all__ = ["banner", "curl"]

_MAX_NAMES: Final = 3


def banner(
    base_url: str,
    *,
    store: str,
    sources: Sequence[str],
    models: Sequence[str],
    config: Path | None,
    needs_key: bool,
    metrics: str | None = None,
    ui: str | None = None,
) -> str:
    """Return the lines to print. `models` is empty if they could not be learnt in time."""
    lines = [f"antiphon {__version__} serves {base_url}"]
    lines += [f"  from    {source}" for source in sources]
    if models:
        more = f" and {len(models) - _MAX_NAMES} more" if len(models) > _MAX_NAMES else ""
        lines.append(f"  models  {', '.join(models[:_MAX_NAMES])}{more}")
    lines.append(f"  store   {store}")
    if config is not None:
        lines.append(f"  config  {config}")
    if ui is not None:
        lines.append(f"  ui      {ui}")
    if metrics is not None:
        lines.append(f"  metrics {metrics}")
    if needs_key:
        lines.append("  keys    required; `antiphon keys create` creates one")
    command = curl(base_url, models[0] if models else None, needs_key=needs_key)
    return "\n".join([*lines, "", "Try it:", f"  {command}"])


def curl(base_url: str, model: str | None, *, needs_key: bool, platform: str = sys.platform) -> str:
    """Return a command that asks the first question. Without a model the server chooses."""
    body = {"model": model, "input": "Say hello."} if model else {"input": "Say hello."}
    data = msgspec.json.encode(body).decode()
    quoted = subprocess.list2cmdline([data]) if platform == "win32" else shlex.quote(data)
    key = '-H "Authorization: Bearer $ANTIPHON_API_KEY" ' if needs_key else ""
    url = f"{base_url}/responses"
    return f'curl {url} {key}-H "Content-Type: application/json" -d {quoted}'
