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

__all__ = ["FreedMemory", "default_memory", "limit_kernel_buffer", "return_large_blocks"]

_UNKNOWN: Final = 4 << 30
_ROOT: Final = Path("/sys/fs/cgroup")
# From here on a block of memory has pages of its own, which are returned when it is freed.
_OWN_PAGES: Final = 256 * 1024
# Options of mallopt(3), as <malloc.h> of the GNU C library has them.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
# The fields of mallinfo2(3), all of them sizes or counts.
_MALLINFO: Final = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)
# Less than this is not worth the milliseconds in which no thread can allocate.
_WORTH_RETURNING: Final = 8 * 1024 * 1024
# Where no limit is set, version 1 shows a number near the largest there is.
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


class _MallInfo(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO)


class FreedMemory:
    """Returns to the system what was freed between blocks that are in use.

    By itself the GNU C library returns only large blocks, and what is free at the end: streams
    that have ended would leave most of their memory with the process.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None) if sys.platform == "linux" else None
        self._look = getattr(library, "mallinfo2", None)
        self._trim = getattr(library, "malloc_trim", None)
        if self._look is not None:
            self._look.restype = _MallInfo
        self._kept = 0

    def give_back(self) -> bool:
        """Return what was freed since the last time, if it is much; return whether it was."""
        if self._look is None or self._trim is None:
            return False
        free = self._free()
        if free < self._kept + _WORTH_RETURNING:
            self._kept = min(self._kept, free)
            return False
        self._trim(0)
        self._kept = self._free()  # the library counts returned pages as free
        return True

    def _free(self) -> int:
        assert self._look is not None
        return int(self._look().fordblks)


def limit_kernel_buffer(transport: asyncio.Transport, size: int) -> None:
    """Let the kernel keep little for a client that does not read: it would take megabytes.

    This limits what is not sent yet. What is on its way is not limited, as it would be by
    SO_SNDBUF, so large answers to distant clients are as fast as before.
    """
    option = getattr(socket, "TCP_NOTSENT_LOWAT", None)  # Windows has none
    sock = transport.get_extra_info("socket")
    if option is not None and sock is not None:
        with suppress(OSError):  # it was closed, or is not TCP
            sock.setsockopt(socket.IPPROTO_TCP, option, size)


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
