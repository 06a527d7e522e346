"""Long JSON, decoded and encoded in pieces.

One call of C code keeps the interpreter to itself until it returns, also in a thread: then the
event loop stands still. So what takes long is cut: a list into steps, an object into its fields,
and a string into pieces of a few hundred kilobytes. The values and the bytes are the same as
those that `msgspec` makes in one call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

__all__ = [
    "PIECE",
    "PieceDecoder",
    "count_byte",
    "encode_each",
    "encode_long",
    "encode_texts",
    "text_size",
]

PIECE: Final = 256 * 1024
"""What is shorter is decoded or encoded in one call, which takes about half a millisecond."""

_decode = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_open_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_open_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_BLANK: Final = b" \t\r\n"
_QUOTE: Final = ord('"')
# Where a string may be cut: before an escape that is not the second half of a surrogate pair, or
# before a character that neither belongs to an escape nor continues another one.
_CUT: Final = re.compile(
    rb"(?<!\\)\\(?!u[dD][c-fC-F])|(?<=[^\\][^\\][^\\][^\\][^\\][^\\])[\x00-\x7f\xc0-\xff]"
)
# Only text without such a place, like a long row of backslashes, is searched so far.
_CUT_WITHIN: Final = 4096
# So many objects are looked at together.
_AT_ONCE: Final = 64
_TEXT: Final = frozenset({str})


class PieceDecoder:
    """Decodes a long text. Raises what `msgspec` raises, also for what is nested too deep."""

    def decode(self, data: bytes, depth: int) -> object:
        """Return the value, in which values may be nested so deep."""
        return self._value(memoryview(data.strip(_BLANK)), depth)

    def _value(self, raw: memoryview, depth: int) -> object:
        if len(raw) <= PIECE:
            return self._short(bytes(raw), depth)
        if depth < 1:
            raise RecursionError
        match chr(raw[0]):
            case "{":
                fields = _open_object(raw)
                self._note_object(raw, fields)
                return {
                    name: self._value(memoryview(value), depth - 1)
                    for name, value in fields.items()
                }
            case "[":
                self._note_container()
                return list(chain.from_iterable(self._steps(_open_list(raw), depth)))
            case '"' if raw[-1] == _QUOTE:
                self._note_text(raw)
                return "".join([_decode_text(piece) for piece in _text_pieces(raw)])
            case _:
                return self._short(bytes(raw), depth)

    def _steps(self, values: list[msgspec.Raw], depth: int) -> Iterator[Iterable[object]]:
        """Yield the values of a list, as many together as are not long."""
        for step in _steps(values):
            if len(step) == 1:
                yield [self._value(memoryview(step[0]), depth - 1)]
            else:
                yield self._short_list(b"[%b]" % b",".join(step), depth)

    def _short(self, data: bytes, depth: int) -> object:
        """Return a value that is not long."""
        return _decode(data)

    def _short_list(self, data: bytes, depth: int) -> list[object]:
        """Return some values of a list. The text is made for them, and not in the whole one."""
        values = self._short(data, depth)
        assert isinstance(values, list)
        return values

    def _note_object(self, raw: memoryview, fields: dict[str, msgspec.Raw]) -> None:
        """Take note of a long object, whose fields are decoded next."""
        self._note_container()

    def _note_container(self) -> None:
        """Take note of a long object or list."""

    def _note_text(self, raw: memoryview) -> None:
        """Take note of a long string, which is decoded next."""


def _steps(values: list[msgspec.Raw]) -> Iterator[list[msgspec.Raw]]:
    """Yield the values in lists that are not long, unless one value is."""
    step: list[msgspec.Raw] = []
    size = 0
    for raw in values:
        length = len(memoryview(raw))
        if step and size + length > PIECE:
            yield step
            step, size = [], 0
        step.append(raw)
        size += length
    if step:
        yield step


def _text_pieces(raw: memoryview) -> Iterator[bytes]:
    """Yield a long JSON string as several, which say the same one after the other."""
    begin, end = 1, len(raw) - 1
    while begin < end:
        cut = _CUT.search(raw, min(begin + PIECE, end), min(begin + PIECE + _CUT_WITHIN, end))
        stop = cut.start() if cut else end
        yield b'"' + raw[begin:stop] + b'"'
        begin = stop


def text_size(value: object) -> int:
    """Return how many characters the strings of a value of JSON have together, without names."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str):
        return len(value)
    elif not isinstance(value, list):
        return 0
    size = 0
    for inner in value:
        size += len(inner) if type(inner) is str else text_size(inner)  # most are strings
    return size


def encode_long(value: object) -> bytes:
    """Return a value of JSON as bytes; long strings in it are encoded in pieces."""
    if text_size(value) <= PIECE:
        return _encode(value)
    # Joined without holding the interpreter: that is what `join` does with long bytes.
    return b"".join(_value_pieces(value))


def encode_each(objects: Sequence[dict[str, Any]]) -> list[bytes]:
    """Return what `encode_long` makes of each object. Those of short texts take few steps."""
    encoded: list[bytes] = []
    for start in range(0, len(objects), _AT_ONCE):
        some = objects[start : start + _AT_ONCE]
        encoded += map(_encode if _are_short(some) else encode_long, some)
    return encoded


def encode_texts(texts: Sequence[str]) -> list[bytes]:
    """Return what `encode_long` makes of each text."""
    encoded: list[bytes] = []
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        encoded += map(_encode if sum(map(len, some)) <= PIECE else encode_long, some)
    return encoded


def _are_short(objects: Sequence[dict[str, Any]]) -> bool:
    """Return whether the objects hold text alone, and all of them together not much."""
    values = [*chain.from_iterable(map(dict.values, objects))]
    return _TEXT.issuperset(map(type, values)) and sum(map(len, values)) <= PIECE


def _value_pieces(value: object) -> Iterator[bytes]:
    if text_size(value) <= PIECE:
        yield _encode(value)
    elif isinstance(value, str):
        yield b'"'
        for start in range(0, len(value), PIECE):
            yield _encode(value[start : start + PIECE])[1:-1]
        yield b'"'
    elif isinstance(value, dict):
        mark = b"{"
        for name, inner in value.items():
            yield mark + _encode(name) + b":"
            yield from _value_pieces(inner)
            mark = b","
        yield b"}"
    elif isinstance(value, list):
        mark = b"["
        for inner in value:
            yield mark
            yield from _value_pieces(inner)
            mark = b","
        yield b"]"


def count_byte(data: bytes | memoryview, byte: bytes) -> int:
    """Return how often a byte is in the data; long data is counted in pieces."""
    starts = range(0, len(data), PIECE)
    if isinstance(data, bytes):
        return sum([data.count(byte, start, start + PIECE) for start in starts])
    return sum([bytes(data[start : start + PIECE]).count(byte) for start in starts])
