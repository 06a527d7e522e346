"""What of a server's list of tools can be used?

A list comes from a stranger. A tool is left out, and reported, if its name or its schema is not
what models and clients can work with; descriptions are shortened. What is kept is also what an
approval is bound to: `digest` changes when a server changes a definition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.protocol.schema import check_schema

__all__ = [
    "MAX_PAGES",
    "MAX_TOOLS",
    "Definition",
    "Listing",
    "definitions_in",
    "read_tools",
]

MAX_TOOLS: Final = 512
MAX_PAGES: Final = 10
_MAX_NAME: Final = 128
_MAX_DESCRIPTION: Final = 4096
_MAX_TITLE: Final = 256
_MAX_NOTES: Final = 20
_MAX_LIST: Final = 1024 * 1024
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_NO_FIELDS: Final[dict[str, Any]] = {"type": "object", "properties": {}}


class Definition(msgspec.Struct, frozen=True):
    """A tool of a server, in the form that `mcp_list_tools` has."""

    name: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]

    @property
    def is_read_only(self) -> bool:
        """Whether the server claims that a call changes nothing."""
        return self.annotations.get("readOnlyHint") is True

    @property
    def digest(self) -> bytes:
        """What identifies this definition; it changes with every field."""
        parts = [self.name, self.description, self.input_schema, self.annotations]
        return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).digest()

    def as_entry(self) -> dict[str, Any]:
        """Return the entry of an `mcp_list_tools` item. Clients refuse null for absent fields."""
        entry: dict[str, Any] = {"name": self.name, "input_schema": self.input_schema}
        if self.description:
            entry["description"] = self.description
        if self.annotations:
            entry["annotations"] = self.annotations
        return entry


class Listing(msgspec.Struct, frozen=True):
    """The tools of a server that can be used, by name, and what was left out."""

    tools: Mapping[str, Definition]
    notes: Sequence[str] = ()


def read_tools(entries: Iterable[object]) -> Listing:
    """Return the tools of a server's list, in its order. It is not trusted."""
    tools: dict[str, Definition] = {}
    notes: list[str] = []
    size = 0
    for index, entry in enumerate(entries):
        found = _read_tool(entry, "inputSchema", f"tool {index}")
        if isinstance(found, str):
            notes.append(found)
            continue
        size += len(msgspec.json.encode(found))
        if len(tools) >= MAX_TOOLS or size > _MAX_LIST:
            why = f"more than {MAX_TOOLS} tools, or definitions of more than {_MAX_LIST} bytes"
            notes.append(f"it has {why}; the others are left out")
            break
        if found.name in tools:
            notes.append(f"two of its tools are named '{found.name}'; the first is used")
        else:
            tools[found.name] = found
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES - 1 : -1] = []  # the last one may report that there is more
    return Listing(tools, notes)


def definitions_in(item: Item) -> dict[str, Definition]:
    """Return the tools of an `mcp_list_tools` item, which a caller may have written."""
    entries = item.get("tools")
    if not isinstance(entries, list):
        return {}
    read = (_read_tool(entry, "input_schema", "") for entry in entries[:MAX_TOOLS])
    return {found.name: found for found in read if isinstance(found, Definition)}


def _read_tool(entry: object, schema_field: str, place: str) -> Definition | str:
    """Return a tool, or why it is left out."""
    if not isinstance(entry, dict):
        return f"{place} is left out: it is not an object"
    name = entry.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
        return f"{place} is left out: its name is not 1 to {_MAX_NAME} printable characters"
    schema = entry.get(schema_field) or _NO_FIELDS
    if not isinstance(schema, dict):
        return f"tool '{name}' is left out: its schema is not an object"
    try:
        check_schema(schema, "its schema")
        msgspec.json.encode(schema)
    except InvalidRequest as error:
        return f"tool '{name}' is left out: {error.message}"
    except (RecursionError, ValueError, TypeError):
        return f"tool '{name}' is left out: its schema cannot be read"
    about, hints = entry.get("description"), entry.get("annotations")
    return Definition(
        name,
        _shorten(about, _MAX_DESCRIPTION) if isinstance(about, str) else "",
        schema,
        _annotations(hints) if isinstance(hints, dict) else {},
    )


def _annotations(hints: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        name: hints[name] for name in _HINTS if isinstance(hints.get(name), bool)
    }
    title = hints.get("title")
    if isinstance(title, str) and title:
        kept["title"] = _shorten(title, _MAX_TITLE)
    return kept


def _shorten(text: str, most: int) -> str:
    """Return at most so many characters; lone surrogates, which no JSON can hold, are replaced."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return cut.encode("utf-8", "replace").decode()
