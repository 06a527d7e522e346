"""Which owners write more than others just now?

Under load, jobs share commits, and each waits some milliseconds for the next one. An owner that
causes little of the load need not wait for those that cause it: its beginnings get a commit at
once. So that this does not lead to a commit for each of many owners, it is done a limited number
of times a second.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BusyOwners"]

# After so many seconds, what was counted before counts half.
_WINDOW: Final = 0.25
# Between two commits that were made early for a quiet owner.
_PAUSE: Final = 0.004


class BusyOwners:
    """Counts what owners begin, in a short time. Used by one thread."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._total = 0
        self._until = 0.0
        self._next_early = 0.0

    def is_quiet(self, owner: str, now: float) -> bool:
        """Count a job of this owner; return whether it may have a commit at once.

        It may if the owner has begun less than others on average of late.
        """
        if now >= self._until:
            self._age(now)
        count = self._counts[owner] = self._counts.get(owner, 0) + 1
        self._total += 1
        if count * len(self._counts) >= self._total or now < self._next_early:
            return False
        self._next_early = now + _PAUSE
        return True

    def _age(self, now: float) -> None:
        """Let what was counted count half, or nothing if that is long ago.

        An owner that is the first to begin something after that is still compared with others.
        """
        old = {} if now >= self._until + _WINDOW else self._counts
        self._counts = {owner: count // 2 for owner, count in old.items() if count > 1}
        self._total = sum(self._counts.values())
        self._until = now + _WINDOW
