"""The families of tools whose calls the caller runs: what each is called on the wire.

A family is a kind of tool with an item type for its calls and one for their outputs. What
becomes of a call's arguments is here too, as data and two small functions, because all
who read or write calls need it: the builder, the chat side, the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.items import Item, item_type

__all__ = [
    "FAMILIES",
    "WHOLE",
    "Family",
    "Kind",
    "answers",
    "arguments_of",
    "call_family",
    "call_item",
    "is_call",
    "is_output",
    "opening_of",
    "output_family",
    "payload_of",
]

Kind = Literal[
    "function", "custom", "shell", "local_shell", "apply_patch", "tool_search", "computer"
]


class Family(msgspec.Struct, frozen=True):
    """One kind of tool. `payload` is the field of a call with what is asked.

    `empty` is that field of a call before anything of it is known.
    """

    kind: Kind
    call: str
    output: str
    payload: str
    empty: str | Mapping[str, Any] = ""


_SHELL: Final[dict[str, Any]] = {"commands": [], "timeout_ms": None, "max_output_length": None}
_EXEC: Final[dict[str, Any]] = {"type": "exec", "command": [], "env": {}}
_EXEC_FIELDS: Final = ("command", "env", "working_directory", "timeout_ms", "user")
_PATCH: Final = {"type": "update_file", "path": "", "diff": ""}
_NEEDED: Final = {
    "create_file": ("path", "diff"),
    "update_file": ("path", "diff"),
    "delete_file": ("path",),
}
_COMPUTER: Final = {"type": "screenshot"}
_COMPUTER_NEEDS: Final = {
    "click": ("button", "x", "y"),
    "double_click": ("x", "y"),
    "drag": ("path",),
    "keypress": ("keys",),
    "move": ("x", "y"),
    "screenshot": (),
    "scroll": ("x", "y", "scroll_x", "scroll_y"),
    "type": ("text",),
    "wait": (),
}
_COMPUTER_TYPES: Final = {
    **dict.fromkeys(("x", "y", "scroll_x", "scroll_y"), int),
    **dict.fromkeys(("button", "text"), str),
    **dict.fromkeys(("path", "keys"), list),
}

FAMILIES: Final[dict[Kind, Family]] = {
    family.kind: family
    for family in (
        Family("function", "function_call", "function_call_output", "arguments"),
        Family("custom", "custom_tool_call", "custom_tool_call_output", "input"),
        Family("shell", "shell_call", "shell_call_output", "action", _SHELL),
        Family("local_shell", "local_shell_call", "local_shell_call_output", "action", _EXEC),
        Family(
            "apply_patch",
            "apply_patch_call",
            "apply_patch_call_output",
            "operation",
            _PATCH,
        ),
        Family("tool_search", "tool_search_call", "tool_search_output", "arguments", {}),
        Family("computer", "computer_call", "computer_call_output", "action", _COMPUTER),
    )
}
WHOLE: Final = frozenset(kind for kind, family in FAMILIES.items() if family.empty != "")
"""Kinds whose calls hold an object: they are emitted whole, never piece by piece."""

_BY_CALL: Final = {family.call: family for family in FAMILIES.values()}
_BY_OUTPUT: Final = {family.output: family for family in FAMILIES.values()}


def call_family(item: Item) -> Family | None:
    """Return the family if this item is a call."""
    return _BY_CALL.get(item_type(item))


def output_family(item: Item) -> Family | None:
    """Return the family if this item is the output of a call."""
    return _BY_OUTPUT.get(item_type(item))


def is_call(item: Item) -> bool:
    """Return whether the item is a call that the caller runs."""
    return item_type(item) in _BY_CALL


def is_output(item: Item) -> bool:
    """Return whether the item is the output of a call that the caller ran."""
    return item_type(item) in _BY_OUTPUT


def answers(item: Item) -> str | None:
    """Return the call_id that a call or an output goes by.

    A local shell's output has none on the wire: its `id` is that of the call. Nor has a search
    that a server ran itself.
    """
    for field in ("call_id", "id"):
        value = item.get(field)
        if isinstance(value, str) and value:
            return value
    return None


def call_item(
    kind: Kind, *, id: str, call_id: str, name: str, namespace: str | None, status: str
) -> Item:
    """Return a call before anything of it is known, a new item."""
    family = FAMILIES[kind]
    item: Item = {"id": id, "type": family.call, "status": status, "call_id": call_id}
    if kind in ("function", "custom"):
        item["name"] = name
        if namespace is not None:
            item["namespace"] = namespace
    if kind == "tool_search":
        item["execution"] = "client"
    if kind == "computer":
        item["pending_safety_checks"] = []
    return item | {family.payload: msgspec.to_builtins(family.empty)}


def opening_of(kind: Kind, payload: str | Mapping[str, Any]) -> Any:  # Any: as `payload` is
    """Return the payload of a call when it opens, from the one when it is done.

    A patch names its file at once; clients begin to show it then.
    """
    if isinstance(payload, str) or kind == "shell":
        return msgspec.to_builtins(FAMILIES[kind].empty)
    opening: dict[str, Any] = msgspec.to_builtins(payload)
    return opening | {"diff": ""} if "diff" in opening and kind == "apply_patch" else opening


def payload_of(kind: Kind, arguments: str) -> dict[str, Any] | None:
    """Return the object that a call of a kind in `WHOLE` holds, or None if this is not one."""
    try:
        value = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None
    if kind == "tool_search":
        return value
    if kind == "apply_patch":
        return _operation(value.get("operation", value))
    if kind == "computer":
        return _input_action(value.get("action", value))
    return _action(kind, value)


def _operation(value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    needed = _NEEDED.get(str(value.get("type")))
    if needed is None or not all(isinstance(value.get(field), str) for field in needed):
        return None
    return value if value["path"] else None


def _input_action(value: object) -> dict[str, Any] | None:
    """Return what is done with a mouse, a keyboard or a screen; None if it is not whole."""
    if not isinstance(value, dict):
        return None
    needed = _COMPUTER_NEEDS.get(str(value.get("type")))
    if needed is None:
        return None
    is_whole = all(type(value.get(field)) is _COMPUTER_TYPES[field] for field in needed)
    return value if is_whole else None


def _action(kind: Kind, value: dict[str, Any]) -> dict[str, Any] | None:
    field = "commands" if kind == "shell" else "command"
    commands = value.get(field)
    if isinstance(commands, str):
        commands = [commands] if kind == "shell" else ["bash", "-lc", commands]
    if not isinstance(commands, list) or not all(isinstance(text, str) for text in commands):
        return None
    if not commands:
        return None
    empty, known = (_SHELL, _SHELL) if kind == "shell" else (_EXEC, _EXEC_FIELDS)
    given = {name: value[name] for name in known if name in value}
    if kind == "local_shell":  # where a field that is null is no field
        given = {name: entry for name, entry in given.items() if entry is not None}
    return {**msgspec.to_builtins(empty), **given, field: commands}


def arguments_of(kind: Kind, payload: Mapping[str, Any]) -> str:
    """Return what a call holds as the arguments of a function: the way back of `payload_of`."""
    if kind == "apply_patch":
        payload = {"operation": payload}
    elif kind == "computer":
        payload = {"action": payload}
    elif kind != "tool_search":
        payload = {name: value for name, value in payload.items() if _says(name, value)}
    return msgspec.json.encode(payload).decode()


def _says(name: str, value: object) -> bool:
    """Return whether a field of an action is more than what it would be if it were left out."""
    return value is not None and name != "type" and not (name == "env" and not value)
