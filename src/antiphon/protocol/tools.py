"""Tools and tool_choice: what the model may call.

A tool is a JSON object as it stands on the wire. `read_choice` makes every form of tool_choice
plain: a mode and, perhaps, some tools that are meant. `ToolPolicy` is what became of it once it
is known which tools there are (see `plans.toolbox`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.errors import invalid

__all__ = [
    "Meant",
    "Mode",
    "Tool",
    "ToolChoice",
    "ToolPolicy",
    "check_shape",
    "read_choice",
]

# A JSON object of open shape: Any is what a peer may put there.
Tool = dict[str, Any]
Mode = Literal["auto", "none", "required"]

_MAX_NAME: Final = 256
_MISSING: Final = "missing_required_parameter"
_TOOL_SHAPES: Final[dict[str, tuple[tuple[str, type[Any]], ...]]] = {
    "function": (("description", str), ("parameters", dict), ("strict", bool)),
    "custom": (("description", str), ("format", dict)),
    "namespace": (("description", str), ("tools", list)),
    "tool_search": (("description", str), ("parameters", dict)),
}


class ToolPolicy(msgspec.Struct, frozen=True):
    """Which tools may be called. `allowed` holds aliases, and is None for all of them.

    A tool that the caller does not run is allowed by its kind; one that is run here gets aliases
    later (`plans.hosted_choice`). A named tool is `required` with one allowed name.
    """

    mode: Mode = "auto"
    allowed: frozenset[str] | None = None

    def allows(self, alias: str) -> bool:
        """Return whether a call to this tool may be handed on."""
        return self.mode != "none" and (self.allowed is None or alias in self.allowed)


class Meant(msgspec.Struct, frozen=True):
    """A tool as tool_choice names it: by its type, and by a name if it has one."""

    type: str
    name: str | None = None
    namespace: str | None = None

    @property
    def label(self) -> str:
        """What the tool is called in a message."""
        name = self.name or self.type
        return f"{self.namespace}.{name}" if self.namespace else name


class ToolChoice(msgspec.Struct, frozen=True):
    """tool_choice made plain. `meant` is None for all tools."""

    mode: Mode = "auto"
    meant: tuple[Meant, ...] | None = None


_ANY: Final = ToolChoice()


def check_shape(tool: Tool, param: str) -> None:
    """Raise InvalidRequest if a tool of a kind we know is not of its shape.

    What a namespace holds is not looked at, and what a schema says is not either.
    """
    kind = tool.get("type")
    if not isinstance(kind, str):
        raise invalid(f"{param}.type", "is missing", _MISSING)
    if kind in ("function", "custom", "namespace"):
        _check_name(tool, param)
    for field, kinds in _TOOL_SHAPES.get(kind, ()):
        if not isinstance(tool.get(field), (kinds, type(None))):
            why = f"must be of type {kinds.__name__}"
            raise invalid(f"{param}.{field}", why, "invalid_type")
    if kind == "custom" and tool.get("format") is not None:
        _check_grammar(tool["format"], f"{param}.format")


def _check_name(tool: Tool, param: str) -> None:
    """Refuse a name that nobody can mean; one that a backend would not take is no mistake."""
    name = tool.get("name")
    if name is None and isinstance(tool.get("function"), dict):
        raise invalid(
            f"{param}.name",
            "is missing: a tool is flat here, so its name, description, parameters and strict "
            "stand beside type instead of under function",
            _MISSING,
        )
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        why = f"must be 1 to {_MAX_NAME} printable characters"
        raise invalid(f"{param}.name", why, "invalid_value" if name else _MISSING)


def _check_grammar(form: dict[str, Any], param: str) -> None:
    """Check the shape of a custom tool's format: text, or a grammar with its definition."""
    kind = form.get("type")
    if kind not in ("text", "grammar"):
        raise invalid(f"{param}.type", "must be text or grammar")
    if kind == "text":
        return
    if form.get("syntax") not in ("lark", "regex"):
        raise invalid(f"{param}.syntax", "must be lark or regex")
    if not isinstance(form.get("definition"), str):
        code = "invalid_type" if "definition" in form else _MISSING
        raise invalid(f"{param}.definition", "must be a string", code)


def read_choice(choice: str | dict[str, Any] | None) -> ToolChoice:
    """Return what any form of tool_choice says. Raise InvalidRequest for nonsense."""
    if choice is None:
        return _ANY
    if isinstance(choice, str):
        return ToolChoice(_mode(choice, "tool_choice"))
    kind = choice.get("type")
    if kind == "allowed_tools":
        mode = _mode(choice.get("mode") or "auto", "tool_choice.mode")
        tools = choice.get("tools")
        if not isinstance(tools, list) or not tools:
            raise invalid("tool_choice.tools", "must list at least one tool")
        return ToolChoice(mode, tuple(_meant(tool) for tool in tools))
    if not isinstance(kind, str):
        raise invalid("tool_choice.type", "is missing", _MISSING)
    return ToolChoice("required", (_meant(choice),))


def _mode(value: object, param: str) -> Mode:
    if value == "auto" or value == "none" or value == "required":
        return value
    raise invalid(param, "must be auto, none or required")


def _meant(tool: object) -> Meant:
    if not isinstance(tool, dict):
        raise invalid("tool_choice", "must name a tool", "invalid_type")
    space = "server_label" if tool.get("type") == "mcp" else "namespace"
    kind, name, namespace = (tool.get(field) for field in ("type", "name", space))
    if kind in ("function", "custom") and not isinstance(name, str):
        is_nested = isinstance(tool.get(str(kind)), dict)
        hint = f": it stands beside type here, not under {kind}" if is_nested else ""
        raise invalid("tool_choice.name", f"is missing{hint}", _MISSING)
    return Meant(
        str(kind),
        name if isinstance(name, str) else None,
        namespace if isinstance(namespace, str) else None,
    )
