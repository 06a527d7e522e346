"""Facet `files`: what callers have uploaded, and uploads in parts that are not complete.

A row that names a blob takes it over: `BlobGone` is raised, and nothing stored, if the blob is not
there or belongs to another row. An upload is found for `ENDED_SECONDS` after its time is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from antiphon.store.base.blobs import Blob
from antiphon.store.base.claims import Claim, ClaimRequest

__all__ = ["ENDED_SECONDS", "Files", "StoredFile", "Upload", "UploadPart"]


ENDED_SECONDS: Final = 86_400
"""For so long an upload or a container is found after it has expired, without its contents."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file. From `expires_at` on it is not found any more; then it is swept."""

    id: str
    filename: str
    purpose: str
    created_at: int
    expires_at: int | None = None
    blob: Blob

    @property
    def size(self) -> int:
        """The size of its content."""
        return self.blob.size


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is uploaded in parts. `status`: pending, completed, cancelled, expired."""

    id: str
    filename: str
    purpose: str
    mime_type: str
    size: int
    """The size that the caller has announced."""
    created_at: int
    expires_at: int
    file_expires_after: int | None = None
    status: str = "pending"
    file_id: str | None = None


class UploadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an upload."""

    id: str
    created_at: int
    blob: Blob


class Files(Protocol):
    """The files of all owners.

    With `once`, the token is claimed in the same step. If it is claimed already, and the file
    that was made then still exists, nothing is stored and that claim is returned; its
    `response_id` is the id of what was made. The blob is removed then.
    """

    async def add(
        self, owner: str, file: StoredFile, once: ClaimRequest | None = None
    ) -> Claim | None:
        """Store a file whose blob is written. Durable on return."""
        ...

    async def claimed(self, owner: str, once: ClaimRequest) -> Claim | None:
        """Return the claim that counts on this token, if what was made under it still exists."""
        ...

    async def find(self, owner: str, ids: Sequence[str], now: int) -> dict[str, StoredFile]:
        """Return those of these files that exist and have not expired, by id."""
        ...

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
        """Return files by time of creation. Raise KeyError if there is no file `after`.

        Of those with the same time, the one that was stored first comes first.
        """
        ...

    async def remove(self, owner: str, file_id: str) -> bool:
        """Remove a file, its content, and what vector stores have of it; return if there was one.

        Containers keep their own copies.
        """
        ...

    async def used_bytes(self, owner: str) -> int:
        """Return how much the blobs of this owner take, of files, uploads, containers, skills."""
        ...

    # Uploads in parts.

    async def begin_upload(
        self, owner: str, upload: Upload, once: ClaimRequest | None = None
    ) -> Claim | None:
        """Store a new upload."""
        ...

    async def find_upload(self, owner: str, upload_id: str, now: int) -> Upload | None:
        """Return the upload; its status is `expired` if it was pending for too long."""
        ...

    async def add_part(self, owner: str, upload_id: str, part: UploadPart, now: int) -> bool:
        """Store a part; False if the upload is not pending (then its blob is removed)."""
        ...

    async def parts(self, owner: str, upload_id: str) -> list[UploadPart]:
        """Return the parts in the order they were stored."""
        ...

    async def complete_upload(
        self, owner: str, upload_id: str, file: StoredFile, now: int
    ) -> Upload | None:
        """Make the file and complete the upload in one step, and remove the parts.

        Return None if the upload was not pending: the file is not stored, its blob is removed.
        """
        ...

    async def cancel_upload(self, owner: str, upload_id: str, now: int) -> Upload | None:
        """Cancel a pending upload and remove its parts; None if it was not pending."""
        ...

    async def sweep(self, now: int, limit: int) -> int:
        """Remove what has expired, and blobs that no row names, at most `limit` of each kind.

        The kinds are files, uploads, containers and blobs. Return the greatest number of one kind:
        if it is `limit`, there may be more.
        """
        ...
