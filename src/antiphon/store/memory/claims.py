"""Facet `claims` in memory. Bounded: beyond `room`, the oldest claim is removed."""

from __future__ import annotations

from collections.abc import Callable

from antiphon.store.base import Claim, ClaimRequest

__all__ = ["MemoryClaims"]

_Key = tuple[str, str]


class MemoryClaims:
    """See `Claims` for what the methods do. Their holder lives as long as this store.

    `table` is their name in the counts of a purge.
    """

    def __init__(self, check_open: Callable[[], None], room: int, *, table: str = "claims") -> None:
        self._check_open = check_open
        self._room = room
        self._table = table
        self._claims: dict[_Key, Claim] = {}
        self._tokens: dict[_Key, set[str]] = {}

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        found = await self.find(owner, token)
        if found is None:
            await self.note(owner, token, digest, response_id, now)
        return found

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        self._check_open()
        self._note(owner, token, Claim(digest, response_id, now, is_held=True))

    async def find(self, owner: str, token: str) -> Claim | None:
        self._check_open()
        return self._claims.get((owner, token))

    def earlier(self, owner: str, once: ClaimRequest | None) -> Claim | None:
        """Return the claim that exists already, if it still counts."""
        return None if once is None else once.earlier(self._claims.get((owner, once.token)))

    def note_once(self, owner: str, once: ClaimRequest | None, made: str) -> None:
        """Claim the token for what was made, in place of any older claim."""
        if once is not None:
            self._note(owner, once.token, Claim(once.digest, made, once.now, is_held=True))

    async def release(self, owner: str, token: str, response_id: str) -> None:
        found = await self.find(owner, token)
        if found is not None and found.response_id == response_id:
            self._forget((owner, token))

    def forget_response(self, owner: str, response_id: str) -> None:
        """Remove the claims that led to this response."""
        for token in list(self._tokens.get((owner, response_id), ())):
            self._forget((owner, token))

    def sweep(self, before: int) -> None:
        """Remove claims that were made before this time."""
        for key in [key for key, claim in self._claims.items() if claim.created_at < before]:
            self._forget(key)

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        return {self._table: sum(name == owner for name, _ in self._claims)}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        for key in [key for key in self._claims if key[0] == owner]:
            self._forget(key)

    def clear(self) -> None:
        """Remove everything."""
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
