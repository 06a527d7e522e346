"""Which calls did a program make? Their ids are derived from it, so they are known by them.

A call of a program names it as its `caller`. Clients of some APIs send calls back without that
field; the id alone is enough to restore it. The id is the same on every replay of the program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from antiphon.protocol.items import Item, item_type

__all__ = ["caller_field", "hosted_call_id", "program_call_id", "restore_callers"]


def program_call_id(program: str, number: int) -> str:
    """Return the id of a call that a program makes; calls are counted from 0."""
    digest = hashlib.sha256(f"{program}\n{number}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def hosted_call_id(program: str, number: int) -> str:
    """Return the id of a call of a hosted tool that a program makes; they are counted alone."""
    digest = hashlib.sha256(f"{program}\nhosted {number}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def caller_field(program: str) -> dict[str, Any]:
    """Return the `caller` of the calls of a program."""
    return {"type": "program", "caller_id": program}


def restore_callers(items: Sequence[Item]) -> list[Item]:
    """Return the items with the callers of all calls that the programs among them made."""
    calls = {item.get("call_id") for item in items if item_type(item) == "function_call"}
    programs = [item.get("call_id") for item in items if item_type(item) == "program"]
    made: dict[object, str] = {}
    for program in programs:
        number = 0
        while isinstance(program, str) and (name := program_call_id(program, number)) in calls:
            made[name] = program
            number += 1
    return [_with_caller(item, made) for item in items]


def _with_caller(item: Item, made: dict[object, str]) -> Item:
    if item_type(item) != "function_call" or item.get("call_id") not in made:
        return item
    return {**item, "caller": caller_field(made[item["call_id"]])}
