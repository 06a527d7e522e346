"""The folder `PATH-blobs` with the contents of blobs, one file for each.

Names are random and made here; none comes from a caller. A blob is written as `new/ID`, synced and
then renamed to `ID`, so what has its final name is complete. Only our user may read the folder
(0700) and the files (0600), and no link is followed. Everything here runs in threads of its own,
never in the event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.sqlite.connection import unavailable
from antiphon.store.trouble import Trouble

__all__ = ["BlobFolder", "Draft"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_THREADS: Final = 4
# Windows has neither.
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)


class BlobFolder:
    """The folder. It is created when the first blob is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._new = path / "new"
        self._trouble = Trouble(str(path))
        # The threads are started when they are needed.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="blobs")

    async def run(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what this returns, in a thread. Raise StoreUnavailable for faults of the disk."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))
        except OSError as error:
            fault = unavailable(error)
            self._trouble.report(fault.message)
            raise fault from error
        except RuntimeError as error:  # the threads were ended
            raise StoreUnavailable("the store is closed") from error

    async def begin(self, blob: str) -> Draft:
        """Begin to write a blob."""
        return await self.run(self.draft, blob)

    async def publish(self, draft: Draft) -> None:
        """Give a draft its final name, durable on return."""
        await self.run(draft.publish)
        self._trouble.end()

    async def read(self, blob: str, offset: int, size: int) -> bytes | None:
        """Return at most so many bytes from there on; None if there is no such blob."""
        return await self.run(self.load, blob, offset, size)

    async def remove(self, blobs: Sequence[str]) -> None:
        """Delete the contents of these blobs, those of them that are there."""
        if blobs:
            await self.run(self.delete, blobs)

    async def sweep(self, before: float, limit: int) -> int:
        """Delete what was begun before this time and is not complete; return how much."""
        return await self.run(self._sweep, before, limit)

    def close(self) -> None:
        """Start no further work; what has begun is completed."""
        self._threads.shutdown(wait=False)

    # For any thread but that of an event loop.

    def draft(self, blob: str) -> Draft:
        """Begin to write a blob."""
        if not self._new.is_dir():
            for folder in (self.path, self._new):
                folder.mkdir(mode=0o700, exist_ok=True)
                _sync_folder(folder.parent)
        return Draft(self._new / blob, self.path / blob)

    def load(self, blob: str, offset: int, size: int) -> bytes | None:
        """Return at most so many bytes from there on; None if there is no such blob."""
        try:
            file = os.open(self.path / blob, os.O_RDONLY | _NO_LINK | _BINARY)
        except FileNotFoundError:
            return None
        with os.fdopen(file, "rb", buffering=0) as opened:
            opened.seek(offset)
            return opened.read(size)

    def delete(self, blobs: Sequence[str]) -> None:
        """Delete the contents of these blobs, those of them that are there."""
        for blob in blobs:
            for folder in (self.path, self._new):
                with suppress(FileNotFoundError):
                    (folder / blob).unlink()
        _sync_folder(self.path)

    def size(self) -> int:
        """Return how many bytes all contents take."""
        if not self.path.is_dir():
            return 0
        return sum(one.stat().st_size for one in self.path.rglob("*") if one.is_file())

    def _sweep(self, before: float, limit: int) -> int:
        removed = 0
        with suppress(FileNotFoundError), os.scandir(self._new) as found:
            for entry in found:
                if removed < limit and entry.stat(follow_symlinks=False).st_mtime < before:
                    (self._new / entry.name).unlink(missing_ok=True)
                    removed += 1
        return removed


class Draft:
    """A blob that is being written. Any thread may call it, also after its caller has gone."""

    def __init__(self, new: Path, final: Path) -> None:
        self._new = new
        self._final = final
        self._guard = threading.Lock()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
        self._file = os.fdopen(os.open(new, flags, 0o600), "wb", buffering=0)
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add a piece. After `discard` this does nothing."""
        with self._guard:
            if self._file.closed:
                return
            rest = memoryview(data)
            while rest:  # a nearly full disk may take a part
                rest = rest[self._file.write(rest) :]
            self._hash.update(data)
            self.size += len(data)

    def sync(self) -> bytes:
        """Make durable what was written; return its digest. Nothing can be added any more."""
        with self._guard:
            if not self._file.closed:
                os.fsync(self._file.fileno())
                self._file.close()
            return self._hash.digest()

    def publish(self) -> None:
        """Give it its final name, durable on return."""
        with self._guard:
            self._new.rename(self._final)
            _sync_folder(self._final.parent)

    def discard(self) -> None:
        """Delete it, under whichever name it has."""
        with self._guard:
            self._file.close()
            for path in (self._new, self._final):
                path.unlink(missing_ok=True)


def _sync_folder(path: Path) -> None:
    if os.name == "nt":  # a folder cannot be opened there
        return
    with suppress(FileNotFoundError):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
