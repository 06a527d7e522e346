"""The JSON of a request body, of which only what is new is decoded.

A body is read with suspicion (`protocol.checked_json`): what was sent to some server to make it
stall, crash or disagree with the next one in line is refused. An agent sends its tools and most of
its context again with each request. These parts are found by their bytes, were checked when they
were first read, and are put into the value of the rest, which is read as any other text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from antiphon.protocol.checked_json import (
    MAX_DEPTH,
    MAX_NODES,
    check_count,
    read_checked,
    too_deep,
    too_many,
)
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.kept_inputs import (
    PIECE_OF_ITEMS,
    SHORTEST_BODY,
    InputList,
    Kept,
    OwnInputs,
    Piece,
    wide_of,
)
from antiphon.protocol.tool_list import LONGEST, SHORTEST, KeptLists, ToolList

__all__ = ["decode_body"]

# How much of a long part is searched for first, and how often.
_PROBE: Final = 64
_PROBES: Final = 8

_open_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_open_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
# A string that ends in the first half of a surrogate pair, and then the end of the text.
_TAIL: Final = 64
_HALF_AT_END: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89abAB][0-9a-fA-F]{2}\"[\s\]}]*\Z")
_TOOLS: Final = b'"tools"'
_kept_lists: Final = KeptLists()


def decode_body(data: bytes, inputs: OwnInputs | None = None) -> object:
    """Return the value of a JSON text. Raise InvalidRequest if it is malformed or a bomb.

    A long `input` that begins as one of `inputs` becomes an `InputList`, and is kept there.
    """
    try:
        if inputs is not None and len(data) >= SHORTEST_BODY:
            return _read_long(data, inputs)
        check_count(data)
        return _read_body(data)[0]
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason = _why_malformed(data, error)
        raise InvalidRequest(f"the body is not valid {reason}", code="invalid_json") from None


def _read_body(data: bytes) -> tuple[Any, int]:
    """Return the value of a body, and how many are in it. Raise as `read_checked`."""
    found = _decode_with_kept_tools(data) if len(data) > SHORTEST else None
    return read_checked(data) if found is None else found


def _read_long(data: bytes, inputs: OwnInputs) -> Any:  # any JSON value
    """Return the value of a body whose input may begin as one that is kept.

    Raise as `read_checked`.
    """
    rest, start, known = _without_known_items(data, inputs)
    check_count(rest)
    found = _read_with_input(rest, start, known)
    if found is None:
        if known.pieces:
            check_count(data)
        return _read_body(data)[0]
    value, kept = found
    inputs.put(kept, known)
    return value


def _read_with_input(data: bytes, start: int, known: Kept) -> tuple[dict[str, Any], Kept] | None:
    """Return the value of a body behind the `known` items of its input, and what is to be kept.

    The input begins at `start`, if that is known. None if the body has no long input, or is
    malformed: then it must be decoded as a whole.
    """
    try:
        text = bytes(_open_object(data).get("input", b""))
        if start < 0 and text.startswith(b"[") and len(text) > PIECE_OF_ITEMS:
            start = _find_long(text, data)
        if start < 0 or not data.startswith(text, start):
            return None
        cut = list(_cut(text))
        if not (cut or known.pieces):
            return None
        value, nodes = _read_body(_with_null(data, start, len(text)))
        items = _Items(known.nodes + nodes)
        kept = _read_pieces(cut, known, items)
        tail, _ = items.read(text[1 + kept.size - known.size : -1])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Not null: the same text stands elsewhere too. An empty tail: a comma stands before the end.
    if value["input"] is not None or not items.are_objects or not tail:
        return None
    if items.nodes > MAX_NODES:
        raise too_many()
    value["input"] = InputList(kept.thread.with_tail(tail))
    return value, kept


def _read_pieces(cut: list[tuple[bytes, int]], known: Kept, items: _Items) -> Kept:
    """Return the known items with those of further pieces."""
    pieces: list[Piece] = []
    found: list[Any] = []
    for text, count in cut:
        values, nodes = items.read(text.rstrip(b", "))
        pieces.append(Piece(text, count, nodes, wide_of(text)))
        found += values
    return known.grow(pieces, found)


def _without_known_items(data: bytes, inputs: OwnInputs) -> tuple[bytes, int, Kept]:
    """Return a body without the first items of its input, if they are known, and these items.

    In between is where the input begins, -1 if nothing of it is known.
    """
    found = inputs.find(data)
    if found is None or not _is_own("input", data, found[0] - 1):
        return data, -1, Kept()
    start, known = found
    view = memoryview(data)
    return b"".join((view[:start], view[start + known.size :])), start - 1, known


def _is_own(name: str, data: bytes, start: int) -> bool:
    """Return whether the value at this place is the body's own of this name.

    Then what stands before it is an object that could end there.
    """
    try:
        before = _open_object(data[:start] + b"null}")
    except (msgspec.DecodeError, RecursionError):
        return False
    return next(reversed(before), None) == name


class _Items:
    """Reads items of an input, some at a time, and counts what is in them."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.are_objects = True

    def read(self, text: bytes) -> tuple[list[Any], int]:
        """Return the items with commas between them, and how many values they are.

        Raise as `read_checked`.
        """
        values, nodes = read_checked(b"[%b]" % text, MAX_DEPTH - 1)
        self.nodes += nodes - 1
        self.are_objects = self.are_objects and all(type(value) is dict for value in values)
        return values, nodes - 1


def _cut(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the pieces of a list of items, each with a comma behind it, and their numbers of items.

    The last item is in none. Nor is what comes after a piece that was not written by an encoder.
    """
    raws = _open_list(text)
    if not raws:
        return
    after = 1 + len(memoryview(raws[0]))
    comma = b", " if text.startswith(b", ", after) else b","
    begin, size, place = 0, 0, 1
    for end, raw in enumerate(raws[:-1], 1):
        size += len(memoryview(raw))
        if size < PIECE_OF_ITEMS:
            continue
        piece = comma.join([*raws[begin:end], b""])
        if not text.startswith(piece, place):
            return
        yield piece, end - begin
        begin, size, place = end, 0, place + len(piece)


def _decode_with_kept_tools(data: bytes) -> tuple[dict[str, Any], int] | None:
    """Return the value of a body whose list of tools is kept apart, by its text.

    Return also how many values are in it.

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
        value, nodes = read_checked(_with_null(data, start, len(tools)))
        if value["tools"] is not None:  # the same text stands elsewhere too
            return None
        kept = _kept_lists.read(tools, _read_tools)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return _with_tools(value, nodes, kept)


def _decode_around(data: bytes, start: int) -> tuple[dict[str, Any], int] | None:
    """Return the value of a body whose list of tools begins at `start` and was read before.

    None if no such list is kept, or if it is not the body's own.
    """
    found = _kept_lists.find(data, start)
    if found is None or not _is_own("tools", data, start):
        return None
    text, kept = found
    value, nodes = read_checked(_with_null(data, start, len(text)))
    return _with_tools(value, nodes, kept)


def _with_null(data: bytes, start: int, length: int) -> bytes:
    """Return a body with null instead of a part of it, put together in one step."""
    view = memoryview(data)
    return b"".join((view[:start], b"null", view[start + length :]))


def _with_tools(value: dict[str, Any], nodes: int, tools: ToolList) -> tuple[dict[str, Any], int]:
    nodes += tools.nodes
    if nodes > MAX_NODES:
        raise too_many()
    value["tools"] = tools
    return value, nodes


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
    return ToolList(*read_checked(data, MAX_DEPTH - 1))


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
