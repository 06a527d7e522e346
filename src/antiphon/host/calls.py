"""Which tool calls are handed to the application, which are not, and why.

A call is handed over once, whole, with its arguments parsed. It is described up to three times:
by `function_call_arguments.done`, by `output_item.done` and by the terminal response. The first
description that is whole is used. A malformed one waits for the next; if the last is malformed
too, it makes a `MalformedCall`. Nothing is ever guessed:

- Arguments are a JSON object. The empty string means `{}` only in the last description of a
  finished call of a function that needs no arguments according to the response's own `tools`:
  some servers write that instead of `{}`.
- The free-form input of a custom tool is handed over as `{"input": text}`, and only when the item
  is finished: text that was cut short looks like any other.
- A call that was still open when the response ended badly is not handed over.
- Arguments that may belong to another call, because the events did not name their item, wait
  for a description of the item itself.
- The same item is never handed over twice. If its last description has another payload,
  `check` raises it; another call_id is only a deviation. Another item with the same call_id
  and payload is the same call.
- There is one part for each call_id, because results go back by it. Another payload under a
  call_id that was handed over is a conflict that only the server could resolve: it is not handed
  over, and it is reported as a deviation.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.host.errors import ChangedCall, MalformedCall
from antiphon.protocol.items import Item
from antiphon.protocol.machines.partial_items import (
    Draft,
    call_payload,
    encode_json,
    read_json,
    string_of,
)
from antiphon.protocol.response import Response
from antiphon.wires.host.parts import ToolCallPart

__all__ = ["CALL_TYPES", "ToolCalls"]

CALL_TYPES: Final = frozenset({"function_call", "custom_tool_call"})
_FINISHED: Final = frozenset({"completed", None})

_Input = dict[str, Any]


class _ReportedCall(NamedTuple):
    """A call as it was handed over."""

    call_id: str
    name: str
    arguments: str
    payload: tuple[str, str]


class ToolCalls:
    """Remembers what was handed over. `key` identifies an item, whatever ids it came with."""

    def __init__(self, prefix: str) -> None:
        self.deviations: list[str] = []
        self.malformed: list[MalformedCall] = []
        self._prefix = prefix
        self._told: dict[Hashable, _ReportedCall] = {}
        self._changes: dict[Hashable, str] = {}
        self._payloads: dict[str, set[tuple[str, str]]] = {}

    def hear(self, key: Hashable, item: Item) -> list[ToolCallPart]:
        """Return the call if this description makes it whole and it is new."""
        call_id, name = string_of(item, "call_id"), string_of(item, "name")
        if key in self._told:
            self._compare(key, item)
            return []
        arguments = _read_input(item)
        if arguments is None or not call_id or not name:
            return []
        return self._tell(key, item, ToolCallPart(call_id, name, arguments))

    def settle_draft(
        self, draft: Draft | None, item: Item, response: Response, *, has_gap: bool = False
    ) -> list[ToolCallPart]:
        """Settle an item of the final response, and the streamed one that it was, if any."""
        if draft is None:
            return self.settle(object(), item, response)
        return self.settle(draft, item, response, _doubt(draft, has_gap))

    def settle(
        self, key: Hashable, item: Item, response: Response, doubt: str = ""
    ) -> list[ToolCallPart]:
        """Return the call by its last description, or note why it cannot be run.

        `doubt` is why its arguments are not to be trusted, even if they can be read.
        """
        if key in self._told:
            self._compare(key, item)
            return []
        call_id = string_of(item, "call_id") or string_of(item, "id")
        name = string_of(item, "name")
        if call_payload(item) in self._payloads.get(call_id, ()):
            return []
        arguments = _read_input(item)
        if arguments is None:
            arguments = _read_empty(item, response)
        if not _is_finished(item, response):
            why = "it was cut off"
        elif not name or not call_id:
            why = "it has no id" if name else "it has no name"
        elif doubt or arguments is None:
            why = doubt or "its arguments are no JSON object"
        else:
            return self._tell(key, item, ToolCallPart(call_id, name, arguments))
        self.malformed.append(MalformedCall(call_id, name, _said(item), why=why, response=response))
        return []

    def _tell(self, key: Hashable, item: Item, call: ToolCallPart) -> list[ToolCallPart]:
        payload = call_payload(item)
        self._told[key] = _ReportedCall(call.call_id, call.name, _said(item), payload)
        known = self._payloads.setdefault(call.call_id, set())
        if payload in known:
            return []
        known.add(payload)
        if len(known) > 1:
            self.deviations.append(
                f"call_id {call.call_id} stands for several calls; only the first was handed over"
            )
            return []
        kind = "custom" if item.get("type") == "custom_tool_call" else "function"
        return [msgspec.structs.replace(call, call_id=self._prefix + call.call_id, kind=kind)]

    def check(self, response: Response) -> None:
        """Raise the error for the calls of a response that has ended, if one is wrong."""
        if self.malformed:
            raise self.malformed[0]
        for key, said in self._changes.items():
            told = self._told[key]
            raise ChangedCall(
                told.call_id, told.name, told=told.arguments, said=said, response=response
            )

    def _compare(self, key: Hashable, item: Item) -> None:
        told = self._told[key]
        if told.payload == call_payload(item):
            self._changes.pop(key, None)
            return
        self._changes[key] = _said(item)
        deviation = f"call {told.call_id} changed after it was handed over"
        if deviation not in self.deviations:
            self.deviations.append(deviation)


def _doubt(draft: Draft, has_gap: bool) -> str:
    """Return why the arguments of a streamed call are not to be trusted; empty if they are.

    Those that only the announcement has do not count: some servers put `{}` there. With a gap in
    the stream, arguments that nothing confirmed may lack a piece.
    """
    if draft.is_confirmed:
        return ""
    if not draft.has_said():
        return "its arguments never came"
    if draft.is_guessed:
        return "its arguments may be those of another call"
    if has_gap and not draft.is_final("arguments"):
        return "some of its arguments may have been lost"
    return ""


def _read_input(item: Item) -> _Input | None:
    """Return the input of this description, or None if it is not whole."""
    if item.get("type") == "custom_tool_call":
        text = string_of(item, "input")
        return {"input": text} if text and item.get("status") in _FINISHED else None
    try:
        value = read_json(string_of(item, "arguments"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_empty(item: Item, response: Response) -> _Input | None:
    """Return what an empty last description means, if it means anything."""
    if item.get("status") not in _FINISHED:
        return None
    if item.get("type") == "custom_tool_call":
        return {"input": ""} if item.get("input") in ("", None) else None
    is_empty = item.get("arguments") in ("", None)
    return {} if is_empty and not _needs_arguments(string_of(item, "name"), response) else None


def _needs_arguments(name: str, response: Response) -> bool:
    for tool in response.tools or ():
        parameters = tool.get("parameters")
        if tool.get("name") == name and isinstance(parameters, dict):
            return bool(parameters.get("required"))
    return False


def _is_finished(item: Item, response: Response) -> bool:
    """Return whether the model finished this call; False if it or the response was cut off."""
    if response.status == "completed":
        return item.get("type") != "custom_tool_call" or item.get("status") in _FINISHED
    return response.status == "incomplete" and item.get("status") in _FINISHED


def _said(item: Item) -> str:
    """Return the arguments as they came."""
    said = item.get("arguments", item.get("input", ""))
    return said if isinstance(said, str) else encode_json(said).decode()
