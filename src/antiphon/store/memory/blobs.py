"""Facet `blobs` in memory. Bounded: beyond `max_bytes`, writing fails as on a full disk."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from antiphon.protocol.errors import StoreUnavailable
from antiphon.store.base.blobs import PIECE_BYTES, UNNAMED_SECONDS, Blob, BlobGone, BlobWriter
from antiphon.transport.aside import aside_if

__all__ = ["MemoryBlobs"]

# A blob counts as so many bytes more than it has: empty ones are bounded, too.
_ROW_BYTES: Final = 1024


@dataclass(slots=True)
class _Kept:
    owner: str
    pieces: list[bytes]
    size: int
    created_at: float
    is_named: bool = False


class MemoryBlobs:
    """See `Blobs` for what the methods do."""

    def __init__(self, check_open: Callable[[], None], max_bytes: int) -> None:
        self._check_open = check_open
        self._max_bytes = max_bytes
        self._bytes = 0
        self._blobs: dict[str, _Kept] = {}

    async def create(self, owner: str) -> BlobWriter:
        self.take(_ROW_BYTES)
        return _Writer(self, owner)

    async def read(self, owner: str, blob: str, offset: int, size: int) -> bytes:
        self._check_open()
        kept = self._blobs.get(blob)
        if kept is None or kept.owner != owner or size <= 0:
            return b""
        end = min(offset + size, kept.size)
        found = kept.pieces[offset // PIECE_BYTES : -(-end // PIECE_BYTES)]
        start = offset % PIECE_BYTES
        return b"".join(found)[start : start + max(0, end - offset)]

    def take(self, size: int) -> None:
        """Count so many bytes more. Raise StoreUnavailable if there is no room for them."""
        self._check_open()
        if self._bytes + size > self._max_bytes:
            raise StoreUnavailable("there is no room left in memory for files; nothing was stored")
        self._bytes += size

    def give_back(self, size: int) -> None:
        """Count so many bytes less."""
        self._bytes -= size

    def keep(self, owner: str, pieces: list[bytes], digest: bytes) -> Blob:
        """Store a blob that is complete and already counted."""
        self._check_open()
        blob = Blob(secrets.token_hex(16), sum(map(len, pieces)), digest)
        self._blobs[blob.id] = _Kept(owner, pieces, blob.size, time.time())
        return blob

    def name(self, owner: str, *ids: str) -> None:
        """Note that a row names these blobs. Raise BlobGone if one is not there, or has a row."""
        kept = [self._blobs.get(blob) for blob in ids]
        if len(set(ids)) < len(ids) or not all(
            one is not None and one.owner == owner and not one.is_named for one in kept
        ):
            raise BlobGone
        for one in kept:
            assert one is not None
            one.is_named = True

    def remove(self, owner: str, *ids: str) -> None:
        """Remove these blobs, those of them that are there."""
        for blob in ids:
            kept = self._blobs.get(blob)
            if kept is not None and kept.owner == owner:
                del self._blobs[blob]
                self.give_back(kept.size + _ROW_BYTES)

    def drop(self, owner: str, *ids: str) -> None:
        """Remove those of these blobs that no row names."""
        self.remove(owner, *(blob for blob in ids if not self._is_named(blob)))

    def used(self, owner: str) -> int:
        """Return the bytes of the blobs of this owner that rows name."""
        kept = self._blobs.values()
        return sum(one.size for one in kept if one.owner == owner and one.is_named)

    def sweep(self, now: int, limit: int) -> int:
        """Remove blobs that no row has named for too long; return how many."""
        before = now - UNNAMED_SECONDS
        old = [
            (kept.owner, blob)
            for blob, kept in self._blobs.items()
            if not kept.is_named and kept.created_at < before
        ][:limit]
        for owner, blob in old:
            self.remove(owner, blob)
        return len(old)

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        return {"blobs": sum(kept.owner == owner for kept in self._blobs.values())}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        self.remove(owner, *[name for name, kept in self._blobs.items() if kept.owner == owner])

    def clear(self) -> None:
        """Remove everything."""
        self._blobs.clear()
        self._bytes = 0

    def _is_named(self, blob: str) -> bool:
        kept = self._blobs.get(blob)
        return kept is not None and kept.is_named


class _Writer:
    def __init__(self, blobs: MemoryBlobs, owner: str) -> None:
        self._blobs = blobs
        self._owner = owner
        self._pieces: list[bytes] = []
        self._rest = bytearray()
        self._size = 0
        self._is_ended = False
        self._hash = hashlib.sha256()

    async def write(self, data: bytes) -> None:
        self._blobs.take(len(data))
        self._size += len(data)
        self._rest += data
        await aside_if(len(data) > PIECE_BYTES, self._hash.update, data)
        while len(self._rest) >= PIECE_BYTES:
            self._cut(PIECE_BYTES)

    async def finish(self) -> Blob:
        if self._is_ended:
            raise StoreUnavailable("the blob was finished or aborted before")
        if self._rest:
            self._cut(len(self._rest))
        blob = self._blobs.keep(self._owner, self._pieces, self._hash.digest())
        self._is_ended = True
        return blob

    async def abort(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._blobs.give_back(self._size + _ROW_BYTES)
            self._pieces = []
            self._rest.clear()

    def _cut(self, size: int) -> None:
        piece = bytes(self._rest[:size])
        del self._rest[:size]
        self._pieces.append(piece)
