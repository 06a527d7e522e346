"""When does the next commit of shared jobs begin?

A commit costs as much as twenty appends, and whoever waits for it cannot be answered. So:

- A few jobs hardly wait: the time from the beginning of one commit to that of the next grows
  with the number of jobs that shared the first.
- It grows up to a limit, which is longer when the event loop was late to answer the callers of
  the last commit. A loop that has time answers at once: then small commits cost nothing that is
  needed, and answers come early. A loop that is behind, because the core is full or others use
  it, cannot pass on answers sooner: then each commit only takes time from it.
- What a commit takes, on a slow disk for example, is part of that time, not added to it: jobs
  gather while it runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Pace"]

# Seconds from one commit to the next, for each job that shared the first.
_EACH: Final = 0.002
# The limit of that, if answers take no time; and its own limit.
_SHORT: Final = 0.006
_LONG: Final = 0.016
# Jobs that shared a commit, from which on others should not have a commit of their own.
_MANY: Final = 7


class Pace:
    """The pace of the commits of one writer. Only its thread calls `begin`, `end` and `wait`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_shared = False
        """Whether many jobs share commits at present."""
        self._clock = clock
        self._next = 0.0
        self._ended: float | None = None  # when the last commit ended, unless all were answered
        self._lateness = 0.0

    def begin(self, jobs: int) -> None:
        """Note a commit of so many jobs, which begins now."""
        now, ended = self._clock(), self._ended
        late = self._lateness if ended is None else now - ended
        self.is_shared = jobs >= _MANY
        self._next = now + min(_EACH * jobs, _SHORT + late, _LONG)

    def end(self) -> None:
        """Note that the commit is over, and its callers are about to be answered."""
        self._ended = self._clock()

    def note_answered(self) -> None:
        """Note that all callers of the last commit were answered. Called in the event loop."""
        ended, self._ended = self._ended, None
        if ended is not None:
            self._lateness = self._clock() - ended

    def wait(self) -> float:
        """Return how many seconds the next commit waits for jobs to share it."""
        return max(0.0, self._next - self._clock())
