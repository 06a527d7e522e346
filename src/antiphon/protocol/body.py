"""The JSON of a request body, decoded with suspicion.

A body is refused when it is nested too deep, has too many values, names a field twice, holds
a number that is no JSON number or not 64 bits, or half a surrogate pair. Each of these was
sent to some server to make it stall, crash or disagree with the next one in line.

Large bodies are decoded beside the event loop. That helps only if no single call of C code takes
long, since it keeps the interpreter to itself until its end: so they are decoded in pieces, too
many values are refused before they are made, and long strings are searched, not matched.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.pieces import PIECE, PieceDecoder, count_byte
from antiphon.protocol.tool_list import LONGEST, SHORTEST, KeptLists, ToolList

__all__ = ["MAX_DEPTH", "MAX_ESCAPES", "MAX_NODES", "decode_body"]

MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
MAX_ESCAPES: Final = 4 * 1024 * 1024
"""Escapes in one text: they are what takes longest to decode."""
_INT_LIMIT: Final = 2**63
# How much of a long part is searched for first, and how often.
_PROBE: Final = 64
_PROBES: Final = 8

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_open_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# Every string of a valid text, and whether a colon makes it a name. Each character can match in
# one way only, so the time is linear. No possessive quantifiers: `re` in early releases of Python
# 3.11 matches them wrongly over groups (https://github.com/python/cpython/issues/106052).
_STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"\s*(:?)', re.DOTALL)
# A string that ends in the first half of a surrogate pair, and then the end of the text.
_TAIL: Final = 64
_HALF_AT_END: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}\"[\s\]}]*\Z")
_COLON: Final = re.compile(rb"\s*:")
# A name without escapes, up to its value; and what comes after a value.
_NAME: Final = re.compile(rb'\s*("[^"\\]*")\s*:\s*')
_NEXT: Final = re.compile(rb"\s*([,}])")
_LONGEST_NAME: Final = 1024
_BACKSLASH: Final = ord("\\")
_TOOLS: Final = b'"tools"'
_kept_lists: Final = KeptLists()
# What has nothing inside and no range.
_SIMPLE: Final = frozenset({str, bool, float, type(None)})


def decode_body(data: bytes) -> object:
    """Return the value of a JSON text. Raise InvalidRequest if it is malformed or a bomb."""
    _check_count(data)
    try:
        if len(data) > PIECE:
            return _Large(data).read()
        value = _decode_with_kept_tools(data) if len(data) > SHORTEST else None
        return _decode_short(data)[0] if value is None else value
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = _why_malformed(data, error)
        raise InvalidRequest(f"the body is not valid {reason}", code="invalid_json") from None


def _decode_short(data: bytes, depth: int = MAX_DEPTH) -> tuple[Any, int]:
    """Return the value of a text that is not long, and how many values are in it."""
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


def _decode_with_kept_tools(data: bytes) -> dict[str, Any] | None:
    """Return the value of a body whose list of tools is kept apart, by its text.

    None if it has no such list, or is malformed: then it must be decoded as a whole.
    """
    place = data.find(_TOOLS)
    if place < 0:
        return None
    try:
        known = _decode_around(data, place + len(_TOOLS) + 1)
        if known is not None:
            return known
        tools = bytes(_open_object(data).get("tools", b""))
        if not SHORTEST <= len(tools) <= LONGEST or not tools.startswith(b"["):
            return None
        start = _find_long(tools, data)
        value, nodes = _decode_short(data[:start] + b"null" + data[start + len(tools) :])
        if value["tools"] is not None:  # the same text stands elsewhere too
            return None
        kept = _kept_lists.read(tools, _read_tools)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _with_tools(value, nodes, kept)


def _decode_around(data: bytes, start: int) -> dict[str, Any] | None:
    """Return the value of a body whose list of tools begins at `start` and was read before.

    None if no such list is kept, or if this one may belong to another field. It belongs to the
    body if the rest names `tools` once, has such a field, and is encoded to the same bytes: then
    the name is not written in another way elsewhere, and no field is named twice.
    """
    found = _kept_lists.find(data, start)
    if found is None:
        return None
    text, kept = found
    rest = data[:start] + b"null" + data[start + len(text) :]
    value = _decode(rest)
    if not isinstance(value, dict) or value.get("tools", kept) is not None:
        return None
    if rest.count(_TOOLS) != 1 or _encode(value) != rest:
        return None
    return _with_tools(value, _count_names(value)[1], kept)


def _with_tools(value: dict[str, Any], nodes: int, tools: ToolList) -> dict[str, Any]:
    if nodes + tools.nodes > MAX_NODES:
        raise _too_many()
    value["tools"] = tools
    return value


def _find_long(part: bytes, data: bytes) -> int:
    """Return where a long part of the data first stands, by its beginning.

    To find it as a whole takes ten times as long: that first prepares for any data.
    """
    start = data.find(part[:_PROBE])
    for _ in range(_PROBES):
        if data.startswith(part, start):
            return start
        start = data.find(part[:_PROBE], start + 1)
    return data.find(part)  # the beginning stands in many places


def _read_tools(data: bytes) -> ToolList:
    """Decode a list of tools."""
    return ToolList(*_decode_short(data, MAX_DEPTH - 1))


def _why_malformed(data: bytes, error: Exception) -> str:
    """Return what a text is no valid piece of, and why, in words that help to find the place."""
    if isinstance(error, UnicodeDecodeError):
        try:
            data.decode()
        except UnicodeDecodeError as whole:  # `error` counts from the beginning of one string
            return f"UTF-8: byte 0x{data[whole.start]:02x} at position {whole.start}"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-8: it begins with the byte order mark of UTF-16"
    if data.startswith(codecs.BOM_UTF8):
        return "JSON: it begins with a byte order mark; leave that out"
    if _HALF_AT_END.search(data[-_TAIL:]):
        # msgspec looks for the other half beyond the end, and calls the text truncated.
        return "JSON: the last string ends in half a surrogate pair, such as half an emoji"
    return f"JSON: {error}"


class _Large(PieceDecoder):
    """Decodes a long text in pieces, and counts what is in it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._names = 0
        self._nodes = 0
        self._is_as_written = True

    def read(self) -> object:
        """Return the value. Raise as `decode_body`, or what msgspec raises."""
        value = self.decode(self._data, MAX_DEPTH)
        if not self._is_as_written and self._names != _count_written_names(self._data):
            raise _named_twice()
        return value

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
            raise _too_many()


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


def _check_count(data: bytes) -> None:
    """Refuse too many values unread: ten million empty lists take seconds and a gigabyte."""
    if len(data) < MAX_NODES:
        return
    if (
        count_byte(data, b",") < MAX_NODES
        and count_byte(data, b"[") + count_byte(data, b"{") < MAX_NODES
    ):
        return
    commas = containers = end = 0
    for start, stop in chain(_strings(data), [(len(data), len(data))]):
        commas += data.count(b",", end, start)
        containers += data.count(b"[", end, start) + data.count(b"{", end, start)
        end = stop
        if commas >= MAX_NODES or containers > MAX_NODES:
            raise _too_many()


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
            raise _too_many()
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
    raise _too_deep()


def _named_twice() -> InvalidRequest:
    return InvalidRequest("the body names a field twice", code="duplicate_field")


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"the body is nested deeper than {MAX_DEPTH} levels", code="too_deep")


def _too_many() -> InvalidRequest:
    return InvalidRequest(f"the body holds more than {MAX_NODES} values", code="too_many_values")
