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
_MOST_SPACES: Final = 64
_TAILS: Final = frozenset(b"}" + b" " * count + b"}" for count in range(_MOST_SPACES))
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
        begin, texts = len(head), []
        try:
            for event in lines.split(_BLANK):
                inner = event.rstrip(b" }")
                if event[len(inner) :] not in _TAILS or not event.startswith(head):
                    return None
                texts.append(_decode_text(inner[begin:]))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return texts
