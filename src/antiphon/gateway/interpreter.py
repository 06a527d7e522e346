"""Python's own settings for a process that serves many streams."""

from __future__ import annotations

import gc
import sys
from typing import Final

from antiphon.server.memory import return_large_blocks

__all__ = ["settle_interpreter"]

_YOUNG_OBJECTS: Final = 20_000
_SWITCH_SECONDS: Final = 0.0005


def settle_interpreter() -> None:
    """Make garbage collection rarer and the switch between threads faster.

    Turns leave hardly any cycles, and the search for them took a twentieth of the time of a
    stream; objects that exist now are not searched at all. The thread that writes to the store
    gets the interpreter sooner, because many streams wait for it.
    """
    return_large_blocks()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH_SECONDS)
