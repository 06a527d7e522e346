"""Characters that a server cut in two: half a surrogate pair is no text and cannot be encoded.

JSON can hold such a half as an escape. Servers that count in UTF-16 put one at the end of a piece
of text, and the other at the beginning of the next. A half that stays alone is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

import msgspec

__all__ = ["GrowingText", "decode_torn", "join_all", "join_halves", "join_others", "split_half"]

_REPLACEMENT: Final = "\ufffd"


class GrowingText:
    """A text that comes in pieces. Half a character at the end of one waits for the next."""

    def __init__(self) -> None:
        self.half = ""

    def take(self, text: str) -> str:
        """Return what can be reported of the next piece of the text."""
        text, self.half = split_half(self.half + text)
        return join_halves(text)

    def rest(self) -> str:
        """Return what stands for a half that stayed alone, if there is one."""
        half, self.half = self.half, ""
        return _REPLACEMENT if half else ""


def join_halves(text: str) -> str:
    """Return the text with halves of characters put together, and lone ones replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def split_half(text: str) -> tuple[str, str]:
    """Return the text up to half a character at its end, and that half.

    Some servers cut an emoji in two: the other half comes with the next delta.
    """
    if text and "\ud800" <= text[-1] <= "\udbff":
        return text[:-1], text[-1]
    return text, ""


def decode_torn(data: bytes, texts: Collection[str], raw: Collection[str] = ()) -> Any:
    """Return JSON that msgspec refuses because it holds halves of characters.

    Raise ValueError or RecursionError if it is no JSON. The rest is `join_others`.
    """
    return join_others(json.loads(data), texts, raw)


def join_others(
    value: Any, texts: Collection[str], raw: Collection[str] = (), name: str = ""
) -> Any:  # Any: JSON of a peer
    """Return a JSON value in which only the fields named in `texts` may hold halves.

    They keep theirs because the next piece may bring the other half. The fields named in `raw`
    stay JSON. `name` is the field that holds the value.
    """
    if name in raw:
        return msgspec.Raw(json.dumps(value).encode())
    match value:
        case str():
            return value if name in texts else join_halves(value)
        case list():
            return [join_others(one, texts, raw, name) for one in value]
        case dict():
            fields = value.items()
            return {join_halves(key): join_others(one, texts, raw, key) for key, one in fields}
    return value


def join_all(value: Any) -> Any:  # Any: JSON of a peer
    """Return a JSON value whose texts and names are all whole."""
    return join_others(value, ())
