"""What a turn needs of the process it runs in.

The engine is all of this. What stands below the engine names what it needs here, so that it can
be read, tested and used without the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from antiphon.accounts.loop_share import LoopShare
from antiphon.protocol.machines.builder import Mint
from antiphon.protocol.response import Response
from antiphon.store.base import Notice

__all__ = ["Clock", "Notifier", "Observer", "TurnServices"]

Clock = Callable[[], int]
"""Returns seconds since the epoch."""

Observer = Callable[[Response], None]
"""Called with every response that ended, however it ended."""

Notifier = Callable[[str, Response], Sequence[Notice]]
"""Returns the notices, to be stored, that this owner's response has ended."""


class TurnServices(Protocol):
    """What the end of a turn is made with, and who learns of it."""

    now: Clock
    mint: Mint
    observe: Observer
    notify: Notifier
    share: LoopShare

    def suspend_early_begin(self) -> None:
        """Store no beginnings in advance for a while: one had to be undone."""
        ...
