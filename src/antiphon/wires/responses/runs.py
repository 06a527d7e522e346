"""Events that only go on with the text that is open, read without decoding all of their fields.

Most of an answer is the same event again and again. It is read into a struct of the fields that
decide where the text belongs; an event of any other kind, place or form is decoded as a whole by
the caller.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

__all__ = ["read_pieces"]

# What stands before an event, and between two of them: servers write its name or not.
_NAMED: Final = b"event: response.output_text.delta\ndata: "
_UNNAMED: Final = b"data: "
_NAMED_NEXT: Final = b"\n\n" + _NAMED
_UNNAMED_NEXT: Final = b"\n\n" + _UNNAMED


class _Piece(msgspec.Struct, tag="response.output_text.delta", gc=False):
    """A piece of text, and what an event of it must state to be one more of the same text."""

    delta: str
    output_index: int = -1
    content_index: int = -1
    logprobs: list[Any] | None = None


_decode: Final = msgspec.json.Decoder(_Piece).decode


def read_pieces(lines: bytes, index: int, part: int) -> list[str] | None:
    """Return the texts of these SSE events, or None if one is not about the part at this place."""
    if lines.startswith(_NAMED):
        events = lines[len(_NAMED) :].split(_NAMED_NEXT)
    elif lines.startswith(_UNNAMED):
        events = lines[len(_UNNAMED) :].split(_UNNAMED_NEXT)
    else:
        return None
    texts: list[str] = []
    try:
        for event in events:
            # Anything else between two data lines, such as a comment, is not JSON.
            piece = _decode(event)
            if piece.output_index != index or piece.content_index != part or piece.logprobs:
                return None
            if piece.delta:
                texts.append(piece.delta)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return texts
