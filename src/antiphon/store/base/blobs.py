"""Facet `blobs`: the contents of files, which may be large.

A blob is written in pieces and read in pieces; nobody needs to have it whole in memory. It belongs
to the row that names it (a file, a part of an upload, a file in a container, a version of a
skill), and goes with that row. One that no row has named for a day was left by a crash, and is
swept. After it is gone, no byte of it is left in the files of the store.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Blob", "BlobWriter", "Blobs"]


class Blob(msgspec.Struct, frozen=True):
    """What was written."""

    id: str
    size: int
    sha256: bytes


class BlobWriter(Protocol):
    """Writes one blob. Whoever does not `finish` it must `abort` it."""

    async def write(self, data: bytes) -> None:
        """Add a piece of any size."""
        ...

    async def finish(self) -> Blob:
        """End it. Durable on return."""
        ...

    async def abort(self) -> None:
        """Remove what was written. After `finish` this does nothing."""
        ...


class Blobs(Protocol):
    """The blobs of all owners. Ids are made here, are random, and are never shown to callers."""

    async def create(self, owner: str) -> BlobWriter:
        """Begin a blob."""
        ...

    async def read(self, owner: str, blob: str, offset: int, size: int) -> bytes:
        """Return at most so many bytes from there on; none at the end, or if there is no blob."""
        ...
