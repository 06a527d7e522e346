"""One SQLite file that is in use: the thread that writes to it, and the one that reads."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite.connection import SameFile, connect, look, touch, unavailable
from antiphon.store.sqlite.erasure import Eraser
from antiphon.store.sqlite.migrations import STORE, Schema
from antiphon.store.sqlite.queue import WriteQueue
from antiphon.store.sqlite.worker import Reader, Writer
from antiphon.store.trouble import Trouble

__all__ = ["DatabaseFile"]

# SQLite itself waits this long for a lock; the writer tries again until `patience` is over.
_LOCK_WAIT: Final = 0.1


class DatabaseFile:
    """An open file. Raises StoreUnavailable if it cannot be opened."""

    def __init__(
        self, path: Path, patience: float, max_bytes: int | None, schema: Schema = STORE
    ) -> None:
        open_ = partial(connect, path, schema=schema)
        try:
            open_(patience=patience).close()
            self._eraser = Eraser(path)
            check, trouble = SameFile(path).check, Trouble(str(path))
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            raise unavailable(error) from error
        lock_wait = min(_LOCK_WAIT, patience)
        self.writer = Writer(
            partial(open_, patience=lock_wait, max_bytes=max_bytes),
            patience,
            check,
            trouble,
            self._eraser,
            WriteQueue(path),
        )
        self.reader = Reader(partial(open_, patience=patience), patience, check, trouble)

    async def ping(self) -> None:
        """Return if the file can be written and read now."""
        await self.writer.call(touch)
        await self.reader.call(look)

    async def close(self) -> None:
        """Write what is queued, and end both threads."""
        await self.reader.close()
        await self.writer.close()
        self._eraser.close()
