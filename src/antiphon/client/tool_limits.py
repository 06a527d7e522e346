"""May these tools be sent?

Function tools are checked by the rules that servers have: the name, the description, and a
schema of arguments that is plain JSON Schema 2020-12 (which is OpenAPI 3.1's) with an object at
its top and no reference out of itself. All tools count, in number and in bytes of JSON. Near a
cap there is one DEBUG line; above it nothing is sent. Tools in the shape of chat completions
are made flat first; there `strict` is off unless it is asked for, and stays so.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.client.errors import BadCall, BadTool, TooManyTools
from antiphon.protocol.tools import Tool
from antiphon.wires.chat.flat import flat_tool

__all__ = ["ToolLimits", "prepare_tools"]

_log: Final = logging.getLogger("antiphon.client")

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+")
_REFERENCES: Final = ("$ref", "$dynamicRef")
# Where a schema holds schemas; anything else in it is data, even if it looks like one.
_ONE: Final = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_MANY: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED: Final = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


class ToolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many tools, how large, and how they may be described. None is no limit."""

    max_count: int | None = 16
    max_size: int | None = 32 * 1024
    """Bytes of JSON, all tools together."""
    soft: float = 0.8
    """The part of a cap above which a DEBUG line reports it."""
    max_name: int | None = 90
    max_description: int | None = 256


def prepare_tools(tools: Sequence[Mapping[str, Any]], limits: ToolLimits) -> list[Tool]:
    """Return tools of plain JSON as they go on the wire. Raise BadTool or TooManyTools instead."""
    if isinstance(tools, str | Mapping) or not isinstance(tools, Sequence):
        raise BadCall("tools must be a list", param="tools")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping) or not isinstance(tool.get("type"), str):
            raise BadTool(f"tools[{index}]", "it must be a dict with a type")
    flat = [flat_tool(tool) for tool in tools]
    # Counted first: nobody looks into a thousand schemas that will not be sent.
    _check_amount(len(flat), len(msgspec.json.encode(flat)), limits)
    seen: set[str] = set()
    for tool in flat:
        if tool["type"] == "function":
            _check_function(tool, limits)
            if tool["name"] in seen:
                raise BadTool(tool["name"], "there are two functions of this name")
            seen.add(tool["name"])
    return flat


def _check_amount(count: int, size: int, limits: ToolLimits) -> None:
    max_count = math.inf if limits.max_count is None else limits.max_count
    max_size = math.inf if limits.max_size is None else limits.max_size
    if count > max_count or size > max_size:
        raise TooManyTools(
            count=count, size=size, max_count=limits.max_count, max_size=limits.max_size
        )
    if count > limits.soft * max_count or size > limits.soft * max_size:
        _log.debug(
            "tools near their limit: %d of %s tools, %d of %s bytes of JSON",
            count,
            max_count,
            size,
            max_size,
        )


def _check_function(tool: Tool, limits: ToolLimits) -> None:
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadTool(str(name), "a name is made of letters, digits, _ and -")
    if limits.max_name is not None and len(name) > limits.max_name:
        raise BadTool(name, f"its name has {len(name)} characters; at most {limits.max_name}")
    description = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise BadTool(name, "its description must be a string")
    if limits.max_description is not None and len(description or "") > limits.max_description:
        raise BadTool(
            name,
            f"its description has {len(description or '')} characters; at most "
            f"{limits.max_description}",
        )
    if not isinstance(tool.get("strict"), bool | None):
        raise BadTool(name, "strict must be true or false")
    if tool.get("parameters") is not None:
        _check_schema(name, tool["parameters"])


def _check_schema(name: str, schema: Any) -> None:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise BadTool(name, 'its parameters must be a JSON Schema with "type": "object" at the top')
    _check_keywords(name, schema)
    for reference in _references(schema):
        if not _is_local(reference, schema):
            raise BadTool(name, f"its parameters refer to {reference[:80]!r}, which is not in them")


def _check_keywords(name: str, schema: Mapping[str, Any]) -> None:
    """Hold a schema against the schema of schemas."""
    # Imported here, because it takes as long as all the rest and most calls have no tools.
    import jsonschema_rs

    # Without its $schema: an address that the library does not know would be fetched.
    bare = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    try:
        jsonschema_rs.meta.validate(bare)
    except jsonschema_rs.ValidationError as error:
        path = ".".join(str(step) for step in ("parameters", *error.instance_path))
        raise BadTool(name, f"{path} is not what JSON Schema 2020-12 has there") from None
    except ValueError as error:
        raise BadTool(name, f"its parameters are no JSON Schema: {error}") from None


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reference of a schema that has passed `_check_keywords`."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, Mapping):
            continue
        yield from (node[keyword] for keyword in _REFERENCES if keyword in node)
        waiting += [node[keyword] for keyword in _ONE if keyword in node]
        for keyword in _MANY:
            waiting += node.get(keyword, ())
        for keyword in _NAMED:
            waiting += node.get(keyword, {}).values()


def _is_local(reference: str, schema: Mapping[str, Any]) -> bool:
    """Say whether a reference stays in its schema, and a pointer leads somewhere."""
    if not reference.startswith("#/"):
        return reference.startswith("#")
    node: Any = schema
    for step in reference[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and key in node:
            node = node[key]
        elif isinstance(node, Sequence) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return False
    return isinstance(node, Mapping | bool)
