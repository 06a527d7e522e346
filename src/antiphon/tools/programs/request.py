"""What of a conversation belongs to programs: their calls, results, and those that wait.

A program that calls a function of the caller waits until the caller sends the output. Everything
that is needed to go on is in the items, so it works with stored and with replayed history alike:

    program > mcp_call (caller: program) ... > function_call (caller: program) ...
            > function_call_output ... > program_output

Calls are replayed in the order of their items, each with the result that its item has. A turn
ends while a program waits only for functions, so every hosted call that it has made comes before
one of these: without its item the replay does not fit, and nothing is run again.

The fingerprint of a program names its code and the version of the rules by which it is replayed.
One that does not fit is not run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import Item, item_type
from antiphon.tools.programs.results import HOSTED, HostedId, hosted_id, result_of, value_of
from antiphon.tools.programs.sandboxed import ProgramRecord

__all__ = ["WaitingProgram", "caller_of", "fingerprint", "waiting_programs"]

_RULES: Final = "1"

Alias = Callable[[str | None, str], str]
"""Returns the name of a function in a program, from its namespace and its name."""


class WaitingProgram(msgspec.Struct, frozen=True):
    """A program without an output, and the calls that it has made. `problem` if it cannot go on."""

    call_id: str
    code: str
    calls: list[Item] = []
    outputs: dict[str, Item] = {}
    problem: str = ""

    @property
    def functions(self) -> int:
        """How many functions of the caller's it has called."""
        return sum(item_type(call) == "function_call" for call in self.calls)

    def records(self, alias: Alias, hosted: Mapping[HostedId, str]) -> list[ProgramRecord] | str:
        """Return its calls with their results; a text if they cannot be replayed, and why."""
        records = []
        for call in self.calls:
            output = self.outputs.get(str(call.get("call_id")))
            if item_type(call) == "function_call":
                assert output is not None
                name, arguments = alias(call.get("namespace"), call["name"]), call["arguments"]
                records.append(ProgramRecord(name, arguments, value_of(output.get("output"))))
                continue
            found = result_of([call] if output is None else [call, output])
            if found is None:
                return f"the result of a {item_type(call)} is not part of the conversation"
            name = hosted.get(hosted_id(call), "")
            records.append(ProgramRecord(name, _arguments(call), found))
        return records


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


def waiting_programs(items: Sequence[Item]) -> Iterator[WaitingProgram]:
    """Yield the programs of a conversation that have no output yet."""
    ended = {item.get("call_id") for item in items if item_type(item) == "program_output"}
    outputs = {
        item["call_id"]: item
        for item in items
        if item_type(item) in ("function_call_output", "shell_call_output")
        and isinstance(item.get("call_id"), str)
    }
    for item in items:
        if item_type(item) != "program" or item.get("call_id") in ended:
            continue
        call_id, code = item.get("call_id"), item.get("code")
        if isinstance(call_id, str) and isinstance(code, str):
            yield _waiting(item, call_id, code, items, outputs)


def _waiting(
    program: Item, call_id: str, code: str, items: Sequence[Item], outputs: dict[str, Item]
) -> WaitingProgram:
    calls = [item for item in items if caller_of(item) == call_id and _is_call(item)]
    functions = [call["call_id"] for call in calls if item_type(call) == "function_call"]
    missing = [name for name in functions if name not in outputs]
    problem = ""
    if program.get("fingerprint") != fingerprint(call_id, code):
        problem = "its fingerprint does not fit its code"
    elif missing:
        problem = f"there is no output for its call {missing[0]}"
    elif not functions:
        problem = "its calls are not part of the conversation"
    return WaitingProgram(call_id, code, calls, outputs, problem)


def _is_call(item: Item) -> bool:
    if item_type(item) in HOSTED:
        return True
    fields = ("call_id", "name", "arguments")
    return item_type(item) == "function_call" and all(
        isinstance(item.get(name), str) for name in fields
    )


def _arguments(call: Item) -> Any:
    """Return the arguments as the program wrote them, if the item has them."""
    given = call.get("arguments")
    return given if isinstance(given, str) and decode_json(given) is not None else None
