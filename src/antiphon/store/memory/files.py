"""Facet `files` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from antiphon.store.base import Claim, ClaimRequest
from antiphon.store.base.files import ENDED_SECONDS, StoredFile, Upload, UploadPart
from antiphon.store.memory.blobs import MemoryBlobs
from antiphon.store.memory.claims import MemoryClaims
from antiphon.store.memory.rows import Rows, page_of

__all__ = ["MemoryFiles"]


class MemoryFiles:
    """See `Files` for what the methods do.

    `on_removal` has functions that are called with the owner and id of a file that is removed;
    `sweeps` those that remove something else that has expired.
    """

    def __init__(
        self, check_open: Callable[[], None], blobs: MemoryBlobs, claims: MemoryClaims
    ) -> None:
        self._check_open = check_open
        self._blobs = blobs
        self._claims = claims
        self._files: Rows[StoredFile] = Rows()
        self._uploads: Rows[Upload] = Rows()
        self._parts: dict[tuple[str, str], list[UploadPart]] = {}
        self.on_removal: list[Callable[[str, str], None]] = []
        self.sweeps: list[Callable[[int, int], int]] = [self._blobs.sweep]

    async def add(
        self, owner: str, file: StoredFile, once: ClaimRequest | None = None
    ) -> Claim | None:
        self._check_open()
        earlier = self._earlier(owner, once)
        if earlier is not None:
            self._blobs.drop(owner, file.blob.id)
            return earlier
        if self._files.get(owner, file.id) is not None:
            raise ValueError(f"there already is a file {file.id!r}")
        self._blobs.name(owner, file.blob.id)
        self._files.put(owner, file)
        self._claims.note_once(owner, once, file.id)
        return None

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        self._check_open()
        return self._earlier(owner, once)

    async def find(self, owner: str, ids: Sequence[str], now: int) -> dict[str, StoredFile]:
        self._check_open()
        found = {file_id: self._files.get(owner, file_id) for file_id in ids}
        return {name: file for name, file in found.items() if file and not _is_over(file, now)}

    async def page(
        self,
        owner: str,
        *,
        after: str | None = None,
        limit: int,
        is_descending: bool,
        purpose: str | None = None,
        now: int,
    ) -> list[StoredFile]:
        self._check_open()
        files = [file for file in self._files.of(owner) if not _is_over(file, now)]
        return page_of(
            files, after, limit, is_descending, lambda file: purpose in (None, file.purpose)
        )

    async def remove(self, owner: str, file_id: str) -> bool:
        self._check_open()
        file = self._files.pop(owner, file_id)
        if file is None:
            return False
        self._blobs.remove(owner, file.blob.id)
        for react in self.on_removal:
            react(owner, file_id)
        return True

    async def used_bytes(self, owner: str) -> int:
        self._check_open()
        return self._blobs.used(owner)

    async def begin_upload(
        self, owner: str, upload: Upload, once: ClaimRequest | None = None
    ) -> Claim | None:
        self._check_open()
        earlier = self._earlier(owner, once)
        if earlier is None:
            if self._uploads.get(owner, upload.id) is not None:
                raise ValueError(f"there already is an upload {upload.id!r}")
            self._uploads.put(owner, upload)
            self._claims.note_once(owner, once, upload.id)
        return earlier

    async def find_upload(self, owner: str, upload_id: str, now: int) -> Upload | None:
        self._check_open()
        upload = self._uploads.get(owner, upload_id)
        return None if upload is None else _as_of(upload, now)

    async def add_part(self, owner: str, upload_id: str, part: UploadPart, now: int) -> bool:
        if await self._pending(owner, upload_id, now) is None:
            self._blobs.drop(owner, part.blob.id)
            return False
        self._blobs.name(owner, part.blob.id)
        self._parts.setdefault((owner, upload_id), []).append(part)
        return True

    async def parts(self, owner: str, upload_id: str) -> list[UploadPart]:
        self._check_open()
        return list(self._parts.get((owner, upload_id), ()))

    async def complete_upload(
        self, owner: str, upload_id: str, file: StoredFile, now: int
    ) -> Upload | None:
        upload = await self._pending(owner, upload_id, now)
        if upload is None:
            self._blobs.drop(owner, file.blob.id)
            return None
        await self.add(owner, file)
        return self._end(owner, upload, "completed", file.id)

    async def cancel_upload(self, owner: str, upload_id: str, now: int) -> Upload | None:
        upload = await self._pending(owner, upload_id, now)
        return None if upload is None else self._end(owner, upload, "cancelled")

    async def sweep(self, now: int, limit: int) -> int:
        self._check_open()
        over = self._files.find(lambda file: _is_over(file, now), limit)
        for owner, file in over:
            await self.remove(owner, file.id)
        late = self._uploads.find(lambda upload: _as_of(upload, now) is not upload, limit)
        for owner, upload in late:
            self._end(owner, upload, "expired")
        old = self._uploads.find(lambda one: now >= one.expires_at + ENDED_SECONDS, limit)
        for owner, upload in old:
            self._uploads.pop(owner, upload.id)
        removed = [len(over), len(late), len(old), *(sweep(now, limit) for sweep in self.sweeps)]
        return max(removed)

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        parts = sum(len(parts) for (name, _), parts in self._parts.items() if name == owner)
        files, uploads = len(self._files.of(owner)), len(self._uploads.of(owner))
        return {"files": files, "uploads": uploads, "upload_parts": parts}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        self._files.forget_owner(owner)
        self._uploads.forget_owner(owner)
        for key in [key for key in self._parts if key[0] == owner]:
            del self._parts[key]

    def clear(self) -> None:
        """Remove everything."""
        self._files.clear()
        self._uploads.clear()
        self._parts.clear()

    def _earlier(self, owner: str, once: ClaimRequest | None) -> Claim | None:
        earlier = self._claims.earlier(owner, once)
        if once is None or earlier is None:
            return None
        file = self._files.get(owner, earlier.response_id)
        if file is None:
            return earlier if self._uploads.get(owner, earlier.response_id) else None
        return None if _is_over(file, once.now) else earlier

    async def _pending(self, owner: str, upload_id: str, now: int) -> Upload | None:
        upload = await self.find_upload(owner, upload_id, now)
        return upload if upload is not None and upload.status == "pending" else None

    def _end(self, owner: str, upload: Upload, status: str, file: str | None = None) -> Upload:
        ended = msgspec.structs.replace(upload, status=status, file_id=file)
        self._uploads.put(owner, ended)
        parts = self._parts.pop((owner, upload.id), [])
        self._blobs.remove(owner, *(part.blob.id for part in parts))
        return ended


def _is_over(file: StoredFile, now: int) -> bool:
    return file.expires_at is not None and file.expires_at <= now


def _as_of(upload: Upload, now: int) -> Upload:
    """Return the upload as it is now: expired, if it was pending for too long."""
    if upload.status == "pending" and upload.expires_at <= now:
        return msgspec.structs.replace(upload, status="expired")
    return upload
