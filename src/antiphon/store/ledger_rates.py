"""Does a rate limit let a charge pass, and how much of it is left?

GCRA: `tat` is the time at which all of the limit is there again, in whole nanoseconds. A charge
passes if that time is a minute away at most, with what it takes. Pure: the caller passes the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from antiphon.store.base.ledger import LimitState, RateLimit, Refused, RefusedBy, Reservation

__all__ = ["SECOND", "LimitRow", "tightest"]

SECOND: Final = 1_000_000_000
_MINUTE: Final = 60 * SECOND
# Nobody knows when a response will end.
_RETRY_CONCURRENT: Final = 1.0


class LimitRow(msgspec.Struct):
    """A rate limit as it is stored. `running` are the responses that have a held charge in it.

    Times are nanoseconds since the epoch.
    """

    key: int
    limit: RateLimit
    tat_requests: int = 0
    tat_tokens: int = 0
    running: set[str] = msgspec.field(default_factory=set)
    is_changed: bool = False

    def refuse(self, wanted: Reservation, now: int) -> Refused | None:
        """Return why a charge must not pass now; None if it may."""
        limit, held = self.limit, wanted.held
        if limit.tokens is not None and held.input_total > limit.tokens:
            return self._refused("too_large", "tokens", limit.tokens, held.input_total, None)
        if limit.concurrent is not None and not self._has_seat(wanted, limit.concurrent):
            count = len(self.running)
            return self._refused(
                "concurrent", "requests", limit.concurrent, count, _RETRY_CONCURRENT
            )
        if limit.requests is not None and wanted.is_request:
            wait = _wait(self.tat_requests, 1, limit.requests, now)
            if wait > 0:
                used = limit.requests - _state(self.tat_requests, limit.requests, now).remaining
                after = wait / SECOND if limit.requests else None
                return self._refused("requests", "requests", limit.requests, used, after)
        if limit.tokens is not None:
            wait = _wait(self.tat_tokens, min(held.total, limit.tokens), limit.tokens, now)
            if wait > 0:
                used = limit.tokens - _state(self.tat_tokens, limit.tokens, now).remaining
                after = wait / SECOND if limit.tokens else None
                return self._refused("tokens", "tokens", limit.tokens, used, after)
        return None

    def take(self, wanted: Reservation, now: int) -> int:
        """Let a charge pass; return how many tokens it has taken."""
        limit = self.limit
        if limit.requests and wanted.is_request:
            self.tat_requests = max(self.tat_requests, now) + _MINUTE // limit.requests
            self.is_changed = True
        if limit.concurrent is not None:
            self.running.add(wanted.response_id)
        if not limit.tokens:
            return 0
        count = min(wanted.held.total, limit.tokens)
        self.tat_tokens = max(self.tat_tokens, now) + count * _MINUTE // limit.tokens
        self.is_changed = True
        return count

    def give_back(self, count: int, now: int) -> None:
        """Give back tokens that were taken and not used; take more if this is negative."""
        limit = self.limit.tokens
        if not limit:
            return
        change = abs(count) * _MINUTE // limit
        self.tat_tokens = (
            self.tat_tokens - change if count > 0 else max(self.tat_tokens, now) + change
        )
        self.is_changed = True

    def states(self, now: int) -> tuple[LimitState | None, LimitState | None]:
        """Return how much is left of the requests and of the tokens."""
        requests, tokens = self.limit.requests, self.limit.tokens
        return (
            None if requests is None else _state(self.tat_requests, requests, now),
            None if tokens is None else _state(self.tat_tokens, tokens, now),
        )

    def _has_seat(self, wanted: Reservation, seats: int) -> bool:
        return wanted.response_id in self.running or len(self.running) < seats

    def _refused(
        self,
        by: RefusedBy,
        unit: Literal["requests", "tokens"],
        limit: int,
        used: int,
        retry_after: float | None,
    ) -> Refused:
        return Refused(
            by=by,
            scope=self.limit.scope,
            scope_id=self.limit.scope_id,
            id=self.limit.id,
            limit=limit,
            used=used,
            unit=unit,
            period="minute",
            retry_after=retry_after,
        )


def tightest(states: Iterable[LimitState | None]) -> LimitState | None:
    """Return the state of which the least is left."""
    known = [state for state in states if state is not None]
    return min(known, key=lambda state: state.remaining, default=None)


def _wait(tat: int, count: int, limit: int, now: int) -> int:
    """Return for how many nanoseconds there is no room for so many."""
    if limit <= 0:
        return _MINUTE
    return max(tat, now) + count * _MINUTE // limit - now - _MINUTE


def _state(tat: int, limit: int, now: int) -> LimitState:
    ahead = max(0, tat - now)
    remaining = max(0, (_MINUTE - ahead) * limit // _MINUTE)
    return LimitState(limit, remaining, ahead / SECOND)
