"""Facet `containers` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from antiphon.store.base import Claim, ClaimRequest, Container, ContainerFile
from antiphon.store.base.files import ENDED_SECONDS
from antiphon.store.memory.blobs import MemoryBlobs
from antiphon.store.memory.claims import MemoryClaims
from antiphon.store.memory.rows import Rows, page_of

__all__ = ["MemoryContainers"]


class MemoryContainers:
    """See `Containers` for what the methods do."""

    def __init__(
        self, check_open: Callable[[], None], blobs: MemoryBlobs, claims: MemoryClaims
    ) -> None:
        self._check_open = check_open
        self._blobs = blobs
        self._claims = claims
        self._containers: Rows[Container] = Rows()
        # By owner and container, then by path.
        self._files: dict[tuple[str, str], dict[str, ContainerFile]] = {}

    async def add(
        self,
        owner: str,
        container: Container,
        files: Sequence[ContainerFile] = (),
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        earlier = await self.claimed(owner, once) if once is not None else None
        if earlier is not None:
            self._blobs.drop(owner, *(file.blob.id for file in files))
            return earlier
        if self._containers.get(owner, container.id) is not None:
            raise ValueError(f"there already is a container {container.id!r}")
        self._blobs.name(owner, *(file.blob.id for file in files))
        self._containers.put(owner, _copy(container))
        self._files[owner, container.id] = {}
        for file in files:
            self._put(owner, container.id, file)
        self._claims.note_once(owner, once, container.id)
        return None

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        self._check_open()
        earlier = self._claims.earlier(owner, once)
        if earlier is None or self._containers.get(owner, earlier.response_id) is None:
            return None
        return earlier

    async def find(self, owner: str, container_id: str) -> Container | None:
        self._check_open()
        found = self._containers.get(owner, container_id)
        return None if found is None else _copy(found)

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[Container]:
        self._check_open()
        found = page_of(self._containers.of(owner), after, limit, is_descending)
        return [_copy(container) for container in found]

    async def use(self, owner: str, container_id: str, now: int) -> Container | None:
        return await self._change(owner, container_id, now)

    async def start(self, owner: str, container_id: str, holder: str, now: int) -> Container | None:
        found = await self.find(owner, container_id)
        generation = 0 if found is None else found.generation + 1
        return await self._change(owner, container_id, now, holder=holder, generation=generation)

    async def remove(self, owner: str, container_id: str) -> bool:
        self._check_open()
        self._empty(owner, container_id)
        self._files.pop((owner, container_id), None)
        return self._containers.pop(owner, container_id) is not None

    async def put_file(
        self, owner: str, container_id: str, file: ContainerFile
    ) -> ContainerFile | None:
        self._check_open()
        if self._containers.get(owner, container_id) is None:
            self._blobs.drop(owner, file.blob.id)
            return None
        self._blobs.name(owner, file.blob.id)
        return self._put(owner, container_id, file)

    async def files(
        self,
        owner: str,
        container_id: str,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool,
    ) -> list[ContainerFile]:
        self._check_open()
        return page_of(self._in(owner, container_id), after, limit, is_descending)

    async def find_file(self, owner: str, container_id: str, file_id: str) -> ContainerFile | None:
        self._check_open()
        found = [file for file in self._in(owner, container_id) if file.id == file_id]
        return found[0] if found else None

    async def remove_file(self, owner: str, container_id: str, file_id: str) -> bool:
        file = await self.find_file(owner, container_id, file_id)
        if file is None:
            return False
        del self._files[owner, container_id][file.path]
        self._blobs.remove(owner, file.blob.id)
        return True

    def sweep(self, now: int, limit: int) -> int:
        """Remove the files of expired containers, and those that expired long ago."""
        expired = [key for key, files in self._files.items() if files and self._is_over(key, now)]
        for key in expired[:limit]:
            self._empty(*key)
        old = self._containers.find(lambda one: one.is_expired(now - ENDED_SECONDS), limit)
        for owner, one in old:
            self._containers.pop(owner, one.id)
            self._files.pop((owner, one.id), None)
        return max(len(expired[:limit]), len(old))

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        files = sum(len(files) for (name, _), files in self._files.items() if name == owner)
        return {"containers": len(self._containers.of(owner)), "container_files": files}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        self._containers.forget_owner(owner)
        for key in [key for key in self._files if key[0] == owner]:
            del self._files[key]

    def clear(self) -> None:
        """Remove everything."""
        self._containers.clear()
        self._files.clear()

    async def _change(
        self,
        owner: str,
        container_id: str,
        now: int,
        **fields: Any,  # Any: those of Container
    ) -> Container | None:
        found = await self.find(owner, container_id)
        if found is None or found.is_expired(now):
            return None
        used_at = max(now, found.last_active_at)
        changed = msgspec.structs.replace(found, last_active_at=used_at, **fields)
        self._containers.put(owner, _copy(changed))
        return changed

    def _in(self, owner: str, container_id: str) -> Sequence[ContainerFile]:
        return list(self._files.get((owner, container_id), {}).values())

    def _put(self, owner: str, container_id: str, file: ContainerFile) -> ContainerFile:
        files = self._files[owner, container_id]
        replaced = files.get(file.path)
        if replaced is not None:
            self._blobs.remove(owner, replaced.blob.id)
            file = msgspec.structs.replace(file, id=replaced.id)
        files[file.path] = file
        return file

    def _empty(self, owner: str, container_id: str) -> None:
        files = self._in(owner, container_id)
        self._blobs.remove(owner, *(file.blob.id for file in files))
        self._files[owner, container_id] = {}

    def _is_over(self, key: tuple[str, str], now: int) -> bool:
        container = self._containers.get(*key)
        return container is None or container.is_expired(now)


def _copy(container: Container) -> Container:
    """Return it with settings that are shared with no caller."""
    settings = msgspec.json.decode(msgspec.json.encode(container.settings))
    return msgspec.structs.replace(container, settings=settings)
