"""What of a conversation belongs to programs: their calls, results, and those that wait.

A program that calls a function of the caller waits until the caller sends the output. Everything
that is needed to go on is in the items, so it works with stored and with replayed history alike:

    program > function_call (caller: program) ... > function_call_output ... > program_output

The fingerprint of a program names its code and the version of the rules by which it is replayed.
One that does not fit is not run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import Item, item_type
from antiphon.tools.programs.sandboxed import ProgramRecord, ProgramResult

__all__ = ["WaitingProgram", "caller_of", "fingerprint", "waiting_programs"]

_RULES: Final = "1"

Alias = Callable[[str | None, str], str]
"""Returns the name of a function in a program, from its namespace and its name."""


class WaitingProgram(msgspec.Struct, frozen=True):
    """A program without an output, and the results that it has. `problem` if it cannot go on."""

    call_id: str
    code: str
    records: list[ProgramRecord]
    problem: str = ""


def fingerprint(call_id: str, code: str) -> str:
    """Return what ties a program item to its code and to the rules of replay."""
    digest = hashlib.sha256(f"{_RULES}\n{call_id}\n{code}".encode("utf-8", "surrogatepass"))
    return f"{_RULES}.{digest.hexdigest()}"


def caller_of(item: Item) -> str | None:
    """Return the call id of the program that made a call; None if no program did."""
    caller = item.get("caller")
    if not isinstance(caller, dict) or caller.get("type") != "program":
        return None
    name = caller.get("caller_id")
    return name if isinstance(name, str) else None


def waiting_programs(items: Sequence[Item], alias: Alias) -> Iterator[WaitingProgram]:
    """Yield the programs of a conversation that have no output yet."""
    ended = {item.get("call_id") for item in items if item_type(item) == "program_output"}
    outputs = {
        item.get("call_id"): item for item in items if item_type(item) == "function_call_output"
    }
    for item in items:
        if item_type(item) != "program" or item.get("call_id") in ended:
            continue
        call_id, code = item.get("call_id"), item.get("code")
        if isinstance(call_id, str) and isinstance(code, str):
            yield _waiting(item, call_id, code, items, outputs, alias)


def _waiting(
    program: Item,
    call_id: str,
    code: str,
    items: Sequence[Item],
    outputs: dict[Any, Item],
    alias: Alias,
) -> WaitingProgram:
    calls = [item for item in items if caller_of(item) == call_id and _is_call(item)]
    missing = [call["call_id"] for call in calls if call["call_id"] not in outputs]
    problem = ""
    if program.get("fingerprint") != fingerprint(call_id, code):
        problem = "its fingerprint does not fit its code"
    elif missing:
        problem = f"there is no output for its call {missing[0]}"
    elif not calls:
        problem = "its calls are not part of the conversation"
    if problem:
        return WaitingProgram(call_id, code, [], problem)
    records = [
        ProgramRecord(
            alias(call.get("namespace"), call["name"]),
            call["arguments"],
            _result(outputs[call["call_id"]]),
        )
        for call in calls
    ]
    return WaitingProgram(call_id, code, records)


def _is_call(item: Item) -> bool:
    fields = ("call_id", "name", "arguments")
    return item_type(item) == "function_call" and all(
        isinstance(item.get(name), str) for name in fields
    )


def _result(item: Item) -> ProgramResult:
    """Return an output as a value: JSON is read, anything else is a text."""
    given = item.get("output")
    if isinstance(given, list):
        parts = [part for part in given if isinstance(part, dict)]
        given = "\n".join(str(part["text"]) for part in parts if "text" in part)
    text = given if isinstance(given, str) else ""
    value = decode_json(text)
    return ProgramResult(text if value is None else value)
