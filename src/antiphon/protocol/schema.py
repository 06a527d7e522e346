"""How heavy is a caller's JSON Schema, and how heavy can checking with it become?

A schema of a few kilobytes can unfold to a thousand million, by definitions that each name the
next one twice, or take a time that doubles with each level of what it is held against. So it is
weighed with its references unfolded before anybody compiles it. Only plain pointers into the
schema itself are followed; whoever checks with a schema must not follow others either.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from antiphon.protocol.errors import invalid

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_WEIGHT", "SchemaScale", "check_schema"]

MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 10
MAX_WEIGHT: Final = 20_000
_MAX_REFS: Final = 256
_MAX_KNOWN_BYTES: Final = 4 * 1024
_HOLDERS: Final = (dict, list)

_Flaw = Literal["deep", "heavy"] | None


def check_schema(schema: dict[str, Any] | None, param: str) -> None:
    """Raise InvalidRequest for a schema that costs more than any real one."""
    if schema is None:
        return
    written = msgspec.json.encode(schema)
    if len(written) > MAX_BYTES:
        raise invalid(param, f"is larger than {MAX_BYTES // 1024} KiB", "schema_too_large")
    flaw = _known_flaw(written) if len(written) <= _MAX_KNOWN_BYTES else _flaw(schema)
    if flaw == "deep":
        raise invalid(param, f"is nested deeper than {MAX_DEPTH} levels", "schema_too_deep")
    if flaw == "heavy":
        why = f"refers to itself too often: over {MAX_WEIGHT} values when unfolded"
        raise invalid(param, why, "schema_too_large")


def _flaw(schema: dict[str, Any]) -> _Flaw:
    if _depth(schema) > MAX_DEPTH:
        return "deep"
    return "heavy" if SchemaScale(schema).weight > MAX_WEIGHT else None


# The same tools come with every request of a conversation; these take 4 MiB at most.
@lru_cache(maxsize=1024)
def _known_flaw(written: bytes) -> _Flaw:
    return _flaw(msgspec.json.decode(written))


class SchemaScale:
    """Weighs one schema.

    `weight` counts its JSON values with every reference unfolded, capped a little above the
    limit; a reference to itself counts once. `loops` counts those references: each may double
    the work with every level of the value that is checked.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._weights: dict[str, int] = {}
        self._unfolding: set[str] = set()
        self.loops = 0
        self.weight = self._weigh(root)

    def _weigh(self, node: object) -> int:
        if isinstance(node, list):
            return self._cap(1 + self._weigh_all(node))
        if not isinstance(node, dict):
            return 1
        total = 1 + self._weigh_all(child for name, child in node.items() if name != "$defs")
        ref = node.get("$ref")
        if isinstance(ref, str) and ref.startswith("#"):
            total += self._weigh_ref(ref)
        return self._cap(total)

    def _weigh_all(self, nodes: Iterable[object]) -> int:
        return sum(self._weigh(node) if isinstance(node, _HOLDERS) else 1 for node in nodes)

    def _weigh_ref(self, ref: str) -> int:
        if ref in self._unfolding:
            self.loops += 1
            return 1
        if ref not in self._weights:
            if len(self._weights) >= _MAX_REFS:
                return MAX_WEIGHT + 1
            self._weights[ref] = 1
            self._unfolding.add(ref)
            self._weights[ref] = self._weigh(self._resolve(ref))
            self._unfolding.discard(ref)
        return self._weights[ref]

    def _resolve(self, ref: str) -> object:
        node: object = self._root
        for step in ref.split("/")[1:]:
            if isinstance(node, dict):
                node = node.get(step)
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node

    def _cap(self, weight: int) -> int:
        return min(weight, MAX_WEIGHT + 1)


def _depth(schema: dict[str, Any]) -> int:
    """Return how many schemas stand inside each other; a level may take two JSON objects."""
    depth = 0
    level: list[Any] = [schema]
    while level:
        depth += 1
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, _HOLDERS)
        ]
    return (depth + 1) // 2
