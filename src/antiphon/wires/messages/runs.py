"""Text deltas of the block that is open, read without decoding their events.

Most of an answer is the same event again and again, with other words in it. The bytes before the
text are known, and those after it are brackets and the spaces that Anthropic adds to hide the
length. This is exact, not a guess: the bytes around a JSON string decide what it is part of, and
what stands between them is read as one JSON string. An event of any other shape is decoded as a
whole by the caller.
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["DeltaRun"]

_HEAD: Final = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":'
)
_BLANK: Final = b"\n\n"
_decode_text: Final = msgspec.json.Decoder(str).decode


class DeltaRun:
    """The text block that is open, if there is one."""

    def __init__(self) -> None:
        self.index = -1
        self._head = b""

    def follow(self, index: int) -> None:
        """Expect text of this block."""
        self.index = index
        self._head = _HEAD % index

    def forget(self) -> None:
        """Expect no text: the block has ended."""
        self._head = b""

    def read(self, lines: bytes) -> list[str] | None:
        """Return the texts of these SSE events, or None if one is not a text of the block."""
        head = self._head
        if not head or not lines.startswith(head):
            return None
        try:
            if _BLANK not in lines:
                return [self._read_one(lines)]
            return [self._read_one(event) for event in lines.split(_BLANK)]
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
            return None

    def _read_one(self, event: bytes) -> str:
        """Return the text of an event. Raise ValueError if it has another shape."""
        inner = event.removesuffix(b"}").rstrip(b" ")
        if not event.startswith(self._head) or inner[-2:] != b'"}' or len(inner) == len(event):
            raise ValueError
        return _decode_text(inner[len(self._head) : -1])
