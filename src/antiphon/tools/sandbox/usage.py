"""How much does a sandbox take? Its folder, and the memory of its processes.

The folder is walked by descriptors and never through links, because programs of models change it
at the same time. Files that were deleted while open are counted too. What cannot be walked within
the limits of this module (depth, number of entries) counts as too much.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["TOO_MUCH", "descendants", "folder_bytes", "memory_bytes", "unlinked_bytes"]

TOO_MUCH: Final = 1 << 62
_MAX_DEPTH: Final = 64
_MAX_ENTRIES: Final = 100_000
_ENTRY_BYTES: Final = 512
"""What a name costs, so that empty files are not free."""
_BLOCK: Final = 512
_KIB: Final = 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder, or TOO_MUCH. A folder that is gone has none."""
    walk = _Walk()
    try:
        walk.enter(os.open(folder, _FLAGS), 0)
    except FileNotFoundError:
        return 0
    except (_Endless, OSError):
        return TOO_MUCH
    return walk.bytes


class _Endless(Exception):
    """The folder is deeper or larger than is walked."""


class _Walk:
    def __init__(self) -> None:
        self.bytes = 0
        self._entries = 0

    def enter(self, fd: int, depth: int) -> None:
        try:
            if depth > _MAX_DEPTH:
                raise _Endless
            with os.scandir(fd) as entries:
                for entry in entries:
                    self._add(entry, fd, depth)
        finally:
            os.close(fd)

    def _add(self, entry: os.DirEntry[str], parent: int, depth: int) -> None:
        self._entries += 1
        if self._entries > _MAX_ENTRIES:
            raise _Endless
        with suppress(FileNotFoundError):
            facts = os.stat(entry.name, dir_fd=parent, follow_symlinks=False)
            self.bytes += max(facts.st_size, facts.st_blocks * _BLOCK) + _ENTRY_BYTES
            if stat.S_ISDIR(facts.st_mode):
                self.enter(os.open(entry.name, _FLAGS, dir_fd=parent), depth + 1)


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below this one."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = [child for parent in [waiting.pop()] for child in _children(parent)]
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def memory_bytes(pids: list[int], limit: int) -> int:
    """Return the memory of these processes.

    Shared memory is divided among those who share it, which is slow to find out, so this is only
    done if the simple sum is over the limit.
    """
    simple = sum(map(_resident, pids))
    return simple if simple <= limit else sum(map(_proportional, pids))


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KIB
    return _resident(pid)


def unlinked_bytes(pids: list[int], folder: Path) -> int:
    """Return the size of the files that these processes have deleted but hold open."""
    with suppress(OSError):
        device = folder.stat().st_dev
        found = {
            facts.st_ino: facts.st_blocks * _BLOCK
            for facts in _open_files(pids)
            if stat.S_ISREG(facts.st_mode) and facts.st_nlink == 0 and facts.st_dev == device
        }
        return sum(found.values())
    return 0


def _open_files(pids: list[int]) -> Iterator[os.stat_result]:
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    yield link.stat()
