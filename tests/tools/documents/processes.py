"""What does this process have, and how long does its event loop stand still?"""

from __future__ import annotations

from pathlib import Path

__all__ = ["count_children"]


def count_children() -> int:
    """Return how many processes this one has started that are still there."""
    tasks = Path("/proc/self/task").iterdir()
    return sum(len((task / "children").read_text().split()) for task in tasks)
