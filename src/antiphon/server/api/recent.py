"""Which requests did this process run lately, and what was the answer?

For requests whose answer may not be written down (`store: false`): it is kept here, in memory,
for some minutes and within some megabytes, and ends with the process. Of a stored request
only its digest is kept, to notice a key that is used for two bodies.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from antiphon.protocol.codec import decode_response, encode_response
from antiphon.protocol.response import Response

__all__ = ["Recent", "Recently"]

_KEPT_SECONDS: Final = 600
_KEPT_BYTES: Final = 16 * 1024 * 1024
# What an entry takes beside its answer, roughly; so their number is bounded as well.
_ENTRY_BYTES: Final = 1024


class Recently:
    """One request that was made: it runs until `answer` is called, once."""

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.ended = asyncio.Event()
        self.ended_at = 0
        self._body = b""

    @property
    def size(self) -> int:
        """Roughly how many bytes this takes."""
        return _ENTRY_BYTES + len(self._body)

    @property
    def response(self) -> Response | None:
        """The answer, never shared; None without one to repeat."""
        return decode_response(self._body) if self._body else None

    def answer(self, response: Response | None, now: int) -> None:
        """Record how it ended; None means that there is nothing to repeat."""
        self._body = encode_response(response, "openai") if response else b""
        self.ended_at = now
        self.ended.set()


class Recent:
    """Requests by owner and token. Those that run are all there; of the others, the newest."""

    def __init__(self, *, max_bytes: int = _KEPT_BYTES, seconds: int = _KEPT_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._running: dict[tuple[str, str], Recently] = {}
        self._ended: OrderedDict[tuple[str, str], Recently] = OrderedDict()
        self._bytes = 0

    def find(self, owner: str, token: str, now: int) -> Recently | None:
        """Return the request with this token, if it runs or ended a short while ago."""
        self._forget_old(now)
        key = owner, token
        return self._running.get(key) or self._ended.get(key)

    def begin(self, owner: str, token: str, digest: bytes) -> Recently:
        """Take note of a request that runs from now on, in place of any older one."""
        self._forget((owner, token))
        entry = self._running[owner, token] = Recently(digest)
        return entry

    def end(
        self, owner: str, token: str, entry: Recently, response: Response | None, now: int
    ) -> None:
        """Take note of its end, with the answer to give again if there is one."""
        entry.answer(response, now)
        key = owner, token
        if self._running.get(key) is not entry:
            return  # a newer request is known by this token
        del self._running[key]
        self._ended[key] = entry
        self._bytes += entry.size
        self._forget_old(now)

    def forget(self, owner: str, token: str, entry: Recently, now: int) -> None:
        """Note that a request ended without an answer: one that waits for it must run it."""
        entry.answer(None, now)
        if self._running.get((owner, token)) is entry:
            del self._running[owner, token]

    def _forget_old(self, now: int) -> None:
        while self._ended:
            key, oldest = next(iter(self._ended.items()))
            if self._bytes <= self._max_bytes and now - oldest.ended_at < self._seconds:
                return
            self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        entry = self._ended.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size
