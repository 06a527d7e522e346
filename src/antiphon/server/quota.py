"""How much may an owner still store? What is stored, and what is on its way here, both count.

What other processes receive at the same time is counted when it is stored. So several workers can
exceed the quota together by what they receive at once, and no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from antiphon.protocol.errors import BodyTooLarge
from antiphon.server.limits import FileLimits

__all__ = ["QuotaExceeded", "StorageQuota"]


class QuotaExceeded(BodyTooLarge):
    """The owner's files would take more than they may."""

    code = "storage_quota_exceeded"

    def __init__(self, limit: int, left: int) -> None:
        super().__init__(
            f"your files may take {limit} bytes together, and {max(0, left)} are left; "
            "delete some first"
        )


class StorageQuota:
    """What of each owner is on its way to the store of this process."""

    def __init__(self, limits: FileLimits) -> None:
        self.limits = limits
        self._arriving: dict[str, int] = {}

    @asynccontextmanager
    async def room(
        self, owner: str, size: int | None, count_used: Callable[[], Awaitable[int]]
    ) -> AsyncIterator[int]:
        """Hold room for a file and yield how large it may be. Raise QuotaExceeded.

        `size` is None if it is not known; `count_used` returns what the owner has stored. It is
        called when the room is held, so nothing that is stored meanwhile is missed.
        """
        held = self.limits.max_bytes if size is None else size
        self._arriving[owner] = self._arriving.get(owner, 0) + held
        try:
            used = await count_used()
            left = self.limits.owner_bytes - used - self._arriving.get(owner, 0) + held
            if left <= 0 or (size or 0) > left:
                raise QuotaExceeded(self.limits.owner_bytes, left)
            yield min(self.limits.max_bytes, left)
        finally:
            self._release(owner, held)

    def _release(self, owner: str, held: int) -> None:
        rest = self._arriving.get(owner, 0) - held
        if rest:
            self._arriving[owner] = rest
        else:
            self._arriving.pop(owner, None)
