"""Where do ids come from?"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["mint"]

_ID_BYTES: Final = 24
_IDS_AT_ONCE: Final = 256


class _Mint:
    """Makes ids that nobody can guess and no two of which are alike.

    Randomness is fetched in bulk: asking for it gives up the interpreter's lock, and behind a
    busy store thread that costs more than the id. A forked child throws its copy away.
    """

    def __init__(self) -> None:
        self._unused: list[str] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._empty)

    def __call__(self, prefix: str) -> str:
        if not self._unused:
            self._unused = os.urandom(_ID_BYTES * _IDS_AT_ONCE).hex(" ", _ID_BYTES).split()
        return f"{prefix}_{self._unused.pop()}"

    def _empty(self) -> None:
        self._unused = []


mint: Final = _Mint()
