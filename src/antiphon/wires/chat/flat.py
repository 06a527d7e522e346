"""Tools, tool choices and parts of chat completions, in the shape of the Responses API.

In chat completions, what describes a tool is in an object of its own, under the name of its type:
`{"type": "function", "function": {"name": …}}`. The Responses API has these fields beside the type.
What is flat already stays as it is, and nothing that was given is changed. The door and the client
read messages by rules of their own (a server keeps what it does not know, a client refuses it),
but a part means the same to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from antiphon.protocol.items import Part
from antiphon.protocol.tools import Tool

__all__ = ["flat_choice", "flat_part", "flat_tool"]

# The type that a part has in the Responses API, and the field that a bare string stands for.
_PARTS: Final = {
    "image_url": ("input_image", "url"),
    "video_url": ("input_video", "url"),
    "file": ("input_file", ""),
}


def flat_part(part: Mapping[str, Any]) -> Part | None:
    """Return an image, video or file in the flat shape, any other part as it is.

    None if there is nothing under the name of its type that could be one.
    """
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _PARTS:
        return dict(part)
    name, key = _PARTS[kind]
    inner = part.get(kind)
    if key and isinstance(inner, str):
        inner = {key: inner}
    if not isinstance(inner, Mapping):
        return None
    beside = {field: value for field, value in part.items() if field not in ("type", kind)}
    flat: Part = {**inner, **beside, "type": name}
    if key:
        flat[kind] = flat.pop(key, None)
    return flat


def flat_tool(tool: Mapping[str, Any]) -> Tool:
    """Return a function or a custom tool in the flat shape, any other tool as it is."""
    kind = tool.get("type")
    inner = tool.get(kind) if kind in ("function", "custom") else None
    if not isinstance(inner, Mapping):
        return dict(tool)
    flat: Tool = {name: value for name, value in tool.items() if name != kind} | dict(inner)
    if kind == "function":
        flat["strict"] = flat.get("strict") or False  # off unless asked for, unlike in Responses
    form = flat.get("format")
    if isinstance(form, Mapping) and isinstance(form.get("grammar"), Mapping):
        flat["format"] = {"type": "grammar", **form["grammar"]}
    return flat


def flat_choice(choice: Any) -> Any:  # Any: JSON of a caller
    """Return a tool_choice in the flat shape. A mode is a word and stays one."""
    if not isinstance(choice, Mapping):
        return choice
    kind = choice.get("type")
    inner = choice.get(kind) if isinstance(kind, str) else None
    if not isinstance(inner, Mapping):
        return dict(choice)
    flat = {name: value for name, value in choice.items() if name != kind} | dict(inner)
    if kind == "allowed_tools" and isinstance(flat.get("tools"), list):
        flat["tools"] = [flat_choice(tool) for tool in flat["tools"]]
    return flat
