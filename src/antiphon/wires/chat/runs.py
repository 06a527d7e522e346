"""Chunks that differ from the one before them in their text alone.

Most of an answer is the same chunk again and again, with other words in it. The bytes
before and after the text are known from the first chunk; of the following ones only the text is
decoded. This is exact, not a guess: the bytes around a JSON string decide what it is part of, so
a chunk that equals the last one except for that string has the same meaning. A chunk that
differs in any other byte is decoded as a whole by the caller.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from antiphon.wires.chat.chunks import Chunk, read_chunk, said_alone

__all__ = ["ChunkRun"]

_Spoken = Literal["text", "reasoning"]

_DATA: Final = b"data: "
_BLANK: Final = b"\n\n"
_CHANNELS: Final[dict[str, _Spoken]] = {
    "content": "text",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
}
_SAID: Final = {
    name: re.compile(rb'"%b": ?"((?:[^"\\]|\\.)*)"' % name.encode()) for name in _CHANNELS
}
_MAX_CHUNK: Final = 64 * 1024
# How many shapes in a row are looked for in vain: some servers put something new into each one.
_MAX_TRIES: Final = 4
_decode_text: Final = msgspec.json.Decoder(str).decode
_decode_texts: Final = msgspec.json.Decoder(list[str]).decode


class ChunkRun:
    """The shape of the last chunk, if it held a piece of text or of reasoning alone."""

    def __init__(self) -> None:
        self.channel: _Spoken = "text"
        self._last: tuple[bytes, Chunk] | None = None
        self._head = self._tail = self._end = self._between = b""
        # Where the text of a whole event is, with its quotes; None while no shape is known.
        self._quoted: slice | None = None
        self._tries = _MAX_TRIES

    def follow(self, data: bytes, chunk: Chunk) -> None:
        """Take note of a chunk that was read as a whole; its shape is seen when more come."""
        self._head, self._quoted = b"", None
        self._last = (data, chunk) if self._tries and len(data) <= _MAX_CHUNK else None

    def read(self, lines: bytes) -> list[str] | None:
        """Return the texts of the chunks of these SSE events, or None if one has another shape."""
        if self._last is not None and lines:  # none came if the next event is not whole yet
            self._learn(lines, *self._last)
        head = self._head
        if not head or not lines.startswith(head):
            return None
        try:
            texts = self._read_one(lines) if b"\n" not in lines else self._read_all(lines)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if texts is not None:
            self._tries = _MAX_TRIES
        return texts

    def read_one(self, event: bytes) -> str | None:
        """Return the text of a whole SSE event with one chunk, or None if it has another shape.

        What is between the known bytes is one JSON string, so no line ends in it.
        """
        quoted = self._quoted
        if quoted is None or not event.startswith(self._head) or not event.endswith(self._end):
            return None
        try:
            return _decode_text(event[quoted])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _read_one(self, line: bytes) -> list[str] | None:
        begin, end = len(self._head), len(line) - len(self._tail)
        if begin > end or not line.endswith(self._tail):
            return None
        return [_decode_text(b'"%b"' % line[begin:end])]

    def _read_all(self, lines: bytes) -> list[str] | None:
        begin, end = len(self._head), -len(self._tail)
        pieces = [event[begin:end] for event in lines.split(_BLANK)]
        if self._head + self._between.join(pieces) + self._tail != lines:
            return None
        # No string goes on over a line end, so each line has one or more; see that it is one.
        texts = _decode_texts(b'["' + b'",\n"'.join(pieces) + b'"]')
        return texts if len(texts) == len(pieces) else None

    def _learn(self, lines: bytes, data: bytes, chunk: Chunk) -> None:
        """See the shape of the last chunk if these lines may begin with another one of it."""
        self._last = None
        said = said_alone(chunk)
        if said is not None and said[0] in _CHANNELS:
            self._tries -= 1
            self._split(lines, data, *said)

    def _split(self, lines: bytes, data: bytes, name: str, text: str) -> None:
        found = _SAID[name].search(data)
        # Data of several lines has a `data:` on each of them: the shape does not allow that.
        if found is None or b"\n" in data:
            return
        begin, end = found.span(1)
        head = _DATA + data[:begin]
        if not lines.startswith(head):
            return
        # A field of that name may stand elsewhere too: check that this one is the text.
        longer = read_chunk(data[:begin] + b"?" + data[begin:])
        if said_alone(longer) == (name, "?" + text):
            self.channel = _CHANNELS[name]
            self._head = head
            self._tail = data[end:]
            self._end = self._tail + _BLANK
            self._quoted = slice(len(head) - 1, 1 - len(self._end))
            self._between = self._tail + _BLANK + self._head
