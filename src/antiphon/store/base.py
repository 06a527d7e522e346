"""The contract of a store, the same for every kind.

Everything has an owner, in every row and every question; missing and foreign look alike.
A turn stores its own items and points to its parent, so a conversation of a thousand turns
takes a thousand times the room of one. `finish` returns only when the response is durable.
Whatever goes wrong inside is raised as `StoreUnavailable`, and then nothing was promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from antiphon.protocol.items import Item
from antiphon.protocol.response import Failure, Response

__all__ = ["MAX_DEPTH", "History", "KeyRecord", "Store"]

# A chain is followed this far; what lies beyond is reported as missing.
MAX_DEPTH: Final = 100_000


class History(msgspec.Struct, frozen=True):
    """The items of a chain of turns, oldest first, and how its head stands.

    `missing` is the id of an ancestor that is gone: the items are then not all there.
    """

    items: list[Item]
    status: str
    missing: str | None = None


class KeyRecord(msgspec.Struct, frozen=True):
    """An API key as we keep it: never the secret, only its digest."""

    id: str
    owner: str
    digest: bytes
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    name: str = ""


class Store(Protocol):
    """Where responses, their items and the keys live."""

    async def begin(self, owner: str, response: Response, items: Sequence[Item]) -> None:
        """Take note of a turn that has begun, with its own input items (all have ids).

        Ordered before the `finish` of the same response; need not be durable on return.
        A second begin of one id changes nothing. Output is stored by `finish` only.
        """
        ...

    async def finish(self, owner: str, response: Response) -> None:
        """Make the final state of a begun response durable. Its output is stored with it.

        Raise StoreUnavailable if the response is not there or has already ended: an end that
        was stored is never overwritten.
        """
        ...

    async def get(self, owner: str, response_id: str) -> Response | None:
        """Return a response with its output, finished or not."""
        ...

    async def delete(self, owner: str, response_id: str) -> bool:
        """Remove a response and its items for good; say whether there was one."""
        ...

    async def history(self, owner: str, response_id: str) -> History | None:
        """Return input and output items of the whole chain that ends in this response."""
        ...

    async def input_items(self, owner: str, response_id: str) -> list[Item] | None:
        """Return the turn's own input items in order, or None if there is no such response."""
        ...

    async def find_item(self, owner: str, item_id: str) -> Item | None:
        """Return the newest item with this id."""
        ...

    async def recover(self, failure: Failure, now: int) -> int:
        """End as failed whatever a process that died had left unfinished; return how many.

        The turns of this store, and of others that are alive on the same file, go on.
        """
        ...

    async def sweep(self, before: int) -> int:
        """Remove responses created before this time; return how many."""
        ...

    async def add_key(self, key: KeyRecord) -> None:
        """Keep a new key. Raise ValueError if its id is taken."""
        ...

    async def find_key(self, key_id: str) -> KeyRecord | None:
        """Return the key with this id, revoked or not."""
        ...

    async def list_keys(self) -> list[KeyRecord]:
        """Return every key, oldest first."""
        ...

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Mark a key as revoked; say whether there was one in force."""
        ...

    async def ping(self) -> None:
        """Return if the store can be read and written now."""
        ...

    async def close(self) -> None:
        """Write what is queued and let go of files and threads."""
        ...
