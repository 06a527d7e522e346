"""What a program saw, turn by turn. Each turn gets the name of its model: its own.

The report is all that reaches standard output. Some clients log there; from the import of this
module on, whatever else is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["tell", "turn"]

_report: dict[str, dict[str, Any]] = {}
_output = os.dup(1)
os.dup2(2, 1)


async def turn(model: str, act: Callable[[str], Awaitable[Any]]) -> None:
    """Run a turn and note what it returns, or the error that the client raised."""
    try:
        _report[model] = {"value": await act(model)}
    except Exception:  # noqa: BLE001 - the outermost frame of a turn: the report names the error
        _report[model] = {"error": traceback.format_exc()}


def tell() -> None:
    """Print the report, once, at the end of the program."""
    sys.stdout.flush()
    with os.fdopen(_output, "w") as file:
        json.dump(_report, file, default=str)
