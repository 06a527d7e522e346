"""Claims and notices in memory. Both are bounded: beyond `room`, the oldest goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from antiphon.store.base import Claim, ClaimRequest, Notice

__all__ = ["MemoryClaims", "MemoryNotices"]

_Key = tuple[str, str]


class MemoryClaims:
    """See `Claims` for what the methods do. Their holder lives as long as this memory."""

    def __init__(self, check_open: Callable[[], None], room: int) -> None:
        self._check_open = check_open
        self._room = room
        self._claims: dict[_Key, Claim] = {}
        self._tokens: dict[_Key, set[str]] = {}

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        """Claim the token; return None, or the claim that is there already."""
        found = await self.find(owner, token)
        if found is None:
            await self.note(owner, token, digest, response_id, now)
        return found

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        """Claim the token, in place of any older claim."""
        self._check_open()
        self._note(owner, token, Claim(digest, response_id, now, is_held=True))

    async def find(self, owner: str, token: str) -> Claim | None:
        """Return the claim on this token."""
        self._check_open()
        return self._claims.get((owner, token))

    def earlier(self, owner: str, once: ClaimRequest | None) -> Claim | None:
        """Return the claim that is there already, if it still counts."""
        found = None if once is None else self._claims.get((owner, once.token))
        return None if once is None or found is None or found.created_at < once.since else found

    def note_once(self, owner: str, once: ClaimRequest | None, made: str) -> None:
        """Claim the token for what was made, in place of any older claim."""
        if once is not None:
            self._note(owner, once.token, Claim(once.digest, made, once.now, is_held=True))

    async def release(self, owner: str, token: str, response_id: str) -> None:
        """Forget the claim if it leads to this response."""
        found = await self.find(owner, token)
        if found is not None and found.response_id == response_id:
            self._forget((owner, token))

    def forget_response(self, owner: str, response_id: str) -> None:
        """Forget the claims that led to a response that is removed."""
        for token in list(self._tokens.get((owner, response_id), ())):
            self._forget((owner, token))

    def sweep(self, before: int) -> None:
        """Forget claims that were made before this time."""
        for key in [key for key, claim in self._claims.items() if claim.created_at < before]:
            self._forget(key)

    def clear(self) -> None:
        """Forget everything."""
        self._claims.clear()
        self._tokens.clear()

    def _note(self, owner: str, token: str, claim: Claim) -> None:
        self._forget((owner, token))
        while len(self._claims) >= self._room:
            self._forget(next(iter(self._claims)))
        self._claims[owner, token] = claim
        self._tokens.setdefault((owner, claim.response_id), set()).add(token)

    def _forget(self, key: _Key) -> None:
        claim = self._claims.pop(key, None)
        if claim is None:
            return
        owner, token = key
        tokens = self._tokens[owner, claim.response_id]
        tokens.remove(token)
        if not tokens:
            del self._tokens[owner, claim.response_id]


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

    async def take(self, endpoint: str, now: int, hide_until: int, limit: int) -> list[Notice]:
        """Return notices of this endpoint that are due, oldest first, and hide them till then."""
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

    async def postpone(self, notice_id: str, until: int) -> None:
        """Be due again at this time."""
        self._check_open()
        if notice_id in self._notices:
            self._notices[notice_id].at = until

    async def settle(self, notice_id: str) -> None:
        """Forget the notice."""
        self._check_open()
        self._notices.pop(notice_id, None)

    def add(self, notice: Notice) -> None:
        """Keep a notice that is due at once."""
        while len(self._notices) >= self._room:
            del self._notices[next(iter(self._notices))]
        self._notices.setdefault(notice.id, _Due(notice))

    def sweep(self, before: int) -> None:
        """Forget notices that were made before this time."""
        kept = self._notices.items()
        self._notices = {name: due for name, due in kept if due.notice.created_at >= before}

    def clear(self) -> None:
        """Forget everything."""
        self._notices.clear()
