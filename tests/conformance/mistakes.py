"""Bodies with one mistake each: a field is left out, null, or of another kind.

The mistakes are made everywhere in a body, so that two judges can be compared on all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["mistakes"]

_Path = tuple[str | int, ...]
_REPLACEMENTS: Final[dict[str, Any]] = {  # Any: a JSON value
    "null": None,
    "a text": "odd",
    "a number": 7,
    "a negative number": -1,
    "a fraction": 1.5,
    "a truth value": True,
    "a list": [],
    "an object": {},
}


def mistakes(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield copies of a body with one mistake each, and the name of the mistake.

    The `type` of the body itself stays, because it chooses the schema to judge by.
    """
    for path in _paths(body, ()):
        if path == ("type",):
            continue
        place = ".".join(map(str, path))
        if isinstance(path[-1], str):
            yield f"{place} is missing", _changed(body, path)
        for name, value in _REPLACEMENTS.items():
            yield f"{place} is {name}", _changed(body, path, value)


def _paths(value: object, path: _Path) -> Iterator[_Path]:
    members: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = list(enumerate(value))
    for key, member in members:
        yield (*path, key)
        yield from _paths(member, (*path, key))


def _changed(body: dict[str, Any], path: _Path, *replacement: object) -> dict[str, Any]:
    """Return a copy with another value in this place, or without it."""
    changed = copy.deepcopy(body)
    place: Any = changed  # Any: an object or a list, as the path leads
    for step in path[:-1]:
        place = place[step]
    if replacement:
        [place[path[-1]]] = replacement
    else:
        del place[path[-1]]
    return changed
