"""Writes that a failing store could not take, to be retried until it can.

The end of a turn, the lock of a conversation, the claim of a request: when one of these cannot
be written, its caller gets an error and leaves, and the write is retried later. A write that was
reported as failed may have been stored all the same, or may still be stored until the store has
given up on it: such a write is in doubt, and is repeated for that long.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from antiphon.protocol.errors import StoreUnavailable, TurnLost

__all__ = ["Defer", "PendingWrites", "Write"]

_MAX: Final = 10_000
# Longer than any store takes to carry out a write, or to give up on it.
_DOUBT_SECONDS: Final = 60
_log = logging.getLogger(__name__)

Write = Callable[[], Awaitable[object]]
"""Does the write, or raises StoreUnavailable."""


class Defer(Protocol):
    """Queues a write for later."""

    def __call__(self, write: Write, *, is_in_doubt: bool = False) -> None:
        """Retry this write until it succeeds."""


class _Pending(NamedTuple):
    write: Write
    until: int
    """Repeated until this time."""


class PendingWrites:
    """The writes that wait for one store. `now` is the time in seconds since the epoch."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._waiting: deque[_Pending] = deque()

    def defer(self, write: Write, *, is_in_doubt: bool = False) -> None:
        """Queue a write; `settle` does it."""
        self._put(_Pending(write, self._now() + _DOUBT_SECONDS if is_in_doubt else 0))

    async def settle(self) -> None:
        """Do what waits. Raise StoreUnavailable if something is still not possible."""
        trouble: StoreUnavailable | None = None
        for _ in range(len(self._waiting)):
            pending = self._waiting.popleft()
            try:
                await pending.write()
            except TurnLost:
                pass  # it never reached the store, or has ended, or was deleted or taken over
            except StoreUnavailable as error:
                trouble = error
                self._put(pending)
                continue
            if self._now() < pending.until:
                self._put(pending)
        if trouble is not None:
            raise trouble

    def _put(self, pending: _Pending) -> None:
        if len(self._waiting) >= _MAX:
            _log.error("more than %d writes wait for the store; one is dropped", _MAX)
            self._waiting.popleft()
        self._waiting.append(pending)
