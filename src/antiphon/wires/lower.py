"""Every family of tools as functions, the only tools that chat models know.

Down: tools become functions under their aliases, and what was called and came back in earlier
turns becomes function calls and their outputs. Item for item, so that reports name the right
place. `lift` is the inverse: a call that is lowered and lifted is the same call.

    | family      | the function's arguments                                                 |
    |-------------|--------------------------------------------------------------------------|
    | function    | its own                                                                  |
    | custom      | `{"input": text}`                                                        |
    | shell       | `{"commands": […], "timeout_ms", "max_output_length"}`                   |
    | local_shell | `{"command": […], "env", "working_directory", "timeout_ms", "user"}`     |
    | apply_patch | `{"operation": {"type", "path", "diff"}}`                                |
    | tool_search | its own, or `paths`                                                      |
    | computer    | `{"action": {"type", …}}`                                                |

Calls that a server ran itself are lowered by `protocol.hosted`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.plans.plan import Plan
from antiphon.plans.tool_schemas import SCHEMAS, Schema, object_schema
from antiphon.plans.toolbox import Offer, Toolbox
from antiphon.protocol.families import (
    FAMILIES,
    WHOLE,
    Family,
    answers,
    arguments_of,
    call_family,
    output_family,
)
from antiphon.protocol.hosted import HOSTED_CALL, is_hosted, lower_hosted
from antiphon.protocol.items import Item, item_type, item_types
from antiphon.protocol.thread import Thread
from antiphon.protocol.tools import Tool

__all__ = ["Lowering", "functions_of", "lower_items", "lower_tools"]

# Items that are the same for a chat model.
_SAME: Final = frozenset({"message", "reasoning", "function_call_output"})
# Fields that lowering turns into other fields, or that mean nothing to a model.
_TOLD: Final = frozenset(
    {"name", "namespace", "output", "tools", "execution", "environment", "max_output_length"}
)

_ABOUT: Final = {
    "shell": "Run shell commands on the user's machine and return what they print.",
    "local_shell": "Run a program on the user's machine and return what it prints.",
    "apply_patch": "Create, change or delete one file of the user's.",
    "tool_search": "Search for further tools; what is found can be called from then on.",
    "computer": "Use the mouse, the keyboard and the screen of the user. Returns a screenshot.",
}


# Tools.


def functions_of(plan: Plan) -> Sequence[Tool]:
    """Return the functions that the model is shown. They are shared."""
    return lower_tools(plan.toolbox) if plan.shows_tools and plan.toolbox.offers else ()


def lower_tools(toolbox: Toolbox) -> Sequence[Tool]:
    """Return the tools as functions, under their aliases, in their order. They are shared."""
    offers = toolbox.offers
    return toolbox.derived.get(lower_tools, lambda: [_function(offer, toolbox) for offer in offers])


def _function(offer: Offer, toolbox: Toolbox) -> Tool:
    tool: Tool = {"type": "function", "name": offer.alias}
    if offer.kind == "function":
        kept = ("description", "parameters", "strict")
        tool |= {field: offer.tool[field] for field in kept if offer.tool.get(field) is not None}
        _drop_dialect(tool)
    elif offer.kind == "custom":
        tool["parameters"] = object_schema({"input": _input(offer.tool)}, ["input"])
        tool["description"] = _custom_description(offer.tool)
    else:
        tool["description"] = offer.tool.get("description") or _ABOUT[offer.kind]
        tool["parameters"] = offer.tool.get("parameters") or SCHEMAS[offer.kind]
    if offer.kind == "tool_search" and toolbox.deferred:
        tool["description"] += f"\n\nTo be found: {', '.join(toolbox.deferred)}."
    if offer.about:
        said = tool.get("description")
        tool["description"] = f"{said}\n\n({offer.about})" if said else offer.about
    return tool


def _drop_dialect(tool: Tool) -> None:
    """Leave out which JSON Schema the parameters are written in: some servers refuse to read it."""
    parameters = tool.get("parameters")
    if parameters and "$schema" in parameters:
        tool["parameters"] = {key: parameters[key] for key in parameters if key != "$schema"}


def _input(tool: Tool) -> Schema:
    form = tool.get("format") or {}
    schema: Schema = {"type": "string", "description": "The whole input, as plain text."}
    if form.get("type") == "grammar" and form["syntax"] == "regex":
        # Servers that hold a model to its schema hold it to the pattern too. The group is a plain
        # one: what turns patterns into grammars there often knows no other.
        schema["pattern"] = f"^({form['definition']})$"
    return schema


def _custom_description(tool: Tool) -> str:
    """Return what the tool is for, and what its input must look like if it has a grammar."""
    text = tool.get("description") or ""
    form = tool.get("format") or {}
    if form.get("type") != "grammar":
        return text or "Takes plain text."
    kind = "regular expression" if form["syntax"] == "regex" else "Lark grammar"
    order = f"`input` must match this {kind} exactly:\n{form['definition']}"
    return f"{text}\n\n{order}" if text else order


# Items.


def _is_never(kind: str) -> bool:
    return False


def lower_items(
    items: Sequence[Item], toolbox: Toolbox, is_own: Callable[[str], bool] = _is_never
) -> list[Item]:
    """Return the items with every call as a function call, and every output as its output.

    Items of a type that the wire has words of its own for (`is_own`) stay as they are.

    A call that a server ran becomes a `hosted_call`, which holds both. The same items at the
    same places; those that are neither stay the very same objects.
    """
    lowering = Lowering(toolbox)
    return [item if is_own(item_type(item)) else lowering.lower(item) for item in items]


class Lowering:
    """Lowers one item after the other; an output may name its call by an earlier item."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._call_ids: dict[str, str] = {}
        self._searched = ""
        self._hosted = 0

    def fork(self, toolbox: Toolbox) -> Lowering:
        """Return a copy that knows the items so far and continues on its own."""
        made = Lowering(toolbox)
        made._call_ids = self._call_ids.copy()
        made._searched = self._searched
        made._hosted = self._hosted
        return made

    def lower_some(self, items: Sequence[Item], begin: int, end: int) -> Sequence[Item]:
        """Return what `lower` makes of the items from `begin` to `end`."""
        some = items[begin:end]
        types = items.types if isinstance(items, Thread) else item_types(some)
        return some if _SAME.issuperset(types) else [self.lower(item) for item in some]

    def lower(self, item: Item) -> Item:
        """Return the item as a function call or its output; one that is neither, as it is."""
        if item_type(item) in _SAME:
            return item  # as most are
        if is_hosted(item):  # also those of a computer, whose output is an image
            return self._lower_hosted(item)
        family = call_family(item)
        if family is not None:
            return self._lower_call(item, family)
        family = output_family(item)
        return item if family is None else self._lower_output(item, family)

    def _lower_hosted(self, item: Item) -> Item:
        """Return a call that a server ran. Its id is its number, the same on every replay.

        The item's own will not do: clients leave it out, and then it is another in each request.
        """
        lowered = lower_hosted(item, self._toolbox.hosted_alias)
        if lowered["type"] != HOSTED_CALL:
            return lowered
        self._hosted += 1
        return lowered | {"call_id": f"{item_type(item)}_{self._hosted}"}

    def _lower_call(self, item: Item, family: Family) -> Item:
        call_id = answers(item) or ""
        if isinstance(item.get("id"), str):
            self._call_ids[item["id"]] = call_id
        if family.kind == "tool_search" and not item.get("call_id"):
            self._searched = call_id
        named = family.kind in ("function", "custom")
        name = item["name"] if named else family.kind
        namespace = item.get("namespace") if named else None
        alias = self._toolbox.alias_of(family.kind, namespace, name)
        if family.kind == "function" and alias == name and namespace is None:
            return item
        return _rest(item, family) | {
            "type": "function_call",
            "call_id": call_id,
            "name": alias,
            "arguments": _arguments(item, family),
        }

    def _lower_output(self, item: Item, family: Family) -> Item:
        if family.kind == "function":
            return item
        return _rest(item, family) | {
            "type": "function_call_output",
            "call_id": self._call_of(item, family),
            "output": self._found(item) if family.kind == "tool_search" else _output(item, family),
        }

    def _call_of(self, item: Item, family: Family) -> str:
        """Return which call an output is of.

        What a server found itself names no call: it is that of the search before it. A local
        shell's output may name its call by the id of the item.
        """
        if family.kind == "tool_search" and not item.get("call_id"):
            return self._searched
        wanted = answers(item) or ""
        return self._call_ids.get(wanted, wanted) if family.kind == "local_shell" else wanted

    def _found(self, item: Item) -> str:
        """Return what a search has found, by the names under which it can be called now."""
        names: list[str] = []
        for tool in item.get("tools") or ():
            inner = tool.get("tools") if tool.get("type") == "namespace" else None
            if isinstance(inner, list):
                names += [self._alias(one, str(tool.get("name"))) for one in inner]
            else:
                names.append(self._alias(tool, None))
        return _encode({"tools": names})

    def _alias(self, tool: Any, namespace: str | None) -> str:  # any JSON value
        fields = tool if isinstance(tool, dict) else {}
        kind: Any = fields.get("type")
        name = str(fields.get("name") or kind)
        is_known = isinstance(kind, str) and kind in FAMILIES
        return self._toolbox.alias_of(kind, namespace, name) if is_known else name


def _rest(item: Item, family: Family) -> Item:
    """Return the fields that lowering leaves alone: labels, and what others must report."""
    told = _TOLD | {family.payload}
    return {field: value for field, value in item.items() if field not in told}


def _arguments(item: Item, family: Family) -> str:
    payload = item.get(family.payload)
    if family.kind in WHOLE and isinstance(payload, dict):
        return arguments_of(family.kind, payload)
    text = payload if isinstance(payload, str) else ""
    return _encode({"input": text}) if family.kind == "custom" else text


def _output(item: Item, family: Family) -> Any:  # Any: text, or content parts
    match family.kind:
        case "custom":
            return item.get("output") or ""
        case "apply_patch":
            said = item.get("output")
            status = item.get("status") or "completed"
            return f"{status}: {said}" if said else status
        case _:
            output = item.get("output")
            return output if isinstance(output, str) else _encode(output)


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
