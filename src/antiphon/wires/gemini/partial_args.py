"""Arguments of a call that come in pieces, each with the path of its value.

Vertex sends them like this if it is asked to, which we never do; a server between may. A path is
`$.items[0].name`; a string may come in several pieces, the next of which continues it. The call is
reported when it is whole: pieces of several paths are not a text that grows.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from antiphon.protocol.halves import join_all

__all__ = ["PartialCall"]

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]")
_MAX_DEPTH: Final = 100
_MAX_GAP: Final = 16
_EXACT: Final = 2.0**53  # a larger float stands for several whole numbers


class PartialCall:
    """A call whose arguments are being collected."""

    def __init__(self, name: str | None, call_id: str | None) -> None:
        self.name = name
        self.call_id = call_id
        self._root: dict[str, Any] = {}

    def add(self, pieces: list[dict[str, Any]]) -> int:
        """Take pieces of the arguments; return how many characters they had."""
        size = 0
        for piece in pieces:
            value = _value(piece)
            size += len(value) if isinstance(value, str) else 1
            self._put(_steps(str(piece.get("jsonPath") or "")), value)
        return size

    def arguments(self) -> str:
        """Return the arguments so far, as JSON."""
        return msgspec.json.encode(join_all(self._root)).decode()

    def _put(self, steps: list[str | int], value: object) -> None:
        place: Any = self._root
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            if following is None:
                _set(place, step, value)
            else:
                place = _inner(place, step, [] if isinstance(following, int) else {})


def _steps(path: str) -> list[str | int]:
    """Return the steps of a path. Raise ValueError if it is none."""
    text = path.removeprefix("$")
    text = text if text.startswith((".", "[")) else f".{text}"
    steps: list[str | int] = []
    end = 0
    for found in _STEP.finditer(text):
        if found.start() != end:
            break
        end = found.end()
        steps.append(int(found[2]) if found[2] is not None else found[1] or found[3])
    is_path = end == len(text) and 0 < len(steps) <= _MAX_DEPTH
    if not is_path or isinstance(steps[0], int):
        raise ValueError(f"{path[:100]} is no path of an argument")
    return steps


def _inner(place: Any, step: str | int, empty: Any) -> Any:
    """Return the container at this step, a new one if there is none."""
    found = _get(place, step)
    if not isinstance(found, dict | list):
        found = empty
        _set(place, step, found)
    return found


def _get(place: Any, step: str | int) -> Any:
    if isinstance(place, list):
        return place[step] if isinstance(step, int) and step < len(place) else None
    return place.get(step)


def _set(place: Any, step: str | int, value: object) -> None:
    old = _get(place, step)
    if isinstance(old, str) and isinstance(value, str):
        value = old + value
    if not isinstance(place, list):
        place[step] = value
        return
    if not isinstance(step, int) or step > len(place) + _MAX_GAP:
        raise ValueError(f"{step} is no place in a list")
    place.extend([None] * (step + 1 - len(place)))
    place[step] = value


def _value(piece: dict[str, Any]) -> object:
    for name in ("stringValue", "numberValue", "boolValue"):
        if name in piece:
            value = piece[name]
            is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
            return int(value) if is_whole else value
    return None
