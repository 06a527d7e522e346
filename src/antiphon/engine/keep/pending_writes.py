"""What a store in trouble could not take, to be tried again until it can.

The end of a turn, the lock of a conversation, the claim of a request: when one of these cannot
be written down, its caller is told so and leaves, and somebody must still see to it. What was
told as failed may have been stored all the same, or be stored at any time until the store has
given up on it: such a debt is in doubt, and is paid again and again for that long.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from antiphon.protocol.errors import StoreUnavailable, TurnLost

__all__ = ["Debts", "Owe", "Pay"]

_MAX: Final = 10_000
# Longer than any store takes to do what it was told to, or not.
_DOUBT_SECONDS: Final = 60
_log = logging.getLogger(__name__)

Pay = Callable[[], Awaitable[object]]
"""Does what is owed."""


class Owe(Protocol):
    """Takes note of a debt."""

    def __call__(self, pay: Pay, *, is_in_doubt: bool = False) -> None:
        """See to it that this is done."""


class _Debt(NamedTuple):
    pay: Pay
    until: int
    """Paid again until this time."""


class Debts:
    """What is owed to one store. `now` is the time in seconds since the epoch."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._debts: deque[_Debt] = deque()

    def owe(self, pay: Pay, *, is_in_doubt: bool = False) -> None:
        """Take note of a debt; `settle` pays it."""
        self._put(_Debt(pay, self._now() + _DOUBT_SECONDS if is_in_doubt else 0))

    async def settle(self) -> None:
        """Pay what is owed. Raise StoreUnavailable if something is still not possible."""
        trouble: StoreUnavailable | None = None
        for _ in range(len(self._debts)):
            debt = self._debts.popleft()
            try:
                await debt.pay()
            except TurnLost:
                pass  # it never reached the store, or has ended, or was deleted or taken over
            except StoreUnavailable as error:
                trouble = error
                self._put(debt)
                continue
            if self._now() < debt.until:
                self._put(debt)
        if trouble is not None:
            raise trouble

    def _put(self, debt: _Debt) -> None:
        if len(self._debts) >= _MAX:
            _log.error("more than %d things are owed to the store; one is dropped", _MAX)
            self._debts.popleft()
        self._debts.append(debt)
