"""How well does a store keep up? Counted by its writer, read by the metrics.

A commit is noted by one thread, or in one event loop; others only read. What they see may be one
commit behind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

__all__ = ["COMMIT_EDGES", "GROUP_EDGES", "Pulse"]

COMMIT_EDGES: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
"""Seconds: the upper edges of the buckets in which commits are counted."""
GROUP_EDGES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
"""Changes: the upper edges of the buckets in which the sizes of groups are counted."""


class Pulse:
    """The commits of one store. The last number of each list is the sum of all values."""

    def __init__(self, waiting: Callable[[], int] = lambda: 0) -> None:
        self.waiting = waiting
        """Returns how many changes wait to be written."""
        self.seconds = [0.0] * (len(COMMIT_EDGES) + 2)
        self.sizes = [0.0] * (len(GROUP_EDGES) + 2)

    def note(self, seconds: float, size: int) -> None:
        """Note a commit: how long it took, and how many changes it made durable."""
        self.seconds[bisect_left(COMMIT_EDGES, seconds)] += 1
        self.seconds[-1] += seconds
        self.sizes[bisect_left(GROUP_EDGES, size)] += 1
        self.sizes[-1] += size
