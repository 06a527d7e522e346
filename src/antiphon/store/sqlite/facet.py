"""What do the facets of one store in SQLite share, and how do they read?"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from antiphon.protocol.errors import AntiphonError, StoreUnavailable
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.connection import SameFile, connect, unavailable
from antiphon.store.sqlite.erasure import Eraser
from antiphon.store.sqlite.presence import Presence, count_alive
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.worker import Reader, Writer
from antiphon.store.trouble import Trouble
from antiphon.store.waiting import Waiters

__all__ = ["Facet", "do_nothing"]

# SQLite itself waits this long for a lock; the writer tries again until `patience` is over.
_LOCK_WAIT: Final = 0.1

_T = TypeVar("_T")


class Facet:
    """The threads, the sign of life and the waiting callers of one store."""

    def __init__(
        self, path: str | os.PathLike[str], patience: float, max_bytes: int | None
    ) -> None:
        self.path = Path(path).absolute()
        try:
            connect(self.path, patience=patience).close()
            count_alive(self.path)  # removes the files of stores that have died
            self._presence = Presence(self.path)
            self._eraser = Eraser(self.path)
            check, trouble = SameFile(self.path).check, Trouble(str(self.path))
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            raise StoreUnavailable(f"{self.path}: {unavailable(error).message}") from error
        lock_wait = min(_LOCK_WAIT, patience)
        self._writer = Writer(
            partial(connect, self.path, patience=lock_wait, max_bytes=max_bytes),
            patience,
            check,
            trouble,
            self._eraser,
            WriteQueue(self.path),
        )
        self._reader = Reader(
            partial(connect, self.path, patience=patience), patience, check, trouble
        )
        self._waiters = Waiters()

    async def _read(
        self, name: str, run: Callable[[sqlite3.Connection], _T | AntiphonError | None]
    ) -> _T | None:
        """Return what is stored under this name; None also if it cannot be a name."""
        if not is_storable(name):
            return None
        # Checked first: what was queued may be written while we read, and still be missed.
        is_writing = self._writer.is_busy
        found = await self._reader.call(run)
        if found is None and is_writing:
            await self._writer.call(do_nothing)
            found = await self._reader.call(run)
        return found


def do_nothing(_: sqlite3.Connection) -> bool:
    """Do nothing: the caller waits for the transaction of all jobs before this one."""
    return True
