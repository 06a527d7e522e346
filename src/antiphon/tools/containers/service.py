"""Containers for all turns and callers of a process: rows and files in the store, sandboxes here.

A container belongs to one owner; for others it does not exist. `use` gives a workspace whose
sandbox runs and whose folder has the files of the container. If the interpreter is not the one
that ran the last cell (the process was restarted, another one has the container, a cell was
killed), the workspace has lost its state, and the model is informed; its files are there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

import msgspec

from antiphon.protocol.container_paths import ContainerPaths
from antiphon.protocol.errors import InvalidRequest, NotFound
from antiphon.store.base import (
    Blob,
    Claim,
    ClaimRequest,
    Container,
    ContainerFile,
    Store,
    StoredFile,
)
from antiphon.tools.containers.folder import MOUNT, plain_name
from antiphon.tools.containers.running import Running, RunningContainer
from antiphon.tools.containers.settings import ContainerSettings
from antiphon.tools.containers.skills import SkillBook
from antiphon.tools.containers.workspace import Workspace
from antiphon.tools.sandbox.base import Engine, SandboxFailed, SandboxLimits
from antiphon.tools.sandbox.locked_folder import make_folder

__all__ = [
    "ContainerService",
    "ContainerWish",
    "EngineFinder",
    "FoundEngine",
    "ProbeState",
    "no_container",
    "no_file",
]

_log = logging.getLogger(__name__)
_PIECE: Final = 1024 * 1024
_GIB: Final = 1024**3


class ContainerWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a new container is to be, as far as it was checked."""

    name: str = ""
    files: Sequence[StoredFile] = ()
    memory_limit: str | None = None
    skills: Sequence[dict[str, Any]] = ()
    """Skills with numbered versions, or with their own data: see `skills`."""
    idle_seconds: int | None = None


class FoundEngine(msgspec.Struct, frozen=True):
    """The engine that programs run in; without one, the reason."""

    engine: Engine | None = None
    problem: str = "there is no sandbox here"


EngineFinder = Callable[[], Awaitable[FoundEngine]]
"""Finds out which engine holds here. It is called once: at the start, or for the first program."""
ProbeState = Literal["none", "probing", "usable", "unusable"]
"""What is known about the engines: nothing yet, or what the probe is doing or has found."""


class ContainerService:
    """The containers of this process. Without an engine no program runs, but files are served."""

    def __init__(
        self,
        store: Store,
        mint: Callable[[str], str],
        now: Callable[[], int],
        *,
        find_engine: EngineFinder | None = None,
        settings: ContainerSettings | None = None,
        limits: SandboxLimits | None = None,
    ) -> None:
        self.store = store
        self.mint = mint
        self.now = now
        self._find_engine = find_engine
        self._engine: asyncio.Future[FoundEngine] | None = None
        self.settings = settings or ContainerSettings()
        self.limits = limits or SandboxLimits()
        self.skills = SkillBook(store)
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        self.running = Running(
            self._is_live,
            most=self.settings.running,
            most_per_owner=self.settings.running_per_owner,
            seconds=self.settings.wait_seconds,
        )
        self._paths: WeakValueDictionary[tuple[str, str], ContainerPaths] = WeakValueDictionary()

    def paths_for(self, owner: str, response_id: str) -> ContainerPaths:
        """Return what finds files of containers in the answer of a turn; one for all its tools."""
        found = self._paths.get((owner, response_id))
        if found is None:
            found = self._paths[owner, response_id] = ContainerPaths()
        return found

    def begin_probe(self) -> None:
        """Begin to find out which engine holds here, beside everything else.

        A program that is to run before the end of it waits. Without a finder nothing begins.
        """
        if self._find_engine is not None and self._engine is None:
            self._engine = asyncio.ensure_future(self._find_engine())
            self._engine.add_done_callback(_log_fault)

    @property
    def probe_state(self) -> ProbeState:
        """How far finding out has come."""
        if self._engine is None:
            return "none"
        if not self._engine.done():
            return "probing"
        if self._engine.cancelled() or self._engine.exception() is not None:
            return "unusable"
        return "usable" if self._engine.result().engine is not None else "unusable"

    async def why_not(self) -> str:
        """Return why no program can run here; nothing if one can."""
        found = await self._found()
        return "" if found.engine is not None else found.problem

    async def engine(self) -> Engine:
        """Return the engine that holds here. Raise SandboxFailed if there is none."""
        found = await self._found()
        if found.engine is None:
            raise SandboxFailed(found.problem)
        return found.engine

    async def _found(self) -> FoundEngine:
        """Return the engine, looked for once, also if those who wait for it are cancelled."""
        self.begin_probe()
        return FoundEngine() if self._engine is None else await asyncio.shield(self._engine)

    # Rows.

    async def require(self, owner: str, container_id: str, param: str | None = None) -> Container:
        """Return a container that can be used. Raise NotFound."""
        found = await self._find(owner, container_id)
        if found is None:
            raise no_container(container_id, param)
        if found.is_expired(self.now()):
            raise NotFound(
                f"Container with id '{container_id}' has expired.",
                code="container_expired",
                param=param,
            )
        return found

    async def create(
        self, owner: str, wish: ContainerWish, once: ClaimRequest | None = None, id: str = ""
    ) -> Container | Claim:
        """Make a container with copies of these files; return it, or the claim of an earlier one.

        Raise InvalidRequest if the files are more than a container keeps.
        """
        files = await self._copy_files(owner, wish.files)
        now = self.now()
        kept = {"memory_limit": wish.memory_limit, "skills": list(wish.skills)}
        container = Container(
            id=id or self.mint("cntr"),
            name=wish.name,
            created_at=now,
            last_active_at=now,
            idle_seconds=wish.idle_seconds or self.settings.idle_minutes * 60,
            settings={name: value for name, value in kept.items() if value},
        )
        earlier = await self.store.containers.add(owner, container, files, once)
        return earlier or container

    async def remove(self, owner: str, container_id: str) -> bool:
        """Remove a container, its files and its sandbox; return whether there was one."""
        was_there = await self.store.containers.remove(owner, container_id)
        await self.running.remove(owner, container_id)
        return was_there

    async def add_file(
        self, owner: str, container_id: str, name: str, blob: Blob, path: str | None = None
    ) -> ContainerFile | None:
        """Store a file of a caller's, whose blob is written; None if there is no container."""
        file = ContainerFile(
            id=self.mint("cfile"),
            path=path or f"{MOUNT}/{plain_name(name)}",
            source="user",
            created_at=self.now(),
            blob=blob,
        )
        return await self.store.containers.put_file(owner, container_id, file)

    async def find_files(self, owner: str, ids: Sequence[str], param: str) -> list[StoredFile]:
        """Return uploaded files. Raise NotFound if one is missing, InvalidRequest for too much."""
        found = await self.store.files.find(owner, ids, self.now())
        for file_id in ids:
            if file_id not in found:
                raise NotFound(
                    f"No such File object: {file_id}", code="file_not_found", param=param
                )
        files = [found[file_id] for file_id in dict.fromkeys(ids)]
        settings = self.settings
        is_large = any(file.size > settings.file_bytes for file in files)
        if len(files) > settings.file_count or is_large or _sum(files) > settings.total_bytes:
            raise InvalidRequest(
                f"{param}: a container keeps at most {settings.file_count} files of"
                f" {settings.file_bytes} bytes, {settings.total_bytes} bytes in all",
                code="container_full",
                param=param,
            )
        return files

    async def _copy_files(self, owner: str, files: Sequence[StoredFile]) -> list[ContainerFile]:
        names: dict[str, StoredFile] = {}
        for file in files:
            names.setdefault(_free_name(file, names), file)
        return [
            ContainerFile(
                id=self.mint("cfile"),
                path=f"{MOUNT}/{name}",
                source="user",
                created_at=self.now(),
                blob=await self.copy_blob(owner, file.blob),
            )
            for name, file in names.items()
        ]

    async def copy_blob(self, owner: str, blob: Blob) -> Blob:
        """Return a copy of a blob, for a row of its own."""
        writer = await self.store.blobs.create(owner)
        try:
            offset = 0
            while piece := await self.store.blobs.read(owner, blob.id, offset, _PIECE):
                await writer.write(piece)
                offset += len(piece)
            return await writer.finish()
        finally:
            await writer.abort()

    async def _find(self, owner: str, container_id: str) -> Container | None:
        return await self.store.containers.find(owner, container_id)

    async def _is_live(self, owner: str, container_id: str) -> bool:
        found = await self._find(owner, container_id)
        if found is None or found.is_expired(self.now()):
            return False
        return found.holder == self._holder

    # Sandboxes.

    @asynccontextmanager
    async def use(self, owner: str, container_id: str) -> AsyncIterator[Workspace]:
        """Hold a container alone while a program runs in it.

        Raise NotFound, NoRoom or SandboxFailed. A workspace that is left by an exception is
        closed: it is not known what runs in it.
        """
        async with self.running.use(owner, container_id) as entry:
            row = await self.store.containers.use(owner, container_id, self.now())
            if row is None:
                await entry.close()
                await self.require(owner, container_id)
                raise no_container(container_id)
            is_ours = row.holder == self._holder and row.generation == entry.generation
            if entry.workspace is not None and not is_ours:
                await entry.close()
            workspace = entry.workspace or await self._start(entry, row)
            try:
                if workspace.has_run and not workspace.is_alive:
                    workspace.has_lost_state = True
                await workspace.bring_in()
                yield workspace
                workspace.has_run, workspace.has_lost_state = True, False
            except BaseException:
                await entry.close()
                raise

    async def _start(self, entry: RunningContainer, row: Container) -> Workspace:
        """Start the sandbox of a container, with its files and skills."""
        found = await self._found()
        if found.engine is None:
            raise SandboxFailed(found.problem)
        owner, container_id = entry.key
        started = await self.store.containers.start(owner, container_id, self._holder, self.now())
        if started is None:
            raise no_container(container_id)
        root = await asyncio.to_thread(make_folder, self.settings.folder)
        workspace = Workspace(self.store, owner, container_id, root, self.settings)
        try:
            await workspace.bring_in()
            readable = await self.skills.unpack(owner, row.settings, workspace.skills_folder)
            limits = msgspec.structs.replace(
                self.limits, memory_bytes=memory_of(row.settings, self.limits)
            )
            workspace.sandbox = await found.engine.start(
                workspace.folder, limits, readable=readable
            )
        except BaseException:
            await workspace.close()
            raise
        workspace.has_lost_state = started.generation > 1
        entry.workspace, entry.generation = workspace, started.generation
        return workspace

    async def close(self) -> None:
        """Close all sandboxes."""
        await self.running.close()
        state, looking = self.probe_state, self._engine
        self._engine = None
        if looking is not None and state == "probing":
            looking.cancel()
            await asyncio.wait([looking])  # what it attacks is killed on the way
        elif looking is not None and state == "usable" and (engine := looking.result().engine):
            await engine.close()


def _log_fault(looking: asyncio.Future[FoundEngine]) -> None:
    """Log a fault of the finder itself: what it found out is logged by the finder."""
    if not looking.cancelled() and (error := looking.exception()) is not None:
        _log.error("no program is run: the probe of the sandbox failed", exc_info=error)


def memory_of(settings: dict[str, Any], limits: SandboxLimits) -> int:
    """Return how much memory a container gets: what was asked for, as far as it is allowed."""
    wanted = settings.get("memory_limit")
    return min(limits.memory_bytes, int(wanted[:-1]) * _GIB) if wanted else limits.memory_bytes


def no_container(container_id: str, param: str | None = None) -> NotFound:
    """Return the error for a container that does not exist for this owner."""
    return NotFound(
        f"Container with id '{container_id}' not found.", code="container_not_found", param=param
    )


def no_file(file_id: str) -> NotFound:
    """Return the error for a file that is not in a container."""
    return NotFound(f"File with id '{file_id}' not found in this container.", code="file_not_found")


def _sum(files: Sequence[StoredFile]) -> int:
    return sum(file.size for file in files)


def _free_name(file: StoredFile, taken: dict[str, StoredFile]) -> str:
    """Return the name of a file in the folder; with its id if another one has that name."""
    name = plain_name(file.filename)
    return plain_name(f"{file.id}-{name}") if name in taken else name
