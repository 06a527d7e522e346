"""What do the facets of one store in SQLite share, and how do they read?"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from antiphon.protocol.errors import AntiphonError, StoreUnavailable
from antiphon.store.encoding import is_storable
from antiphon.store.sqlite.backlog import Job
from antiphon.store.sqlite.connection import create_file, unavailable
from antiphon.store.sqlite.database import DatabaseFile
from antiphon.store.sqlite.files_database import FilesDatabase
from antiphon.store.sqlite.presence import Presence, count_alive
from antiphon.store.waiting import Waiters

__all__ = ["Facet", "do_nothing"]

_T = TypeVar("_T")


class Facet:
    """The threads, the sign of life and the waiting callers of one store."""

    def __init__(
        self, path: str | os.PathLike[str], patience: float, max_bytes: int | None
    ) -> None:
        self.path = Path(path).absolute()
        try:
            self._presence = _sign_of_life(self.path)
            self._file = _open(self.path, patience, max_bytes, self._presence)
        except (OSError, StoreUnavailable) as error:
            raise StoreUnavailable(f"{self.path}: {unavailable(error).message}") from error
        self._writer, self._reader = self._file.writer, self._file.reader
        self.pulse = self._writer.pulse
        self._files = FilesDatabase(self.path, patience, max_bytes, self._presence)
        self._waiters = Waiters()
        self._writer.on_commit = partial(_wake_followers, self._waiters)

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


def _wake_followers(waiters: Waiters, jobs: list[Job]) -> None:
    """Wake the callers that wait for more of a log, for all logs of a commit at once."""
    if waiters.is_empty:
        return
    for job in jobs:
        response_id: str | None = getattr(job.run, "response_id", None)
        if response_id is not None:
            waiters.wake(response_id)


def _sign_of_life(path: Path) -> Presence:
    create_file(path)  # and its directory
    count_alive(path)  # removes the files of stores that have died
    return Presence(path)


def _open(path: Path, patience: float, max_bytes: int | None, presence: Presence) -> DatabaseFile:
    try:
        return DatabaseFile(path, patience, max_bytes)
    except StoreUnavailable:
        presence.close()
        raise


def do_nothing(_: sqlite3.Connection) -> bool:
    """Do nothing: the caller waits for the transaction of all jobs before this one."""
    return True
