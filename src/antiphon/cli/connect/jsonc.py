"""Where in a JSON file with comments does each value stand?

Reads what editors keep their settings in: JSON, comments of both kinds, commas before a closing
bracket. What comes out is a tree with offsets into the text, so that a change can leave every
other byte alone. It writes nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

__all__ = ["Node", "NotJson", "read_jsonc", "skip_space"]

_MAX_DEPTH: Final = 100
_SPACE: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD: Final = re.compile(r"[-+.\w]+", re.ASCII)


class NotJson(ValueError):
    """The text cannot be read; the message has the line and the reason."""


class Node(msgspec.Struct, frozen=True):
    """A value, and where it stands. `children` are a list's values, or an object's by key."""

    start: int
    end: int
    value: Any
    children: tuple[tuple[str | None, int, Node], ...] = ()
    """Key (None in a list), where the key or the value begins, and the value."""

    def child(self, key: str) -> Node | None:
        """Return the value of a key of an object."""
        return next((node for name, _, node in self.children if name == key), None)


def read_jsonc(text: str) -> Node | None:
    """Return the tree of a text; None if it holds nothing but space and comments."""
    start = skip_space(text, 0)
    if start == len(text):
        return None
    node = _read(text, start, 0)
    end = skip_space(text, node.end)
    if end != len(text):
        raise _wrong(text, end, "there is text after the end")
    return node


def skip_space(text: str, at: int) -> int:
    """Return where the next thing stands that is neither space nor comment."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _wrong(text: str, at: int, what: str) -> NotJson:
    return NotJson(f"line {text.count(chr(10), 0, at) + 1}: {what}")


def _read(text: str, at: int, depth: int) -> Node:
    if depth > _MAX_DEPTH:
        raise _wrong(text, at, "it is nested too deeply")
    match text[at : at + 1]:
        case "{":
            return _read_object(text, at, depth)
        case "[":
            return _read_list(text, at, depth)
        case '"':
            return _read_token(_STRING, text, at)
    return _read_token(_WORD, text, at)


def _read_token(pattern: re.Pattern[str], text: str, at: int) -> Node:
    match = pattern.match(text, at)
    try:
        value = json.loads(match.group()) if match else None
    except ValueError:
        match = None
    if match is None:
        raise _wrong(text, at, "a value is missing or broken")
    return Node(at, match.end(), value)


def _read_object(text: str, start: int, depth: int) -> Node:
    value: dict[str, Any] = {}
    children: list[tuple[str | None, int, Node]] = []
    at = skip_space(text, start + 1)
    while text[at : at + 1] != "}":
        key = _read_token(_STRING, text, at)
        colon = skip_space(text, key.end)
        if text[colon : colon + 1] != ":":
            raise _wrong(text, colon, "a colon is missing")
        node = _read(text, skip_space(text, colon + 1), depth + 1)
        if key.value in value:
            raise _wrong(text, at, f"the key {key.value!r} is there twice")
        value[key.value] = node.value
        children.append((key.value, at, node))
        at = _next(text, node.end, "}")
    return Node(start, at + 1, value, tuple(children))


def _read_list(text: str, start: int, depth: int) -> Node:
    children: list[tuple[str | None, int, Node]] = []
    at = skip_space(text, start + 1)
    while text[at : at + 1] != "]":
        node = _read(text, at, depth + 1)
        children.append((None, at, node))
        at = _next(text, node.end, "]")
    return Node(start, at + 1, [node.value for _, _, node in children], tuple(children))


def _next(text: str, end: int, closing: str) -> int:
    """Return where the next child or the closing bracket stands."""
    at = skip_space(text, end)
    if text[at : at + 1] == ",":
        return skip_space(text, at + 1)
    if text[at : at + 1] != closing:
        raise _wrong(text, at, f"a comma or {closing} is missing")
    return at
