"""Where one frame of an SSE stream ends and the next begins.

Bytes come in split anywhere; frames come out as the SSE standard reads them. Lines end with
CR, LF or CRLF and nothing else, so U+2028 and its kin stay inside the text. A frame without
data is not one. Bytes that are no UTF-8 become U+FFFD, as the standard says; the data stays
bytes, because JSON decoders want bytes. Two liberties: the last frame may lack its blank
line, and an event larger than `max_line` is a fault. `id` and `retry` are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from antiphon.protocol.errors import BrokenStream

__all__ = ["MAX_LINE", "Frame", "SseDecoder", "read_data", "read_frames"]

MAX_LINE: Final = 8 * 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b"\n\n"
_DATA: Final = b"data: "
_CRLF: Final = b"\r\n"
# A number is found in bytes at half the cost of bytes in bytes.
_CR_BYTE: Final = 0x0D
_LF_BYTE: Final = 0x0A
_CRLF_BLANK: Final = b"\r\n\r\n"
_CRLF_NEXT: Final = _CRLF_BLANK + _DATA
_UNNAMED: Final = "message"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event of the stream: its name, and its data as UTF-8."""

    event: str
    data: bytes


class SseDecoder:
    """Bytes to frames, with at most `max_line` bytes of an unfinished event in memory.

    The limit holds for a whole event, and so for each of its lines. A decoder that has
    raised BrokenStream is spent.
    """

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._pending = bytearray()
        self._bom = _BOM
        self._ended_in_cr = False
        self.is_between = False
        """Nothing is left of what came before, so that whole events can be taken as they are."""

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete. Raise BrokenStream on one too large."""
        return read_frames(self.feed_lines(data))

    def feed_lines(self, data: bytes) -> bytes:
        """Return the lines of all events that these bytes complete, with LF for every line end."""
        if self.is_between and len(data) <= self._max_line:
            if data.endswith(_BLANK) and _CR_BYTE not in data:
                return _as_utf8(data[: -len(_BLANK)])
            if data.endswith(_CRLF_BLANK):
                events = data[: -len(_CRLF_BLANK)]
                if _CR_BYTE not in events or _CR_BYTE not in (
                    events := events.replace(_CRLF, b"\n")
                ):
                    return _as_utf8(events)
        searched = max(len(self._pending) - 1, 0)
        self._pending += self._with_plain_ends(data)
        end = self._pending.rfind(_BLANK, searched)
        lines = b"" if end < 0 else self._take(end)
        self._check_size(self._pending)
        self.is_between = not (self._pending or self._bom or self._ended_in_cr)
        return lines

    def feed_data(self, data: bytes) -> list[bytes]:
        """Return the data of all events that these bytes complete, unless it is empty.

        Events of one line with CRLF, the usual case of those who call this, are only cut apart.
        """
        is_usual = self.is_between and data[:6] == _DATA and data.endswith(_CRLF_BLANK)
        if is_usual and len(data) <= self._max_line and data.isascii():
            lines = data[6:-4]
            if _LF_BYTE not in lines and _CR_BYTE not in lines:
                return [lines] if lines else []
            events = lines.split(_CRLF_NEXT)
            # As many line ends as are between the events: none is inside of one.
            if lines.count(_LF_BYTE) == lines.count(_CR_BYTE) == 2 * (len(events) - 1):
                return [event for event in events if event]
        return read_data(self.feed_lines(data))

    def end(self) -> list[Frame]:
        """Return the last frame, if the stream ended without the blank line after it."""
        return read_frames(self._take(len(self._pending)))

    def _with_plain_ends(self, data: bytes) -> bytes:
        """Return the data with LF for every line end; a CRLF may be split between two feeds."""
        if self._ended_in_cr and data:
            data = data.removeprefix(b"\n")
            self._ended_in_cr = False
        if _CR_BYTE not in data:
            return data
        self._ended_in_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, end: int) -> bytes:
        with memoryview(self._pending) as pending:
            text = bytes(pending[:end])
        del self._pending[: end + len(_BLANK)]
        self._check_size(text)
        text = _as_utf8(text).removeprefix(self._bom)
        self._bom = b""
        return text

    def _check_size(self, text: bytes | bytearray) -> None:
        if len(text) <= self._max_line:
            return
        if any(len(block.strip(b"\n")) > self._max_line for block in text.split(_BLANK)):
            self._pending.clear()
            raise BrokenStream(
                f"an event of the stream is longer than {self._max_line} bytes",
                code="line_too_long",
            )


def _as_utf8(text: bytes) -> bytes:
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def read_frames(text: bytes) -> list[Frame]:
    """Return the frames of whole events, whose lines end with LF."""
    return [frame for block in text.split(_BLANK) if (frame := _read_block(block)) is not None]


def read_data(text: bytes) -> list[bytes]:
    """Return the data of whole events, unless it is empty.

    Nearly all events are a line with their name and one with their data, or the latter alone.
    """
    if text[:6] == b"data: ":
        if _LF_BYTE not in text:
            return [text[6:]] if len(text) > 6 else []
        blocks = text[6:].split(b"\n\ndata: ")
        if text.count(b"\n") == 2 * (len(blocks) - 1):
            return [data for data in blocks if data]
    lines = text.split(b"\n")
    names, data, blanks = lines[0::3], lines[1::3], lines[2::3]
    is_plain = (
        len(names) == len(data) == len(blanks) + 1
        and not any(blanks)
        and {line[:7] for line in names} == {b"event: "}
        and {line[:6] for line in data} == {b"data: "}
    )
    if not is_plain:
        return [frame.data for frame in read_frames(text) if frame.data]
    return [line[6:] for line in data if len(line) > 6]


def _read_block(block: bytes) -> Frame | None:
    """Return the frame that the lines of one event make, or None if they hold no data.

    Nearly every event is one of two shapes, and those are read without a loop.
    """
    if block[:6] == _DATA and _LF_BYTE not in block:
        return Frame(_UNNAMED, block[6:])
    lines = block.split(b"\n", 2)
    if len(lines) == 2 and lines[0][:7] == b"event: " and lines[1][:6] == b"data: ":
        return Frame(lines[0][7:].decode() or _UNNAMED, lines[1][6:])
    return _read_lines(block)


def _read_lines(block: bytes) -> Frame | None:
    name, data, has_data = b"", bytearray(), False
    for line in _lines(block):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value
        elif field == b"data":
            data += b"\n" + value if has_data else value
            has_data = True
    return Frame(name.decode() or _UNNAMED, bytes(data)) if has_data else None


def _lines(block: bytes) -> Iterator[bytes]:
    """Yield line after line: a list of them all could be ten times as large as the block."""
    start = 0
    while (end := block.find(b"\n", start)) >= 0:
        yield block[start:end]
        start = end + 1
    yield block[start:]
