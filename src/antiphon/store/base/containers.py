"""Facet `containers`: the places where code runs, and the files in them.

A container is a row and its files. The running interpreter is not stored: it lives in the process
that uses the container, and if that ends, the files are still here and the variables are lost. A
container that was not used for `idle_seconds` has expired and cannot be used again: the next sweep
removes its files, and the container itself is found for a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from antiphon.store.base.blobs import Blob
from antiphon.store.base.claims import Claim, ClaimRequest

__all__ = ["Container", "ContainerFile", "Containers"]


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container. `settings`: memory_limit, network_policy, skills, as the caller gave them."""

    id: str
    name: str
    created_at: int
    last_active_at: int
    idle_seconds: int
    settings: dict[str, Any] = {}
    generation: int = 0
    """Counts the interpreters that were started for it: a new one has none of the variables."""
    holder: str = ""
    """The process whose interpreter is the newest, by a name of its own."""

    def is_expired(self, now: int) -> bool:
        """Return whether it was not used for too long."""
        return now >= self.last_active_at + self.idle_seconds


class ContainerFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in a container. `path` is absolute, below /mnt/data; `source`: user, assistant."""

    id: str
    path: str
    source: str
    created_at: int
    blob: Blob


class Containers(Protocol):
    """The containers of all owners. An expired one is found, so that callers can be informed."""

    async def add(
        self,
        owner: str,
        container: Container,
        files: Sequence[ContainerFile] = (),
        once: ClaimRequest | None = None,
    ) -> Claim | None:
        """Store a container with its first files. Durable on return. `once` as in `Files.add`."""
        ...

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        """Return the claim that counts on this token, if what was made under it still exists."""
        ...

    async def find(self, owner: str, container_id: str) -> Container | None:
        """Return the container."""
        ...

    async def page(
        self, owner: str, *, after: str | None = None, limit: int, is_descending: bool
    ) -> list[Container]:
        """Return containers by time of creation. Raise KeyError if there is none `after`."""
        ...

    async def use(self, owner: str, container_id: str, now: int) -> Container | None:
        """Note that it is used now; None if it does not exist or has expired."""
        ...

    async def start(self, owner: str, container_id: str, holder: str, now: int) -> Container | None:
        """Note that `holder` starts an interpreter for it; return it with the new generation.

        This is a use, too: None if the container does not exist or has expired.
        """
        ...

    async def remove(self, owner: str, container_id: str) -> bool:
        """Remove it and its files; return whether there was one."""
        ...

    async def put_file(
        self, owner: str, container_id: str, file: ContainerFile
    ) -> ContainerFile | None:
        """Store a file, in place of one with the same path; return it as it is stored.

        The new content has the id of the one that it replaces, and `file.id` is not used then.
        None if there is no container: the blob is removed.
        """
        ...

    async def files(
        self,
        owner: str,
        container_id: str,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool,
    ) -> list[ContainerFile]:
        """Return its files by time of creation. Raise KeyError if there is none `after`."""
        ...

    async def find_file(self, owner: str, container_id: str, file_id: str) -> ContainerFile | None:
        """Return the file."""
        ...

    async def remove_file(self, owner: str, container_id: str, file_id: str) -> bool:
        """Remove a file and its content; return whether there was one."""
        ...
