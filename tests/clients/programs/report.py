"""What a program saw, turn by turn. Each turn gets the name of its model: its own."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["tell", "turn"]

_report: dict[str, dict[str, Any]] = {}


async def turn(model: str, act: Callable[[str], Awaitable[Any]]) -> None:
    """Run a turn and note what it returns, or the error that the client raised."""
    try:
        _report[model] = {"value": await act(model)}
    except Exception:  # noqa: BLE001 - the outermost frame of a turn: the report names the error
        _report[model] = {"error": traceback.format_exc()}


def tell() -> None:
    """Print the report. What the program prints otherwise goes to standard error."""
    json.dump(_report, sys.stdout, default=str)
