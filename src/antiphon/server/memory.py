"""How much memory may this process take, and how is it given back?

The budget for requests is half of the smallest of three: the memory of the machine, of the
container (cgroup version 1 or 2), and the address space that the process may have (`ulimit -v`).
The other half is for the program, its caches, and what an estimate misses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["default_memory"]

_UNKNOWN: Final = 4 << 30
_ROOT: Final = Path("/sys/fs/cgroup")
# Where no limit is set, version 1 says a number near the largest there is.
_NO_LIMIT: Final = 1 << 60


def default_memory(workers: int = 1, root: Path = _ROOT, cgroups: Path | None = None) -> int:
    """Return the bytes that requests may take together in one of so many processes."""
    limits = [*_machine(), *_container(root, cgroups or Path("/proc/self/cgroup"))]
    shared = min(limits, default=_UNKNOWN) // workers
    return max(1, min([shared, *_address_space()]) // 2)


def _machine() -> Iterator[int]:
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return


def _container(root: Path, cgroups: Path) -> Iterator[int]:
    """Yield the limits of the process's own group and of those above it."""
    for group in _groups(cgroups):
        place = Path(group.lstrip("/"))
        for path in (place, *place.parents):
            yield from _number(root / path / "memory.max")
            yield from _number(root / "memory" / path / "memory.limit_in_bytes")


def _groups(cgroups: Path) -> set[str]:
    """Return the paths of the groups that the process is in. Inside a container that is `/`."""
    try:
        lines = cgroups.read_text().splitlines()
    except OSError:
        return {"/"}
    fields = [line.split(":", 2) for line in lines]
    return {"/", *(path for _, kinds, path in fields if kinds == "" or "memory" in kinds)}


def _number(path: Path) -> Iterator[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return
    if text.isdecimal() and 0 < int(text) < _NO_LIMIT:
        yield int(text)


def _address_space() -> Iterator[int]:
    if sys.platform == "win32":
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield limit
