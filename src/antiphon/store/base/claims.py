"""Facet `claims`: which requests were made already, by a token."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Claim", "ClaimRequest", "Claims"]


class ClaimRequest(msgspec.Struct, frozen=True):
    """A token to claim in the same step as a change, so that the change is made once.

    `digest` is that of the request's body. A claim that was made before `since` does not count.
    """

    token: str
    digest: bytes
    now: int
    since: int

    def earlier(self, found: Claim | None) -> Claim | None:
        """Return the claim that was found on the token, if it counts."""
        return None if found is None or found.created_at < self.since else found


class Claim(msgspec.Struct, frozen=True):
    """A request was made once, and led to this response.

    If it made no response, `response_id` names what it made: the id of a conversation, or a
    JSON list of the ids of items.

    `digest` is that of its body. `is_held` means that the store that took it is alive and has
    not released it: without a response of that id, the request is still in progress.
    """

    digest: bytes
    response_id: str
    created_at: int
    is_held: bool


class Claims(Protocol):
    """The tokens that were claimed. A token is an idempotency key or a digest."""

    async def take(
        self, owner: str, token: str, digest: bytes, response_id: str, now: int
    ) -> Claim | None:
        """Claim the token, durable on return; return None, or the claim that is there already.

        A claim whose holder has died, and which led to no response, is replaced.
        """
        ...

    async def note(self, owner: str, token: str, digest: bytes, response_id: str, now: int) -> None:
        """Claim the token, in place of any older claim. Need not be durable on return."""
        ...

    async def find(self, owner: str, token: str) -> Claim | None:
        """Return the claim on this token."""
        ...

    async def release(self, owner: str, token: str, response_id: str) -> None:
        """Remove the claim if it leads to this response."""
        ...
