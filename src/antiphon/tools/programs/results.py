"""What does a call return in a program? From the items of calls to values of JavaScript.

The same function serves the first run and every replay, and it sees nothing but the items as they
are stored. So a program gets the same result each time.

    | call                    | returns                                  | throws             |
    |-------------------------|------------------------------------------|--------------------|
    | a function              | its output; JSON is a value              | never              |
    | `mcp_call`              | its output; JSON is a value              | its error          |
    | `code_interpreter_call` | what the code printed                    | if it did not end  |
    | `shell_call`            | a list: stdout, stderr, outcome          | if it was not run  |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import Item, item_type
from antiphon.tools.programs.sandboxed import ProgramResult

__all__ = ["HOSTED", "HostedId", "hosted_id", "result_of", "value_of"]

HOSTED: Final = frozenset({"mcp_call", "code_interpreter_call", "shell_call"})
"""The types of the items of hosted tools that programs may call."""

HostedId = tuple[str | None, str]
"""The namespace and the name of a hosted function."""


def hosted_id(item: Item) -> HostedId:
    """Return which hosted function an item is a call of."""
    kind = item_type(item)
    if kind == "mcp_call":
        return str(item.get("server_label")), str(item.get("name"))
    return None, kind.removesuffix("_call")


def value_of(given: object) -> ProgramResult:
    """Return an output as a value: JSON is read, anything else is a text."""
    if isinstance(given, list):
        parts = [part for part in given if isinstance(part, dict)]
        given = "\n".join(str(part["text"]) for part in parts if "text" in part)
    text = given if isinstance(given, str) else ""
    value = decode_json(text)
    return ProgramResult(text if value is None else value)


def result_of(items: Sequence[Item]) -> ProgramResult | None:
    """Return the result of a hosted call, from its items; None if they do not have it."""
    call = items[0]
    match item_type(call):
        case "mcp_call":
            return _of_mcp(call)
        case "code_interpreter_call":
            return _of_code(call)
    for one in items:
        if item_type(one) == "shell_call_output" and isinstance(one.get("output"), list):
            return ProgramResult(one["output"], is_error=one.get("status") != "completed")
    return None


def _of_mcp(call: Item) -> ProgramResult | None:
    error = call.get("error")
    if error:
        detail = error if isinstance(error, dict) else {"message": error}
        text = value_of(detail.get("message") or detail.get("content")).value
        return ProgramResult(text or detail, is_error=True)
    return value_of(call["output"]) if isinstance(call.get("output"), str) else None


def _of_code(call: Item) -> ProgramResult | None:
    outputs = call.get("outputs")
    if not isinstance(outputs, list):
        return None
    logs = [str(one.get("logs")) for one in outputs if isinstance(one, dict) and "logs" in one]
    return ProgramResult("".join(logs), is_error=call.get("status") != "completed")
