"""JSON that is read with suspicion, and what is in it counted.

A text is refused when it is nested too deep, has too many values, names a field twice, holds a
number that is no JSON number or not 64 bits, or half a surrogate pair.

Large texts are decoded beside the event loop. That helps only if no single call of C code takes
long, since it keeps the interpreter to itself until its end: so they are decoded in pieces, too
many values are refused before they are made, and long strings are searched, not matched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.pieces import PIECE, PieceDecoder, count_byte

__all__ = [
    "MAX_DEPTH",
    "MAX_ESCAPES",
    "MAX_NODES",
    "check_count",
    "read_checked",
    "too_deep",
    "too_many",
]

MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
MAX_ESCAPES: Final = 4 * 1024 * 1024
"""Escapes in one text: they are what takes longest to decode."""
_INT_LIMIT: Final = 2**63

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
# Every string of a valid text, and whether a colon makes it a name. Each character can match in
# one way only, so the time is linear. No possessive quantifiers: `re` in early releases of Python
# 3.11 matches them wrongly over groups (https://github.com/python/cpython/issues/106052).
_STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)', re.DOTALL)
_COLON: Final = re.compile(rb"\s*:")
# A name without escapes, up to its value; and what comes after a value.
_NAME: Final = re.compile(rb'\s*("[^"\\]*")\s*:\s*')
_NEXT: Final = re.compile(rb"\s*([,}])")
_LONGEST_NAME: Final = 1024
_BACKSLASH: Final = ord("\\")
# What has nothing inside and no range.
_SIMPLE: Final = frozenset({str, bool, float, type(None)})


def read_checked(data: bytes, depth: int = MAX_DEPTH) -> tuple[Any, int]:
    """Return the value of a text of any length, and how many values are in it.

    Raise InvalidRequest, or what msgspec raises.
    """
    if len(data) > PIECE:
        return _Large(data).read(depth)
    value = _decode(data)
    names, nodes = _count_names(value, depth)
    if not _is_as_written(value, data) and names != _count_written_names(data):
        raise _named_twice()
    return value, nodes


def _is_as_written(value: object, data: bytes) -> bool:
    """Return whether a text is written back as it came, but for blanks: it names nothing twice."""
    written = _encode(value)
    return written == data or (
        len(written) < len(data) and written == msgspec.json.format(data, indent=-1)
    )


class _Large(PieceDecoder):
    """Decodes a long text in pieces, and counts what is in it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._names = 0
        self._nodes = 0
        self._is_as_written = True

    def read(self, depth: int) -> tuple[Any, int]:
        """Return the value, and how many are in it. Raise as `read_checked`."""
        value = self.decode(self._data, depth)
        if not self._is_as_written and self._names != _count_written_names(self._data):
            raise _named_twice()
        return value, self._nodes

    def _short(self, data: bytes, depth: int) -> object:
        value = _decode(data)
        names, nodes = _count_names(value, depth)
        self._names += names
        self._add_nodes(nodes)
        self._is_as_written = self._is_as_written and _is_as_written(value, data)
        return value

    def _short_list(self, data: bytes, depth: int) -> list[object]:
        self._nodes -= 1
        return super()._short_list(data, depth)

    def _note_object(self, raw: memoryview, fields: dict[str, msgspec.Raw]) -> None:
        super()._note_object(raw, fields)
        self._names += len(fields)
        # With braces, commas and colons this is shorter than a text that names a field twice.
        pairs = ((_encode(name), memoryview(value)) for name, value in fields.items())
        written = sum(len(name) + len(value) + 2 for name, value in pairs) + 1
        self._is_as_written = self._is_as_written and (
            written == len(raw) or _has_fields_once(raw, fields)
        )

    def _note_container(self) -> None:
        self._add_nodes(1)

    def _note_text(self, raw: memoryview) -> None:
        self._add_nodes(1)
        if len(raw) > MAX_ESCAPES and count_byte(raw, b"\\") > MAX_ESCAPES:
            raise InvalidRequest(
                f"a text holds more than {MAX_ESCAPES} escapes", code="too_many_values"
            )

    def _add_nodes(self, count: int) -> None:
        self._nodes += count
        if self._nodes > MAX_NODES:
            raise too_many()


def _has_fields_once(raw: memoryview, fields: dict[str, msgspec.Raw]) -> bool:
    """Return whether a long object has these fields, each once; False also if that is unclear."""
    place, mark = 1, ","
    for name, value in fields.items():
        found = _NAME.match(raw, place, place + _LONGEST_NAME)
        if found is None or found[1] != _encode(name):
            return False
        text = memoryview(value)
        place = found.end() + len(text)
        after = _NEXT.match(raw, place, place + _LONGEST_NAME)
        if after is None or not _is_same(raw[found.end() : place], text):
            return False
        place, mark = after.end(), after[1].decode()
    return mark == "}" and place == len(raw)


def _is_same(one: memoryview, two: memoryview) -> bool:
    """Compare long texts of the same length, in pieces."""
    return all(
        bytes(one[start : start + PIECE]) == bytes(two[start : start + PIECE])
        for start in range(0, len(two), PIECE)
    )


def check_count(data: bytes) -> None:
    """Refuse too many values unread: ten million empty lists take seconds and a gigabyte.

    Lists and objects without a comma are as many as fit into a piece, or nested too deep.
    """
    if len(data) < MAX_NODES or count_byte(data, b",") < MAX_NODES:
        return
    commas = end = 0
    for start, stop in chain(_strings(data), [(len(data), len(data))]):
        commas += data.count(b",", end, start)
        end = stop
        if commas >= MAX_NODES:
            raise too_many()


def _count_written_names(data: bytes) -> int:
    """Return how many names stand in a valid JSON text, each as often as it is written."""
    if len(data) < PIECE:
        return _STRINGS.findall(data).count(b":")
    return sum(1 for _, end in _strings(data) if _COLON.match(data, end))


def _strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each string of a JSON text begins and ends; stop where one does not end."""
    start = data.find(b'"')
    while start >= 0:
        end = data.find(b'"', start + 1)
        while end >= 0 and _is_escaped(data, end):
            end = data.find(b'"', end + 1)
        if end < 0:
            return
        yield start, end + 1
        start = data.find(b'"', end + 1)


def _is_escaped(data: bytes, index: int) -> bool:
    first = index
    while data[first - 1] == _BACKSLASH:
        first -= 1
    return (index - first) % 2 == 1


def _count_names(value: object, depth: int = MAX_DEPTH) -> tuple[int, int]:
    """Return how many fields all objects have together, and values; check depth and numbers."""
    names = nodes = 0
    level: list[object] = [value]
    for _ in range(depth):
        nodes += len(level)
        if nodes > MAX_NODES:
            raise too_many()
        below: list[object] = []
        for node in level:
            if type(node) in _SIMPLE:
                continue
            if isinstance(node, dict):
                names += len(node)
                below.extend(node.values())
            elif isinstance(node, list):
                below.extend(node)
            elif isinstance(node, int) and not -_INT_LIMIT <= node < _INT_LIMIT:
                raise InvalidRequest("a number does not fit into 64 bits", code="invalid_value")
        if not below:
            return names, nodes
        level = below
    raise too_deep()


def _named_twice() -> InvalidRequest:
    return InvalidRequest("the body names a field twice", code="duplicate_field")


def too_deep() -> InvalidRequest:
    return InvalidRequest(f"the body is nested deeper than {MAX_DEPTH} levels", code="too_deep")


def too_many() -> InvalidRequest:
    return InvalidRequest(f"the body holds more than {MAX_NODES} values", code="too_many_values")
