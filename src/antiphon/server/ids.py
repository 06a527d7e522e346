"""Where do ids come from, and how does one see where an id was made?

An id is `<kind>_<mark><random>`: the kind comes first, because clients check it (`resp_`, `msg_`,
`call_`). The mark names the gateway and is the same for all its workers. Nothing reads a mark
back: ids with another mark, or from a time before there were marks, work as before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

__all__ = ["DEFAULT_MARK", "MARK_PATTERN", "MARK_WORDS", "IdMint", "file_id"]

DEFAULT_MARK: Final = "ap-"
MARK_PATTERN: Final = r"^[A-Za-z0-9-]{1,8}\Z"
"""With 5 characters for `call_` and 48 random ones, no id is longer than 64, which is the limit
of a `call_id` in the Responses API."""
MARK_WORDS: Final = "1 to 8 letters, digits or hyphens"

_ID_BYTES: Final = 24
_IDS_AT_ONCE: Final = 256


def file_id(mint: Callable[[str], str]) -> str:
    """Return a new id of a file. Clients know one by a hyphen after its kind: `file-`."""
    return mint("file").replace("_", "-", 1)


class IdMint:
    """Makes unique ids that cannot be guessed, each with the mark of this gateway."""

    def __init__(self, mark: str = DEFAULT_MARK) -> None:
        if not re.match(MARK_PATTERN, mark):
            raise ValueError(f"a mark must be {MARK_WORDS}, not {mark!r}")
        self.mark: Final = mark

    def __call__(self, prefix: str) -> str:
        """Return a new id of this kind: `resp`, `msg`, `call`, …"""
        return f"{prefix}_{self.mark}{_random.take()}"


class _Random:
    """Random words for ids, of 48 characters each.

    Randomness is fetched in bulk: asking for it gives up the interpreter's lock, and beside a
    busy store thread that costs more than the id. A forked child throws its copy away.
    """

    def __init__(self) -> None:
        self._unused: list[str] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._empty)

    def take(self) -> str:
        try:
            return self._unused.pop()
        except IndexError:  # another thread may have taken the last one just now
            words = os.urandom(_ID_BYTES * _IDS_AT_ONCE).hex(" ", _ID_BYTES).split()
            word = words.pop()
            self._unused = words
            return word

    def _empty(self) -> None:
        self._unused = []


_random: Final = _Random()
