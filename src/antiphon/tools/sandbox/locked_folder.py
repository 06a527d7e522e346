"""The folders of running sandboxes, and what processes that died have left of theirs.

A folder belongs to the process that holds the lock in it. The lock ends with the process, however
that ends, so a folder whose lock is free was left by one that died: it is removed when the next
folder is made beside it. All functions block: call them in a thread.

Sandboxes die with their process. But if bubblewrap is killed in the moment between its two
processes, the inner one waits for the outer one for ever, so it is looked for by the folder that
it names, before that is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["LockedFolder", "make_folder"]

_PREFIX: Final = "antiphon-container-"
_LOCK: Final = "lock"
_DATA: Final = "data"


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
    for name in (_DATA, "skills"):
        (root / name).mkdir()
    (root / _DATA).chmod(0o777)  # the program may run as another user; the root is closed
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
        _kill_left(root)
        shutil.rmtree(root, ignore_errors=True)
    finally:
        os.close(lock)


def _kill_left(root: Path) -> None:
    """Kill the processes that were started with this folder."""
    data = os.fsencode(root / _DATA)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if data in (process / "cmdline").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
