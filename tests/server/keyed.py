"""Keys with roles and limits, for the tests of the server."""

from __future__ import annotations

from typing import Any

from antiphon.server.auth import new_key
from antiphon.store.base import Store

__all__ = ["bearer", "make_key"]


def bearer(key: str) -> dict[str, str]:
    """Return the headers that send a key or a token."""
    return {"Authorization": f"Bearer {key}"}


async def make_key(store: Store, owner: str = "ann", **more: Any) -> dict[str, str]:
    """Store a new key and return the headers that send it."""
    key, record = new_key(owner, 1, **more)
    await store.add_key(record)
    return bearer(key)
