"""Which of the stores that share a file are still alive?

Each store holds a lock on a small file of its own beside the database. The system releases it
when the process ends, however it ends, so a lock that can be taken belongs to a dead process.
Without this, a server that starts would end the turns of one that is still running. Where there
is no `flock` (Windows), an open file cannot be removed, which shows the same.
"""

from __future__ import annotations

import os
import secrets
import sys
from glob import escape
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["Presence", "count_alive", "is_alive"]


class Presence:
    """The sign of life of one store. Its unfinished turns carry its `name` as their writer."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._file = -1
        while self._file < 0:
            self.name = secrets.token_hex(8)
            self._file = _hold(_sign(database, self.name))

    def is_alive(self, name: str) -> bool:
        """Return whether the store of this name runs; remove the file of one that does not."""
        return name == self.name or is_alive(self._database, name)

    def count_alive(self) -> int:
        """Return how many stores use this file now."""
        return count_alive(self._database)

    def close(self) -> None:
        """End the sign of life."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            _remove(_sign(self._database, self.name))


def is_alive(database: Path, name: str) -> bool:
    """Return whether the store of this name runs; remove the file of one that does not."""
    return _is_held(_sign(database, name))


def count_alive(database: Path) -> int:
    """Return how many stores use this file now; remove the files of those that have died."""
    return sum(map(_is_held, database.parent.glob(f"{escape(database.name)}-alive-*")))


def _sign(database: Path, name: str) -> Path:
    return database.with_name(f"{database.name}-alive-{name}")


def _hold(path: Path) -> int:
    """Create the file and lock it; return -1 if another store removed it in between."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    if _lock(file) and os.fstat(file).st_nlink:
        return file
    os.close(file)
    return -1


def _is_held(path: Path) -> bool:
    """Return whether a process holds the file; remove it if not.

    It is removed under the lock, or the process that has just created it would lose it.
    """
    if sys.platform == "win32":
        return not _remove(path)
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not (_lock(file) and _remove(path))
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        return False
    return True
