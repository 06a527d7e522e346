"""The input of a call that was cut short: as much of its JSON as is whole.

The SDKs of Anthropic read a stream in the same way: a value that has not ended is left out, and
what it stands in is closed. So a whole answer has the same input as a stream that was cut there.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

__all__ = ["read_partial"]

# Strings are passed over: a string that does not end is the last thing in the text.
_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
_CLOSERS: Final = {"{": "}", "[": "]"}


def read_partial(text: str) -> dict[str, Any]:
    """Return the object that this text begins; empty if it begins none."""
    closers: list[str] = []
    whole, closing = 0, ""
    for token in _TOKENS.finditer(text):
        match token[0]:
            case "{" | "[" as opener:
                closers.append(_CLOSERS[opener])
                whole = token.end()
            case "}" | "]":
                del closers[-1:]
                whole = token.end()
            case ",":
                whole = token.start()
            case _:
                continue
        closing = "".join(reversed(closers))
    for candidate in (text + closing, text[:whole] + closing):
        try:
            return msgspec.json.decode(candidate, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            continue
    return {}
