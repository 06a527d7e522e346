"""How much memory may this process take, and how is it given back?

The budget for requests is half of the smallest of three: the memory of the machine, of the
container (cgroup version 1 or 2), and the address space that the process may have (`ulimit -v`).
The other half is for the program, its caches, and what an estimate misses.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["default_memory", "limit_kernel_buffer", "return_large_blocks"]

_UNKNOWN: Final = 4 << 30
_ROOT: Final = Path("/sys/fs/cgroup")
# From here on a block of memory has pages of its own, which are returned when it is freed.
_OWN_PAGES: Final = 256 * 1024
# Options of mallopt(3), as <malloc.h> of the GNU C library has them.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
# Where no limit is set, version 1 says a number near the largest there is.
_NO_LIMIT: Final = 1 << 60


def default_memory(workers: int = 1, root: Path = _ROOT, cgroups: Path | None = None) -> int:
    """Return the bytes that requests may take together in one of so many processes."""
    limits = [*_machine(), *_container(root, cgroups or Path("/proc/self/cgroup"))]
    shared = min(limits, default=_UNKNOWN) // workers
    return max(1, min([shared, *_address_space()]) // 2)


def return_large_blocks() -> None:
    """Let the C library return large blocks to the system as soon as they are freed.

    By itself glibc raises its threshold with the first large block that is freed, and then
    keeps all that are smaller: 60 bodies of 9 MB left 1.5 GB behind. Each of its arenas also
    reserves 64 MiB of address space. Other C libraries are left as they are.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES)
        mallopt(_M_TRIM_THRESHOLD, _OWN_PAGES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def limit_kernel_buffer(transport: asyncio.Transport | None, size: int) -> None:
    """Let the kernel keep little for a client that does not read: it would take megabytes.

    A stream of tokens needs no more. Linux counts its own overhead too, and doubles the size.
    """
    sock = transport.get_extra_info("socket") if transport is not None else None
    if sock is not None:
        with suppress(OSError):  # it was closed meanwhile
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)


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
