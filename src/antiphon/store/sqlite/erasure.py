"""How is deleted content erased from the files, and not only from the tables?

SQLite overwrites what is deleted (`secure_delete`), but two kinds of copies remain: pages in the
journal, and rows in the gaps of pages. The gap of a page lies between its directory and its
rows. Rows that moved to another page leave their bytes in it, and SQLite never clears those. So
we empty the journal and write zeros into the gaps.

A transaction that removes something also counts it as due. A pass through the file records at
its end how many were due when it began. So nothing is lost when a process is killed, and
processes that share a file complete each other's work.

Why this is safe: we hold the lock of the writer and the journal is empty, so the file is
complete, and no other process writes to it until we release the lock. Readers never look into a
gap. Others may have the old page in their cache and would write it back: our commit makes them
read it again.
A file that we have opened stays open until the last store on it is closed, because closing it
would drop the locks that SQLite holds (see `create_file`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from enum import Enum
from io import FileIO
from pathlib import Path
from struct import unpack_from
from typing import Final

from antiphon.store.sqlite.connection import is_locked, touch

__all__ = ["Eraser", "Progress", "find_gaps", "mark"]

# Looked through while others wait to write: some ten milliseconds.
_BYTES_AT_ONCE: Final = 16 * 1024 * 1024
_FILE_HEADER: Final = 100
# Kinds of pages that have rows, with the length of their header. Other pages begin with the
# number of a page, whose first byte differs from these unless the file has this many pages.
_HEADERS: Final = {2: 12, 5: 12, 10: 8, 13: 8}
_MAX_PAGES: Final = 2 << 24

_Identity = tuple[int, int]

_lock: Final = threading.Lock()
_counts: Final[dict[_Identity, int]] = {}
_opened: Final[dict[_Identity, list[FileIO]]] = {}


class Progress(Enum):
    """How far an eraser has come."""

    DONE = "done"
    MORE = "more"
    BLOCKED = "blocked"


class Eraser:
    """Erases deleted content from one database file, in steps."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal = path.with_name(f"{path.name}-wal")
        self._file: FileIO | None = None
        self._place = 0
        self._due = 0
        self._is_closed = False
        found = path.stat()
        self._identity = (found.st_dev, found.st_ino)
        with _lock:
            _counts[self._identity] = _counts.get(self._identity, 0) + 1

    def is_due(self, connection: sqlite3.Connection) -> bool:
        """Return whether something was removed that may still be in the file."""
        due, done = _counters(connection)
        return done < due

    def step(self, connection: sqlite3.Connection) -> Progress:
        """Do a part of the work. The connection must not be used for anything after this.

        BLOCKED if a reader or another writer is in the way: try again later. DONE when all that
        was due at the first step is erased, by us or by another process.
        """
        due, done = _counters(connection)
        if not self._place:
            self._due = due
        if self._due <= done:
            self._place = 0
            return Progress.DONE
        try:
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                return Progress.BLOCKED
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if is_locked(error):
                return Progress.BLOCKED
            raise
        if self._journal.exists() and self._journal.stat().st_size:
            return Progress.BLOCKED  # another writer was faster
        place = self._clear_some()
        touch(connection)
        if not place:
            connection.execute("UPDATE erasure SET done = max(done, ?)", (self._due,))
        connection.execute("COMMIT")
        # Not earlier: without the commit, others may write back what we cleared.
        self._place = place
        return Progress.MORE if place else Progress.DONE

    def close(self) -> None:
        """Release the file, for a store that has closed its connections. The last closes it."""
        with _lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._file is not None:
                _opened.setdefault(self._identity, []).append(self._file)
                self._file = None
            _counts[self._identity] -= 1
            if not _counts[self._identity]:
                del _counts[self._identity]
                for file in _opened.pop(self._identity, []):
                    file.close()

    def _clear_some(self) -> int:
        """Clear the gaps of some pages; return where to go on, 0 at the end."""
        if self._file is None:
            self._file = FileIO(self._path, "r+")
        page_size = _page_size(self._file)
        size = os.fstat(self._file.fileno()).st_size
        if size // page_size >= _MAX_PAGES:
            return 0
        self._file.seek(self._place)
        data = self._file.read(_BYTES_AT_ONCE)
        for begin, end in find_gaps(data, page_size, is_first=not self._place):
            self._file.seek(self._place + begin)
            self._file.write(bytes(end - begin))
        place = self._place + len(data)
        if place < size and data:
            return place
        os.fsync(self._file.fileno())
        return 0


def mark(connection: sqlite3.Connection) -> None:
    """Count a removal in this transaction as due for erasure."""
    connection.execute("UPDATE erasure SET due = due + 1")


def find_gaps(data: bytes, page_size: int, *, is_first: bool) -> Iterator[tuple[int, int]]:
    """Yield begin and end of every gap in these pages that is not empty."""
    for page in range(0, len(data) - page_size + 1, page_size):
        head = page + (_FILE_HEADER if is_first and not page else 0)
        header = _HEADERS.get(data[head])
        if header is None:
            continue
        rows, content = unpack_from(">HH", data, head + 3)
        begin, end = head + header + 2 * rows, page + (content or 65_536)
        if begin < end <= page + page_size and data.count(0, begin, end) < end - begin:
            yield begin, end


def _counters(connection: sqlite3.Connection) -> tuple[int, int]:
    due, done = connection.execute("SELECT due, done FROM erasure").fetchone()
    return due, done


def _page_size(file: FileIO) -> int:
    file.seek(16)
    (size,) = unpack_from(">H", file.read(2))
    return 65_536 if size == 1 else int(size)
