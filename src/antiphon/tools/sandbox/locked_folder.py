"""The folders of running sandboxes, and what processes that died have left of theirs.

A folder belongs to the process that holds the lock in it. The lock ends with the process, however
that ends, so a folder whose lock is free was left by one that died: it is removed when the next
folder is made beside it. All functions block: call them in a thread.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["LockedFolder", "make_folder"]

_PREFIX: Final = "antiphon-container-"
_LOCK: Final = "lock"


class LockedFolder(NamedTuple):
    """A folder of this process, with `data` and `skills` in it."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):  # it was removed before
            os.close(self.lock)


def make_folder(place: str | None) -> LockedFolder:
    """Return a new folder that only this user can enter, for one container."""
    root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    # The lock gets its name when it is held: without one, a folder is not taken for left.
    fresh = root / f"{_LOCK}.new"
    lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    fresh.rename(root / _LOCK)
    for name in ("data", "skills"):
        (root / name).mkdir()
    (root / "data").chmod(0o777)  # the program may run as another user; the root is closed
    for other in root.parent.glob(f"{_PREFIX}*"):
        if other != root:
            _remove_if_left(other)
    return LockedFolder(root, lock)


def _remove_if_left(root: Path) -> None:
    """Remove a folder of this user whose process has died."""
    try:
        if root.is_symlink() or root.stat().st_uid != os.getuid():
            return
        lock = os.open(root / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it is gone, or is just being made
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    else:
        shutil.rmtree(root, ignore_errors=True)
    finally:
        os.close(lock)
