"""Which failure of a request is retried, and after how long.

`transport.retry` knows the statuses and the back-off; this module knows the client's errors and
counts. A request to a server and the connection of a follower differ only in their limits.
"""

from __future__ import annotations

from typing import Final

from antiphon.client.errors import (
    ClientError,
    InvalidAnswer,
    QuotaExceeded,
    ServerUnreachable,
    StreamBroken,
    TimedOut,
)
from antiphon.transport.retry import WAIT_BUDGET, retry_delay

__all__ = ["Attempts"]

# No status came with these; they count as one that is worth a retry.
_LOST: Final = (ServerUnreachable, StreamBroken, TimedOut)
_LOST_STATUS: Final = 503
# An answer that cannot be read will not be better, and credit does not come back by itself.
_HOPELESS: Final = (InvalidAnswer, QuotaExceeded)


class Attempts:
    """The failed attempts in a row, and the time left to wait.

    `gives_up_on` are errors that are never retried, besides the hopeless ones. A wait is at most
    `longest_wait`, unless the server asks for more.
    """

    def __init__(
        self,
        most: int,
        *,
        gives_up_on: tuple[type[ClientError], ...] = (TimedOut,),
        budget: float = WAIT_BUDGET,
        longest_wait: float = float("inf"),
    ) -> None:
        self.failed = 0
        self._most = most
        self._gives_up_on: tuple[type[ClientError], ...] = (*_HOPELESS, *gives_up_on)
        self._budget = budget
        self._longest_wait = longest_wait

    def start_over(self) -> None:
        """Count from the beginning: an attempt has succeeded."""
        self.failed = 0

    def wait_after(self, error: ClientError, jitter: float) -> float | None:
        """Count a failed attempt; return the seconds before the next, or None to give up."""
        self.failed += 1
        if isinstance(error, self._gives_up_on) or error.should_retry is False:
            return None
        is_lost = isinstance(error, _LOST) or error.should_retry
        wait = retry_delay(
            _LOST_STATUS if is_lost else error.status,
            self.failed,
            error.retry_after,
            jitter,
            budget=self._budget,
            max_attempts=self._most,
        )
        if wait is None:
            return None
        self._budget -= wait
        return max(min(wait, self._longest_wait), error.retry_after or 0.0)
