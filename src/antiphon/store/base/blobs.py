"""Facet `blobs`: the contents of files, which may be large.

A blob is written in pieces and read in pieces, so that it need not be in memory as a whole. It
belongs to the one row that names it (a file, a part of an upload, a file in a container, a version
of a skill), and is removed with that row. A blob that no row has named for a day was left by a
crash, and is swept. After it is removed, no byte of it is left in the files of the store.
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from antiphon.protocol.errors import StoreUnavailable

__all__ = ["PIECE_BYTES", "UNNAMED_SECONDS", "Blob", "BlobGone", "BlobWriter", "Blobs"]

PIECE_BYTES: Final = 1024 * 1024
"""So much of a blob is written at once."""

UNNAMED_SECONDS: Final = 86_400
"""For so long a blob may be without a row that names it."""


class BlobGone(StoreUnavailable):
    """A row names a blob that is not there, or belongs to another row: nothing was stored."""

    def __init__(self) -> None:
        super().__init__(
            "the content is not in the store any more; nothing was stored: send it again"
        )


class Blob(msgspec.Struct, frozen=True):
    """What was written."""

    id: str
    size: int
    sha256: bytes


class BlobWriter(Protocol):
    """Writes one blob. A caller that does not `finish` it must `abort` it."""

    async def write(self, data: bytes) -> None:
        """Add a piece of any size."""
        ...

    async def finish(self) -> Blob:
        """End the blob; durable on return. A failed one can only be aborted."""
        ...

    async def abort(self) -> None:
        """Remove what was written. After `finish` this does nothing.

        Never raises: what cannot be removed now is swept later.
        """
        ...


class Blobs(Protocol):
    """The blobs of all owners. Ids are made here, are random, and are never shown to callers."""

    async def create(self, owner: str) -> BlobWriter:
        """Begin a blob."""
        ...

    async def read(self, owner: str, blob: str, offset: int, size: int) -> bytes:
        """Return at most so many bytes from there on; none at the end, or if there is no blob."""
        ...
