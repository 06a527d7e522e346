"""When is a failed request to a server repeated, and after how long?

Only if the model has produced nothing, the error may pass, and the circuit breaker of the
deployment allows it. A failed attempt is logged without what the upstream wrote, which may quote
a conversation; the last one is reported to the breaker.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from antiphon.backends.breaker import Breaker
from antiphon.protocol.errors import BackendError
from antiphon.transport.retry import MAX_ATTEMPTS, retry_delay

__all__ = ["Patience"]

_log = logging.getLogger(__name__)
_BUSY: Final = 429


class Patience:
    """Judges failed requests to the models of one provider, `name`.

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

    def may_try(self, model: str) -> bool:
        """Return whether a request to this model may be repeated at all."""
        return self._breaker.may_try(f"{self._name}/{model}")

    def note_success(self, model: str) -> None:
        """Note that this model has answered."""
        self._breaker.note_success(f"{self._name}/{model}")

    def wait_after(
        self,
        model: str,
        error: BackendError,
        *,
        attempt: int,
        budget: float,
        may_retry: bool,
        has_spoken: bool,
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        wait = None
        if not has_spoken and (may_retry or error.status == _BUSY):
            wait = retry_delay(
                error.status,
                attempt,
                error.retry_after,
                self._jitter(),
                code=None if error.is_slip else error.code,
                budget=budget,
                max_attempts=2 if error.is_slip else MAX_ATTEMPTS,
            )
        deployment = f"{self._name}/{model}"
        if wait is None:
            self._note_failure(deployment, error)
        level = logging.WARNING if error.status >= 500 or error.status == _BUSY else logging.DEBUG
        when = "after the answer had begun" if has_spoken else f"at attempt {attempt}"
        then = "giving up" if wait is None else f"next attempt in {wait:.1f} s"
        _log.log(level, "upstream %s failed %s: %s; %s", deployment, when, _cause(error), then)
        return wait

    def _note_failure(self, deployment: str, error: BackendError) -> None:
        """Report the last attempt to the breaker, and to the caller when to come again."""
        is_its_own = self._breaker.note_failure(deployment, error)
        may_pass = is_its_own and self._breaker.is_open(deployment)
        if error.retry_after is None and may_pass:
            error.retry_after = math.ceil(self._breaker.seconds_left(deployment))


def _cause(error: BackendError) -> str:
    """Return the cause without what the upstream wrote."""
    cause = error.__cause__
    reason = f" ({type(cause).__name__}: {cause})" if isinstance(cause, OSError) else ""
    seen = error.upstream_status
    answered = f"HTTP {seen} from the upstream, " if seen is not None else ""
    return f"{error.code}, {answered}HTTP {error.status} for the caller{reason}"
