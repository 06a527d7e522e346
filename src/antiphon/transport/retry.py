"""When to try a request again, and how long to wait first.

The policy is a pure function of the failure: it does not sleep and uses no randomness, so the
caller passes `jitter` and does the waiting. Never retry after the first event has arrived:
output that was shown once must not be produced twice. If the wait does not fit the caller's
budget, there is no retry, and the caller passes the peer's Retry-After on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = [
    "MAX_ATTEMPTS",
    "WAIT_BUDGET",
    "back_off",
    "read_limit_reset",
    "read_retry_after",
    "retry_delay",
]

MAX_ATTEMPTS: Final = 3
WAIT_BUDGET: Final = 20.0
# A proxy sends 520 to 524 when the server behind it sends nothing, or nothing valid.
_WORTH_RETRYING: Final = frozenset({408, 429, 500, 502, 503, 504, *range(520, 525), 529})
# These failures would happen again.
_HOPELESS: Final = frozenset(
    {
        "insufficient_quota",
        "upstream_auth",
        "upstream_invalid_response",
        "upstream_refused",
        "upstream_timeout",
    }
)

_LIMIT: Final = re.compile(r"anthropic-ratelimit-([a-z-]{1,40})-reset")
_REMAINING: Final = "anthropic-ratelimit-%s-remaining"


def retry_delay(
    status: int,
    attempt: int,
    retry_after: float | None,
    jitter: float,
    *,
    code: str | None = None,
    budget: float = WAIT_BUDGET,
    max_attempts: int = MAX_ATTEMPTS,
) -> float | None:
    """Return the seconds to wait before the next attempt, or None to give up.

    `attempt` is the one that just failed, counted from 1; `jitter` is between 0 and 1. The
    server's own Retry-After wins over our back-off. `budget` is what may still be waited.
    """
    if status not in _WORTH_RETRYING or code in _HOPELESS or attempt >= max_attempts:
        return None
    wait = back_off(attempt, jitter) if retry_after is None else retry_after
    return wait if wait <= budget else None


def back_off(attempt: int, jitter: float) -> float:
    """Return the seconds to wait after an attempt where the peer states none."""
    return 0.5 * 2.0 ** (attempt - 1) * (1 + jitter)


def read_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that the peer asks us to wait, or None if it does not ask.

    `headers` have lower-case names; `now` is the Unix time that an HTTP date is held against.
    """
    seconds = _number(headers.get("retry-after-ms"), scale=0.001)
    if seconds is None:
        seconds = _number(headers.get("retry-after"), scale=1.0)
    if seconds is None:
        seconds = _until(headers.get("retry-after"), now)
    return seconds


def read_limit_reset(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until every exhausted limit is reset, if the peer states it.

    Anthropic sends a time for each of its limits, in RFC 3339, and how much of it remains. If
    it does not state which one is exhausted, the first reset counts.
    """
    found = [_LIMIT.fullmatch(name) for name in headers]
    resets = {one[1]: _moment(headers[one[0]]) for one in found if one is not None}
    times = {name: max(time - now, 0.0) for name, time in resets.items() if time is not None}
    spent = [times[name] for name in times if headers.get(_REMAINING % name, "").strip() == "0"]
    return max(spent) if spent else min(times.values(), default=None)


def _moment(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _number(text: str | None, *, scale: float) -> float | None:
    try:
        value = float(text or "") * scale
    except ValueError:
        return None
    return max(value, 0.0) if math.isfinite(value) else None


def _until(text: str | None, now: float) -> float | None:
    try:
        return max(parsedate_to_datetime(text or "").timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None
