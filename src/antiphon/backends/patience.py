"""How to wait before a server is asked again.

Whether it is asked again is decided by the policy `Failover`, by the class of the error. The
server's own Retry-After comes before our back-off.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from antiphon.backends.breaker import Breaker
from antiphon.transport.retry import back_off

__all__ = ["Patience"]


class Patience:
    """Waits for the models of one provider, `name`, and notes in `breaker` that they answer.

    `jitter` and `sleep` are there for tests.
    """

    def __init__(
        self,
        name: str,
        breaker: Breaker | None = None,
        *,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._breaker = breaker or Breaker(time.monotonic)
        self._jitter = jitter
        self.sleep = sleep

    def note_success(self, model: str) -> None:
        """Note that this model has begun to answer."""
        self._breaker.note_answer(f"{self._name}/{model}")

    def wait_after(self, attempt: int, retry_after: float | None) -> float:
        """Return the seconds to wait after this failed attempt, counted from 1."""
        return back_off(attempt, self._jitter()) if retry_after is None else retry_after
