"""What is running under a key that is no longer good?

Every request is authenticated when it begins. A turn or a stream may run for an hour after that,
so its key is watched: twice a second the store is asked about every key in use here, so it does
not matter which process revoked one. What runs under a revoked key is then ended by the function
that it left here. The same holds for a key whose project was archived or purged, and for a secret
that was replaced and whose time is over. Background turns are not watched: they belong to the
owner and go on. A key that expires ends nothing that runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from antiphon.accounts.principal import Principal
from antiphon.protocol.errors import KeyRevoked, StoreUnavailable
from antiphon.store.base import Access, Keys

__all__ = ["KeyWatch"]

_LOOK_SECONDS: Final = 0.5
_log = logging.getLogger(__name__)


class KeyWatch:
    """The keys in use in this process, and how to end what uses them.

    `now` is the time in seconds since the epoch.
    """

    def __init__(self, store: Keys, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._in_use: dict[object, tuple[Principal, Callable[[], None]]] = {}
        self._watcher: asyncio.Task[None] | None = None

    def add(self, principal: Principal, end: Callable[[], None]) -> object:
        """Call `end` once if its key is revoked; return the mark to remove this by.

        Without a key nothing is watched.
        """
        if principal.key_id is None:
            return None
        mark = object()
        self._in_use[mark] = (principal, end)
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
    def watching(self, principal: Principal, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` once if its key is revoked in the meantime."""
        mark = self.add(principal, end)
        try:
            yield
        finally:
            self.remove(mark)

    @asynccontextmanager
    async def guarding(self, principal: Principal) -> AsyncIterator[None]:
        """Do something that may take long; end it with KeyRevoked if the key is revoked."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                with self.watching(principal, lambda: limit.reschedule(loop.time())):
                    yield
        except TimeoutError:
            if limit.expired():
                raise KeyRevoked from None
            raise

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            asked = dict(self._in_use)  # a key first used after this is not looked up
            key_ids = {principal.key_id for principal, _ in asked.values() if principal.key_id}
            try:
                found = await self._store.find_accesses(key_ids)
            except StoreUnavailable:
                continue  # it is asked again in a moment
            except Exception:  # noqa: BLE001 - the outermost frame of its task
                _log.exception("looking for revoked keys broke")
                continue
            for mark, (principal, end) in asked.items():
                is_good = self._is_good(principal, found.get(principal.key_id or ""))
                if not is_good and self._in_use.pop(mark, None) is not None:
                    end()

    def _is_good(self, principal: Principal, access: Access | None) -> bool:
        if access is None or access.is_archived or access.key.revoked_at is not None:
            return False
        secret = principal.secret
        return secret is None or access.key.accepts(secret, self._now())
