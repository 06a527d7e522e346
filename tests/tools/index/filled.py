"""Ways to fill a vector store without a gateway, and to wait until its files are indexed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from antiphon.store.base import Store, StoredFile
from antiphon.store.base.vector_stores import AttachedFile, VectorStore
from antiphon.tools.index.file_index import FileIndex

__all__ = ["OWNER", "STORE", "add_file", "attach", "fill", "make_store", "wait_until_done"]

OWNER = "a"
STORE = "vs_1"


async def make_store(
    store: Store, store_id: str = STORE, owner: str = OWNER, **fields: Any
) -> None:
    """Make an empty vector store."""
    now = int(time.time())
    made = VectorStore(
        id=store_id, created_at=now, last_active_at=fields.pop("active", now), **fields
    )
    await store.vector_stores.add(owner, made)


async def add_file(
    store: Store, file_id: str, content: str | bytes, filename: str = "", owner: str = OWNER
) -> None:
    """Upload a file."""
    writer = await store.blobs.create(owner)
    await writer.write(content.encode() if isinstance(content, str) else content)
    file = StoredFile(
        id=file_id,
        filename=filename or f"{file_id}.md",
        purpose="assistants",
        created_at=int(time.time()),
        blob=await writer.finish(),
    )
    await store.files.add(owner, file)


async def attach(
    store: Store, file_id: str, *, store_id: str = STORE, owner: str = OWNER, **fields: Any
) -> None:
    """Attach a file that was uploaded."""
    (file,) = (await store.files.find(owner, [file_id], int(time.time()))).values()
    one = AttachedFile(
        file_id=file_id, filename=file.filename, created_at=int(time.time()), **fields
    )
    assert await store.vector_stores.attach(owner, store_id, [one]) is True


async def fill(
    store: Store,
    files: Mapping[str, str],
    *,
    index: FileIndex | None = None,
    attributes: Mapping[str, Mapping[str, Any]] | None = None,
    store_id: str = STORE,
    owner: str = OWNER,
) -> None:
    """Make a vector store with these files (id and text), and index them."""
    await make_store(store, store_id, owner)
    for file_id, text in files.items():
        await add_file(store, file_id, text, owner=owner)
        found = dict((attributes or {}).get(file_id, {}))
        await attach(store, file_id, store_id=store_id, owner=owner, attributes=found)
    async with (index or FileIndex(store)).ingest.running():
        await wait_until_done(store, store_id, owner)


async def wait_until_done(store: Store, store_id: str = STORE, owner: str = OWNER) -> VectorStore:
    """Return the vector store when no file of it is in progress any more."""
    async with asyncio.timeout(120):
        while True:
            found = (await store.vector_stores.find(owner, [store_id]))[store_id]
            if not found.counts.in_progress:
                return found
            await asyncio.sleep(0.01)
