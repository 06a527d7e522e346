"""What are fields of our requests called in the body of the caller?

Some faults of a request are found after its door has read it, and name fields of ours. A door
whose bodies have other names turns them back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.protocol.errors import InvalidRequest

__all__ = ["CallerNames"]

_INPUT: Final = re.compile(r"\binput\[(\d+)\]")


class CallerNames(msgspec.Struct, frozen=True):
    """The names in the body of one caller.

    `places` has the name of each item of `input`; `words` are other names, ours first, which are
    replaced in their order.
    """

    places: Sequence[str]
    words: Sequence[tuple[str, str]]

    def rename(self, error: InvalidRequest) -> InvalidRequest:
        """Return the error with the names that the caller used."""
        param = "messages" if error.param == "input" else error.param
        renamed = InvalidRequest(
            self._name_there(error.message),
            code=error.code,
            param=None if param is None else self._name_there(param),
        )
        renamed.status = error.status
        return renamed

    def _name_there(self, text: str) -> str:
        text = _INPUT.sub(self._place, text)
        for here, there in self.words:
            text = text.replace(here, there)
        return text

    def _place(self, found: re.Match[str]) -> str:
        index = int(found[1])
        return self.places[index] if index < len(self.places) else found[0]
