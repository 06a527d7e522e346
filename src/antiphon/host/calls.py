"""Which tool calls the application is told, and which not, and why.

A call is told once, whole, with its arguments parsed. The words about it come in this order:
`function_call_arguments.done`, `output_item.done`, the terminal response. The first that is
whole is told; one that is malformed waits for the next, and the last one that is malformed
still makes a `MalformedCall`. Nothing is ever guessed:

- Arguments are a JSON object. The empty string stands for `{}` only as the last word about a
  call that is finished, of a function that needs no arguments as far as the response's own
  `tools` say: some servers write that instead of `{}`.
- The free-form input of a custom tool is told as `{"input": text}`, and not before the item
  says that it is finished: text that was cut short looks like any other.
- A call that was still open when the response ended badly is not told.
- The same item is never told again; if its later word differs, that is a deviation. Another
  item with the same call_id and payload is the same call. With another payload it is another
  call: it is told under the id that the server gave it, and that is a deviation too.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import msgspec

from antiphon.host.data import encode_json
from antiphon.host.errors import MalformedCall
from antiphon.host.parts import ToolCallPart
from antiphon.protocol.drafts import call_payload, string_of
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response

__all__ = ["CALL_TYPES", "ToolCalls", "own_call_id"]

CALL_TYPES: Final = frozenset({"function_call", "custom_tool_call"})
_FINISHED: Final = frozenset({"completed", None})

_Input = dict[str, Any]


def own_call_id(call_id: str, prefix: str) -> str:
    """Return the server's own id of a call that the application knows under a prefix."""
    return call_id.removeprefix(prefix)


class ToolCalls:
    """Remembers what was told. `key` stands for an item, under whatever ids it came."""

    def __init__(self, prefix: str) -> None:
        self.deviations: list[str] = []
        self.malformed: list[MalformedCall] = []
        self._prefix = prefix
        self._told: dict[Hashable, tuple[str, str]] = {}
        self._payloads: dict[str, set[tuple[str, str]]] = {}

    def hear(self, key: Hashable, item: Item) -> list[ToolCallPart]:
        """Return the call if this word makes it whole and it is new."""
        call_id, name = string_of(item, "call_id"), string_of(item, "name")
        if key in self._told:
            self._compare(key, item)
            return []
        arguments = _read_input(item)
        if arguments is None or not call_id or not name:
            return []
        return self._tell(key, item, ToolCallPart(call_id, name, arguments))

    def settle(
        self, key: Hashable, item: Item, response: Response, *, is_announced_only: bool
    ) -> list[ToolCallPart]:
        """Return the call by the last word about it, or note why it cannot be run.

        Arguments that only the announcement holds are not a word: some servers put `{}` there.
        """
        if key in self._told:
            self._compare(key, item)
            return []
        call_id = string_of(item, "call_id") or string_of(item, "id")
        name = string_of(item, "name")
        arguments = _read_input(item)
        if arguments is None:
            arguments = _read_empty(item, response)
        if not _is_finished(item, response):
            why = "it was cut off"
        elif not name or not call_id:
            why = "it has no id" if name else "it has no name"
        elif is_announced_only:
            why = "its arguments never came"
        elif arguments is None:
            why = "its arguments are no JSON object"
        else:
            return self._tell(key, item, ToolCallPart(call_id, name, arguments))
        self.malformed.append(MalformedCall(call_id, name, _said(item), why=why, response=response))
        return []

    def _tell(self, key: Hashable, item: Item, call: ToolCallPart) -> list[ToolCallPart]:
        self._told[key] = payload = call_payload(item)
        known = self._payloads.setdefault(call.call_id, set())
        if payload in known:
            return []
        if known:
            self.deviations.append(f"call_id {call.call_id} stands for several calls")
        known.add(payload)
        kind = "custom" if item.get("type") == "custom_tool_call" else "function"
        return [msgspec.structs.replace(call, call_id=self._prefix + call.call_id, kind=kind)]

    def _compare(self, key: Hashable, item: Item) -> None:
        deviation = f"call {string_of(item, 'call_id')} changed after it was told"
        if self._told[key] != call_payload(item) and deviation not in self.deviations:
            self.deviations.append(deviation)


def _read_input(item: Item) -> _Input | None:
    """Return the input that this word holds, or None if it is not whole."""
    if item.get("type") == "custom_tool_call":
        text = string_of(item, "input")
        return {"input": text} if text and item.get("status") in _FINISHED else None
    try:
        value = msgspec.json.decode(string_of(item, "arguments"))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_empty(item: Item, response: Response) -> _Input | None:
    """Return what an empty last word means, if it means anything."""
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
    """Say whether the model finished this call; not if it or the response was cut off."""
    if response.status == "completed":
        return item.get("type") != "custom_tool_call" or item.get("status") in _FINISHED
    return response.status == "incomplete" and item.get("status") in _FINISHED


def _said(item: Item) -> str:
    """Return the arguments as they came."""
    said = item.get("arguments", item.get("input", ""))
    return said if isinstance(said, str) else encode_json(said).decode()
