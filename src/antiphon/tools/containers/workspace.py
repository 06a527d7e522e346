"""One running container in this process: its folder, its sandbox, and the files between them.

Before each use, the folder gets what callers have added to the container or removed from it since.
After each use, what the program has made or changed goes into the store, and what it removed is
removed there. The store is the truth between uses: another process begins with what is stored.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from antiphon.store.base import Blob, ContainerFile, Store
from antiphon.tools.containers.folder import (
    MOUNT,
    Entry,
    Scan,
    Stamp,
    changes,
    copy_out,
    place_file,
    remove_file,
    scan,
)
from antiphon.tools.containers.settings import ContainerSettings
from antiphon.tools.sandbox.base import CellEnd, CellOutput, Sandbox, ShellEnd
from antiphon.tools.sandbox.locked_folder import LockedFolder

__all__ = ["Collected", "Workspace"]

_PAGE: Final = 100
_PIECE: Final = 1024 * 1024
_MOST_NOTES: Final = 20

Mint = Callable[[str], str]


class Collected(msgspec.Struct, frozen=True):
    """What a program has done to the files, as it was stored."""

    changed: list[ContainerFile]
    removed: list[str]
    """Paths."""
    left_out: list[str]
    """What was not stored, and why."""


class _Known(msgspec.Struct, frozen=True):
    """A file that is the same in the folder and in the store."""

    file: ContainerFile
    stamp: Stamp


class Workspace:
    """The folder of a container, and the sandbox that works in it."""

    def __init__(
        self,
        store: Store,
        owner: str,
        container_id: str,
        root: LockedFolder,
        settings: ContainerSettings,
    ) -> None:
        self.owner = owner
        self.container_id = container_id
        self.folder = root.path / "data"
        self.skills_folder = root.path / "skills"
        self.sandbox: Sandbox | None = None
        self.has_lost_state = False
        """Whether the interpreter has none of the variables of cells that ran before."""
        self.has_run = False
        """Whether something ran in this sandbox."""
        self._is_closed = False
        self._root = root
        self._store = store
        self._settings = settings
        self._known: dict[str, _Known] = {}

    @property
    def is_alive(self) -> bool:
        """Whether the interpreter runs and has its variables."""
        return self.sandbox is not None and self.sandbox.is_alive

    @property
    def made_files(self) -> list[ContainerFile]:
        """The files that programs have made, as they are stored."""
        return [one.file for one in self._known.values() if one.file.source == "assistant"]

    # Running.

    def run(self, code: str, seconds: float) -> AsyncIterator[CellOutput | CellEnd]:
        """Run a cell in the sandbox."""
        assert self.sandbox is not None
        return self.sandbox.run(code, seconds)

    def shell(
        self, command: str, seconds: float, output_bytes: int
    ) -> AsyncIterator[CellOutput | ShellEnd]:
        """Run a command in the sandbox."""
        assert self.sandbox is not None
        return self.sandbox.shell(command, seconds, output_bytes)

    async def close(self) -> None:
        """Kill everything in the sandbox, and remove the folder. Once is enough."""
        if self._is_closed:
            return
        self._is_closed = True
        if self.sandbox is not None:
            await self.sandbox.close()
        await asyncio.to_thread(self._root.remove)

    # From the store to the folder.

    async def bring_in(self) -> None:
        """Put what callers have added or changed into the folder; remove what they removed."""
        stored = {file.path: file async for file in self._stored()}
        for path in [path for path in self._known if path not in stored]:
            del self._known[path]
            await asyncio.to_thread(remove_file, self.folder, path)
        for path, file in stored.items():
            known = self._known.get(path)
            if known is None or known.file.blob.id != file.blob.id:
                await self._bring(file)

    async def _stored(self) -> AsyncIterator[ContainerFile]:
        after: str | None = None
        while True:
            page = await self._store.containers.files(
                self.owner, self.container_id, after=after, limit=_PAGE, is_descending=False
            )
            for file in page:
                yield file
            if len(page) < _PAGE:
                return
            after = page[-1].id

    async def _bring(self, file: ContainerFile) -> None:
        with tempfile.TemporaryFile() as copy:
            await self._copy_blob(file.blob, copy.fileno())
            stamp = await asyncio.to_thread(
                place_file, self.folder, file.path, lambda to: _copy(copy.fileno(), to)
            )
        self._known[file.path] = _Known(file, stamp)

    async def _copy_blob(self, blob: Blob, to: int) -> None:
        offset = 0
        while piece := await self._store.blobs.read(self.owner, blob.id, offset, _PIECE):
            await asyncio.to_thread(_write_all, to, piece)
            offset += len(piece)

    # From the folder to the store.

    async def collect(self, mint: Mint, now: int) -> Collected:
        """Store what the program has made, changed and removed; return it."""
        found = await asyncio.to_thread(scan, self.folder)
        stamps = {path: one.stamp for path, one in self._known.items()}
        new, gone = changes(found.entries, stamps)
        collected = Collected([], gone, found.left_out[:_MOST_NOTES])
        for path in gone:
            await self._drop(path)
        room = self._room(found)
        for entry in new:
            why = room(entry)
            if why:
                collected.left_out.append(f"{entry.path}: {why}")
                await self._drop(entry.path)
                continue
            file = await self._keep(entry, mint, now)
            if file is not None:
                collected.changed.append(file)
        return collected

    async def add_image(self, image: bytes, mint: Mint, now: int) -> ContainerFile | None:
        """Put a displayed image into the folder as a new file, and store it."""
        number = 1
        while (path := f"{MOUNT}/image-{number}.png") in self._known:
            number += 1
        stamp = await asyncio.to_thread(
            place_file, self.folder, path, lambda to: _write_all(to, image)
        )
        return await self._keep(Entry(path, len(image), stamp), mint, now)

    async def _drop(self, path: str) -> None:
        known = self._known.pop(path, None)
        if known is not None:
            await self._store.containers.remove_file(self.owner, self.container_id, known.file.id)

    def _room(self, found: Scan) -> Callable[[Entry], str]:
        """Return what decides why a file cannot be kept; empty if it can."""
        kept = [one for one in found.entries if one.path in self._known]
        settings, used = self._settings, [len(kept), sum(one.size for one in kept)]

        def why(entry: Entry) -> str:
            is_new = entry.path not in self._known
            if entry.size > settings.file_bytes:
                return f"larger than {settings.file_bytes} bytes, not kept"
            if used[0] + is_new > settings.file_count:
                return f"more than {settings.file_count} files, not kept"
            if used[1] + is_new * entry.size > settings.total_bytes:
                return f"more than {settings.total_bytes} bytes in all files, not kept"
            used[0] += is_new
            used[1] += is_new * entry.size
            return ""

        return why

    async def _keep(self, entry: Entry, mint: Mint, now: int) -> ContainerFile | None:
        """Store a file; None if it cannot be read any more, or the container is gone."""
        known = self._known.get(entry.path)
        blob = await self._store_blob(entry)
        if blob is None:
            return None
        file = ContainerFile(
            id=known.file.id if known else mint("cfile"),
            path=entry.path,
            source="assistant",
            created_at=known.file.created_at if known else now,
            blob=blob,
        )
        kept = await self._store.containers.put_file(self.owner, self.container_id, file)
        if kept is not None:
            self._known[entry.path] = _Known(kept, entry.stamp)
        return kept

    async def _store_blob(self, entry: Entry) -> Blob | None:
        writer = await self._store.blobs.create(self.owner)
        try:
            pieces = copy_out(self.folder, entry.path, self._settings.file_bytes)
            while (piece := await asyncio.to_thread(next, pieces, b"")) != b"":
                await writer.write(piece)
            return await writer.finish()
        except OSError:  # a program that still runs has removed or replaced it
            return None
        finally:
            await writer.abort()


def _write_all(to: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(to, view) :]


def _copy(source: int, to: int) -> None:
    os.lseek(source, 0, os.SEEK_SET)
    while piece := os.read(source, _PIECE):
        _write_all(to, piece)
