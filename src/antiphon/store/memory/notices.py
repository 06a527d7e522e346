"""Facet `notices` in memory. Bounded: beyond `room`, the oldest notice is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from antiphon.store.base import Notice

__all__ = ["MemoryNotices"]


@dataclass(slots=True)
class _Due:
    notice: Notice
    at: int = 0


class MemoryNotices:
    """See `Notices` for what the methods do."""

    def __init__(self, check_open: Callable[[], None], room: int) -> None:
        self._check_open = check_open
        self._room = room
        self._notices: dict[str, _Due] = {}
        self._marks: dict[str, int] = {}

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        self._check_open()
        due = [
            waiting
            for waiting in self._notices.values()
            if waiting.at <= now and waiting.notice.endpoint == endpoint
        ]
        taken = sorted(due, key=lambda waiting: waiting.notice.created_at)[:limit]
        for waiting in taken:
            attempts = waiting.notice.attempts + 1
            waiting.notice = msgspec.structs.replace(waiting.notice, attempts=attempts)
            waiting.at = hide_until
        return [waiting.notice for waiting in taken]

    async def add_once(self, mark: str, value: int, notices: Sequence[Notice]) -> bool:
        self._check_open()
        if self._marks.get(mark, -1) >= value:
            return False
        self._marks[mark] = value
        self.add(notices)
        return True

    async def postpone(self, notice_id: str, until: int) -> None:
        self._check_open()
        if notice_id in self._notices:
            self._notices[notice_id].at = until

    async def settle(self, notice_id: str) -> None:
        self._check_open()
        self._notices.pop(notice_id, None)

    def add(self, notices: Iterable[Notice]) -> None:
        """Store notices that are due at once."""
        for notice in notices:
            while len(self._notices) >= self._room:
                del self._notices[next(iter(self._notices))]
            self._notices.setdefault(notice.id, _Due(notice))

    def sweep(self, before: int) -> None:
        """Remove notices that were made before this time."""
        kept = self._notices.items()
        self._notices = {name: due for name, due in kept if due.notice.created_at >= before}

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        return {"notices": sum(due.notice.owner == owner for due in self._notices.values())}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        kept = self._notices.items()
        self._notices = {name: due for name, due in kept if due.notice.owner != owner}

    def clear(self) -> None:
        """Remove everything."""
        self._notices.clear()
