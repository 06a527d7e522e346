"""The arguments of the tools that callers offer without a schema.

A shell, a patch or a search is offered by its kind alone. These are the JSON Schemas that a model
is shown for it, and that its calls are checked against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.protocol.families import Kind

__all__ = ["SCHEMAS", "Schema", "object_schema"]

# JSON Schemas.
Schema = dict[str, Any]


def object_schema(properties: Schema, required: Sequence[str]) -> Schema:
    """Return the schema of an object with these members and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_COUNT: Final[Schema] = {"type": ["integer", "null"], "minimum": 0}
_TEXTS: Final[Schema] = {"type": "array", "items": {"type": "string"}, "minItems": 1}

_SHELL: Final = object_schema(
    {
        "commands": _TEXTS | {"description": "Shell commands, run one after the other."},
        "timeout_ms": _COUNT | {"description": "When to give up, in milliseconds."},
        "max_output_length": _COUNT | {"description": "How many characters of output to return."},
    },
    ["commands"],
)
_LOCAL_SHELL: Final = object_schema(
    {
        "command": _TEXTS | {"description": "The program and its arguments."},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "working_directory": {"type": ["string", "null"]},
        "timeout_ms": _COUNT,
        "user": {"type": ["string", "null"]},
    },
    ["command"],
)
_DIFF: Final[Schema] = {"type": "string", "description": "The change, in V4A diff format."}
_PATH: Final[Schema] = {"type": "string", "minLength": 1}


def _operation(kinds: Sequence[str], *, has_diff: bool) -> Schema:
    fields: Schema = {"type": {"type": "string", "enum": list(kinds)}, "path": _PATH}
    if has_diff:
        fields["diff"] = _DIFF
    return object_schema(fields, list(fields))


_APPLY_PATCH: Final = object_schema(
    {
        "operation": {
            "anyOf": [
                _operation(["create_file", "update_file"], has_diff=True),
                _operation(["delete_file"], has_diff=False),
            ]
        }
    },
    ["operation"],
)

_PLACE: Final[Schema] = {"type": "integer", "description": "In pixels, from the top left."}
_COMPUTER: Final = object_schema(
    {
        "action": {
            "type": "object",
            "properties": {
                "type": {
                    "type": "string",
                    "enum": [
                        *("click", "double_click", "drag", "keypress", "move", "screenshot"),
                        *("scroll", "type", "wait"),
                    ],
                },
                "x": _PLACE,
                "y": _PLACE,
                "button": {
                    "type": "string",
                    "enum": ["left", "right", "wheel", "back", "forward"],
                    "description": "For click.",
                },
                "path": {
                    "type": "array",
                    "items": object_schema({"x": _PLACE, "y": _PLACE}, ["x", "y"]),
                    "description": "For drag: where the mouse goes.",
                },
                "keys": _TEXTS | {"description": "For keypress."},
                "scroll_x": {"type": "integer", "description": "For scroll."},
                "scroll_y": {"type": "integer", "description": "For scroll."},
                "text": {"type": "string", "description": "For type."},
            },
            "required": ["type"],
        }
    },
    ["action"],
)

SCHEMAS: Final[dict[Kind, Schema]] = {
    "shell": _SHELL,
    "local_shell": _LOCAL_SHELL,
    "apply_patch": _APPLY_PATCH,
    "computer": _COMPUTER,
    "tool_search": object_schema(
        {"paths": _TEXTS | {"description": "Names of the tools or namespaces to load."}},
        ["paths"],
    ),
}
