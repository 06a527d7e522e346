"""The second database of a store, `PATH-files`, with what belongs to the files of callers.

It has threads of its own, so that indexing and uploads never delay the logs of running streams.
It is opened when it is first used: a gateway that stores no files has no second file. Facets give
it functions that get a connection inside a transaction, as in the main file (see `worker`).

A change that removes blobs marks them as removed in its transaction and names them in `gone`.
After the commit their contents are deleted, and then their rows. So after a crash there is never
a row without its content, and the next sweep completes what was begun.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite.database import DatabaseFile
from antiphon.store.sqlite.erasure import mark
from antiphon.store.sqlite.files_migrations import FILES
from antiphon.store.sqlite.folder import BlobFolder
from antiphon.store.sqlite.presence import Presence
from antiphon.store.trouble import Trouble

__all__ = ["FilesDatabase", "Gone"]

_T = TypeVar("_T")
Gone = list[str]
"""The ids of blobs that a change has removed."""


class FilesDatabase:
    """The database, and the folder with the contents of blobs."""

    def __init__(
        self, store: Path, patience: float, max_bytes: int | None, presence: Presence
    ) -> None:
        self.path = store.with_name(f"{store.name}-files")
        self.folder = BlobFolder(store.with_name(f"{store.name}-blobs"))
        self.presence = presence
        self.max_bytes = max_bytes
        self._patience = patience
        self._lock = threading.Lock()
        self._file: DatabaseFile | None = None
        self._trouble = Trouble(str(self.path))
        self._is_closed = False
        self._running: set[asyncio.Task[Any]] = set()

    async def exists(self) -> bool:
        """Return whether anything was ever stored here."""
        return self._file is not None or await asyncio.to_thread(self.path.exists)

    async def read(self, run: Callable[[sqlite3.Connection], _T | Exception]) -> _T:
        """Return what this finds in one state of the database."""
        return await (await self._opened()).reader.call(run)

    async def write(self, run: Callable[[sqlite3.Connection], _T | Exception], size: int = 0) -> _T:
        """Change something that removes no blob; durable on return."""
        return await (await self._opened()).writer.call(run, size)

    async def change(
        self, run: Callable[[sqlite3.Connection, Gone], _T | Exception], size: int = 0
    ) -> _T:
        """Change something; durable on return. Then delete the contents of `gone` blobs."""
        return await self._to_the_end(self._change_all(run, size))

    async def remove(self, run: Callable[[sqlite3.Connection, Gone], bool | Exception]) -> bool:
        """Like `change`, for a removal: a result True is returned when everything is erased."""
        return await self._to_the_end(self._remove_all(run))

    async def ping(self) -> None:
        """Return if the database can be used now, or was not used yet."""
        if self._file is not None:
            await self._file.ping()

    async def close(self) -> None:
        """Complete what has begun, and close files and threads."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(task for task in self._running if task.get_loop() is loop), return_exceptions=True
        )
        with self._lock:
            self._is_closed = True
        if self._file is not None:
            await self._file.close()
        self.folder.close()

    async def _opened(self) -> DatabaseFile:
        if self._file is not None:
            return self._file
        return await asyncio.to_thread(self._open)

    def _open(self) -> DatabaseFile:
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable("the store is closed")
            if self._file is not None:
                return self._file
            try:
                opened = DatabaseFile(self.path, self._patience, self.max_bytes, FILES)
            except StoreUnavailable as error:
                self._trouble.report(error.message)
                raise
            self._trouble.end()
            self._file = opened
            return opened

    async def _to_the_end(self, doing: Coroutine[Any, Any, _T]) -> _T:
        """Return the result. If the caller is cancelled, the work goes on: it may be committed."""
        task = asyncio.create_task(doing)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may have gone

    async def _change_all(
        self, run: Callable[[sqlite3.Connection, Gone], _T | Exception], size: int
    ) -> _T:
        result, gone = await self._change(run, size)
        if gone:
            await self._clean_up(gone)
        return result

    async def _remove_all(
        self, run: Callable[[sqlite3.Connection, Gone], bool | Exception]
    ) -> bool:
        def job(connection: sqlite3.Connection, gone: Gone) -> bool | Exception:
            is_removed = run(connection, gone)
            if is_removed is True:
                mark(connection)
            return is_removed

        result, gone = await self._change(job, 0)
        if result:
            await self._erase(gone)
        return result

    async def _change(
        self, run: Callable[[sqlite3.Connection, Gone], _T | Exception], size: int
    ) -> tuple[_T, Gone]:
        gone: Gone = []

        def job(connection: sqlite3.Connection) -> _T | Exception:
            gone.clear()  # a transaction that failed is tried again
            return run(connection, gone)

        return await self.write(job, size), gone

    async def _clean_up(self, gone: Sequence[str]) -> None:
        """Delete the contents of these blobs, and soon after that their rows."""
        await self.folder.remove(gone)
        (await self._opened()).writer.post(
            lambda connection: _forget(connection, gone), 0, is_removal=True
        )

    async def _erase(self, gone: Sequence[str]) -> None:
        """Delete the contents of these blobs, then their rows; return when all is erased."""
        await self.folder.remove(gone)
        await (await self._opened()).writer.remove(lambda connection: _forget(connection, gone))


def _forget(connection: sqlite3.Connection, gone: Sequence[str]) -> bool:
    connection.executemany(
        "DELETE FROM blobs WHERE id = ? AND state = 2", [(blob,) for blob in gone]
    )
    mark(connection)
    return True
