"""How much may an owner still store? What is stored, and what is on its way here, both count.

What other processes receive at the same time is counted when it is stored. So several workers can
exceed the quota together by what they receive at once, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    @contextmanager
    def room(self, owner: str, used: int, size: int | None) -> Iterator[int]:
        """Hold room for a file and yield how large it may be. Raise QuotaExceeded.

        `used` is what the owner has stored; `size` is None if it is not known.
        """
        limits, arriving = self.limits, self._arriving.get(owner, 0)
        left = limits.owner_bytes - used - arriving
        if left <= 0 or (size or 0) > left:
            raise QuotaExceeded(limits.owner_bytes, left)
        largest = min(limits.max_bytes, left)
        held = largest if size is None else size
        self._arriving[owner] = arriving + held
        try:
            yield largest
        finally:
            self._arriving[owner] -= held
            if not self._arriving[owner]:
                del self._arriving[owner]
