"""Whose turn is it to write, when several processes share the file?

SQLite's writers poll for its lock, so one of them may wait long while others pass it. Ours
queue first, on two lock files beside the database: `-next` is held by the writer that comes
next, `-turn` by the one that writes. The kernel wakes the waiter (`flock`), and releases both
when a process dies, however it dies. A writer that comes back needs `-next` first, which the
waiting one holds, so it cannot overtake.

The queue only decides the order. Whether something may be written is decided by SQLite's own
lock: a writer that does not get its turn in time, or has no `flock` (Windows,
some network file systems), goes on without it and polls. The last writer removes the files.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

if sys.platform != "win32":
    import fcntl

__all__ = ["WriteQueue", "queued"]

_FREE: Final = "free"
_WAITING: Final = "waiting"
_OURS: Final = "ours"
_BROKEN: Final = "broken"
_NO_FILES: Final = (errno.EMFILE, errno.ENFILE)


class WriteQueue:
    """The place of one writer in the queue of a database. One thread at a time uses it."""

    def __init__(self, database: Path) -> None:
        self._paths = [database.with_name(f"{database.name}-{word}") for word in ("next", "turn")]
        self._files: list[int] = []
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._state = _FREE if sys.platform != "win32" else _BROKEN
        self._is_wanted = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is this writer's turn."""
        return self._state == _OURS

    def enter(self, seconds: float) -> bool:
        """Wait for the turn, this long at most; return False if it has not come by then.

        A writer that gives up keeps its place until it is there, and then leaves, unless
        it has come back.
        """
        with self._guard:
            if self._state == _FREE:
                self._try()
            if self._state != _WAITING:
                return True
            self._is_wanted = True
            self._wake_thread()
            self._changed.wait_for(lambda: self._state != _WAITING, max(0.0, seconds))
            self._is_wanted = False
            return self._state != _WAITING

    def leave(self) -> None:
        """Let the next writer continue, if it is our turn."""
        with self._guard:
            if self._state == _OURS:
                self._state = _FREE  # first: another may have the turn when it is unlocked
                fcntl.flock(self._files[1], fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave the queue for good. A thread that still waits cleans up when it is woken."""
        with self._guard:
            self._is_closed = True
            self._changed.notify_all()
            if self._state != _WAITING:
                self._clean_up()

    # Called with `_guard` held.

    def _try(self) -> None:
        """Take the turn if it is free; else become the next one, or wait for that."""
        try:
            self._state = _OURS if self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB) else _WAITING
        except OSError as error:
            self._break(error)

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name="WriteQueue", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _unlock(self) -> None:
        for file in self._files:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)

    def _break(self, error: OSError) -> None:
        """Stop using the queue: there is no `flock` here, or no file to lock.

        If only file descriptors are lacking, skip it this time.
        """
        self._state = _FREE if error.errno in _NO_FILES else _BROKEN
        self._close_files()

    def _close_files(self) -> None:
        files, self._files = self._files, []
        for file in files:
            os.close(file)

    def _clean_up(self) -> None:
        """Close the files; remove them if no other writer is in the queue."""
        if self._state in (_FREE, _OURS) and self._files:
            with suppress(OSError):
                if self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
                    # `-next` last: a process that opens the files in between has a `-turn` that
                    # stays, or a `-next` that shows that both were removed.
                    for path in reversed(self._paths):
                        path.unlink(missing_ok=True)
        self._close_files()
        self._state = _BROKEN

    # Called by either thread, while the other does nothing with the files.

    def _lock(self, how: int) -> bool:
        """Lock both files, one after the other, and release the first; return False if busy.

        A file that the last writer before us has removed is made again.
        """
        while True:
            if not self._files:
                for path in self._paths:
                    self._files.append(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            first, last = self._files
            try:
                fcntl.flock(first, how)
                fcntl.flock(last, how)
            except BlockingIOError:
                return False
            if os.fstat(first).st_nlink:  # it is removed after `-turn`
                fcntl.flock(first, fcntl.LOCK_UN)
                return True
            self._close_files()

    # The thread that waits in the kernel.

    def _live(self) -> None:
        while True:
            with self._guard:
                self._changed.wait_for(lambda: self._is_closed or self._state == _WAITING)
                if self._state != _WAITING:
                    return
            self._wait()

    def _wait(self) -> None:
        fault: OSError | None = None
        try:
            self._lock(fcntl.LOCK_EX)
        except OSError as error:
            fault = error
        with self._guard:
            if fault is not None:
                self._break(fault)
            else:
                self._state = _OURS
            if self._is_closed:
                self._clean_up()
            elif self._state == _OURS and not self._is_wanted:
                self._state = _FREE
                self._unlock()
            self._changed.notify_all()


@contextmanager
def queued(database: Path, seconds: float) -> Iterator[None]:
    """Write in turn with the others, once. Waits this long for the turn, at most."""
    queue = WriteQueue(database)
    try:
        queue.enter(seconds)
        yield
    finally:
        queue.close()
