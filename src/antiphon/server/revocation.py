"""What is running under a key that has been revoked?

Every request is authenticated when it begins. A turn or a stream may run for an hour after that,
so its key is watched: twice a second the store is asked about every key in use here, so it does
not matter which process revoked one. What runs under a revoked key is then ended by the function
that it left here. Background turns are not watched: they belong to the owner and go on.
A key that expires ends nothing that runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from antiphon.protocol.errors import KeyRevoked, StoreUnavailable
from antiphon.store.base import Keys

__all__ = ["KeyWatch"]

_LOOK_SECONDS: Final = 0.5
# More keys than this are read from the store in one go.
_ONE_BY_ONE: Final = 20
_log = logging.getLogger(__name__)


class KeyWatch:
    """The keys in use in this process, and how to end what uses them."""

    def __init__(self, store: Keys) -> None:
        self._store = store
        self._in_use: dict[object, tuple[str, Callable[[], None]]] = {}
        self._watcher: asyncio.Task[None] | None = None

    def add(self, key_id: str | None, end: Callable[[], None]) -> object:
        """Call `end` once if this key is revoked; return the mark to remove this by.

        Without a key nothing is watched.
        """
        if key_id is None:
            return None
        mark = object()
        self._in_use[mark] = (key_id, end)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        return mark

    def remove(self, mark: object) -> None:
        """Watch no longer what was added under this mark."""
        self._in_use.pop(mark, None)
        if not self._in_use and self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    @contextmanager
    def watching(self, key_id: str | None, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` once if this key is revoked in the meantime."""
        mark = self.add(key_id, end)
        try:
            yield
        finally:
            self.remove(mark)

    @asynccontextmanager
    async def guarding(self, key_id: str | None) -> AsyncIterator[None]:
        """Do something that may take long; end it with KeyRevoked if this key is revoked."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                with self.watching(key_id, lambda: limit.reschedule(loop.time())):
                    yield
        except TimeoutError:
            if limit.expired():
                raise KeyRevoked from None
            raise

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            key_ids = {key_id for key_id, _ in self._in_use.values()}
            try:
                valid = await self._valid(key_ids)
            except StoreUnavailable:
                continue  # it is asked again in a moment
            except Exception:  # noqa: BLE001 - the outermost frame of its task
                _log.exception("looking for revoked keys broke")
                continue
            self._end_all(key_ids - valid)  # a key first used since then was not looked up

    async def _valid(self, key_ids: Collection[str]) -> set[str]:
        """Return those of the keys that are not revoked."""
        if len(key_ids) > _ONE_BY_ONE:
            records = await self._store.list_keys()
        else:
            found = [await self._store.find_key(key_id) for key_id in key_ids]
            records = [record for record in found if record is not None]
        return {record.id for record in records if record.revoked_at is None}

    def _end_all(self, revoked: Collection[str]) -> None:
        for mark, (key_id, end) in list(self._in_use.items()):
            if key_id in revoked and mark in self._in_use:
                del self._in_use[mark]
                end()
