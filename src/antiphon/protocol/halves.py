"""Characters that a server cut in two: half a surrogate pair is no text and cannot be encoded.

JSON can hold such a half as an escape. Servers that count in UTF-16 put one at the end of a piece
of text, and the other at the beginning of the next. A half that stays alone is replaced.
"""

from __future__ import annotations

from typing import Any

__all__ = ["join_all", "join_halves", "split_half"]


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


def join_all(value: Any) -> Any:  # Any: JSON of a peer
    """Return a JSON value whose texts and names are all whole."""
    match value:
        case str():
            return join_halves(value)
        case list():
            return [join_all(one) for one in value]
        case dict():
            return {join_halves(name): join_all(one) for name, one in value.items()}
    return value
