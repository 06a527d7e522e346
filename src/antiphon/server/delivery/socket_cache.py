"""What a WebSocket remembers of its last turns, so that `store: false` can go on.

A turn is kept as encoded bytes, never as objects, and a turn that goes on from another shares
that one's bytes: a long conversation takes the room of its items, not of their repetitions.
Every socket has a shelf, bounded in turns and in bytes; all shelves together are bounded too,
and what was used least lately goes first. Whatever is gone is sent again by its client.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from antiphon.engine.prepare.context_size import ContextSize
from antiphon.protocol.items import Item
from antiphon.store.base import History, Size

__all__ = ["Recall", "Shelf", "SocketCache"]

MAX_TURNS: Final = 8
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Item]).decode

_Chunks = tuple[bytes, ...]


class _Kept:
    """A turn on a shelf: the items of its whole chain, oldest first, in pieces of JSON."""

    __slots__ = ("chunks", "count", "response_id", "shelf", "status")

    def __init__(
        self, shelf: Shelf, response_id: str, status: str, chunks: _Chunks, count: int
    ) -> None:
        self.shelf = shelf
        self.response_id = response_id
        self.status = status
        self.chunks = chunks
        self.count = count


class SocketCache:
    """The shelves of all sockets of a process, `max_bytes` together, `shelf_bytes` each."""

    def __init__(self, max_bytes: int, shelf_bytes: int) -> None:
        self.used = 0
        """Bytes that are kept, each once."""
        self.shelf_bytes = shelf_bytes
        self._max_bytes = max_bytes
        self._order: dict[_Kept, None] = {}  # the least lately used first
        self._holders: dict[int, int] = {}  # how many turns hold a chunk, by its identity

    def resize(self, max_bytes: int, shelf_bytes: int) -> None:
        """Keep so much from now on; forget what is too much."""
        self._max_bytes, self.shelf_bytes = max_bytes, shelf_bytes
        self._make_room()

    def add(self, kept: _Kept) -> None:
        """Count a turn in; make room for it."""
        self._order[kept] = None
        for chunk in kept.chunks:
            count = self._holders.get(id(chunk), 0)
            self._holders[id(chunk)] = count + 1
            if not count:
                self.used += len(chunk)
        self._make_room()

    def _make_room(self) -> None:
        while self.used > self._max_bytes:
            oldest = next(iter(self._order))
            oldest.shelf.forget(oldest.response_id)

    def touch(self, kept: _Kept) -> None:
        """Note that a turn was used."""
        self._order[kept] = self._order.pop(kept)

    def remove(self, kept: _Kept) -> None:
        """Count a turn out."""
        del self._order[kept]
        for chunk in kept.chunks:
            count = self._holders.pop(id(chunk)) - 1
            if count:
                self._holders[id(chunk)] = count
            else:
                self.used -= len(chunk)


class Shelf:
    """The last turns of one socket."""

    __slots__ = ("_cache", "_is_closed", "_turns")

    def __init__(self, cache: SocketCache) -> None:
        self._cache = cache
        self._is_closed = False
        self._turns: dict[str, _Kept] = {}  # oldest first

    def find(self, response_id: str) -> _Kept | None:
        """Return a turn that is kept here."""
        kept = self._turns.get(response_id)
        if kept is not None:
            self._cache.touch(kept)
        return kept

    def keep(self, response_id: str, status: str, chunks: _Chunks, count: int = 0) -> None:
        """Keep a turn of so many items; the oldest give way. Nothing is kept once it is closed."""
        self.forget(response_id)
        if self._is_closed or _size(chunks) > self._cache.shelf_bytes:
            return  # the client must send it all again, and will be told so
        kept = _Kept(self, response_id, status, chunks, count)
        self._turns[response_id] = kept
        while len(self._turns) > MAX_TURNS or self._used() > self._cache.shelf_bytes:
            self.forget(next(iter(self._turns)))
        self._cache.add(kept)

    def forget(self, response_id: str) -> None:
        """Drop a turn if it is here."""
        kept = self._turns.pop(response_id, None)
        if kept is not None:
            self._cache.remove(kept)

    def close(self) -> None:
        """Drop everything: the socket is gone. A turn may outlive it."""
        self._is_closed = True
        for response_id in list(self._turns):
            self.forget(response_id)

    def _used(self) -> int:
        chunks = {id(chunk): chunk for kept in self._turns.values() for chunk in kept.chunks}
        return _size(chunks.values())


class Recall:
    """The shelf as one turn sees it: asked for what was said before, told what was said then."""

    __slots__ = ("_chunks", "_given", "_shelf")

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._given: list[Item] = []
        self._chunks: _Chunks = ()

    async def __call__(self, response_id: str, size: ContextSize) -> History | None:
        """Return the history up to this response, if the socket remembers it.

        Raise what `size` raises if it is too large.
        """
        kept = self._shelf.find(response_id)
        if kept is None:
            return None
        size.admit_chain(Size(kept.count, _size(kept.chunks)))
        self._chunks = kept.chunks
        self._given = await size.run(_decode_all, kept.chunks)
        return History(list(self._given), kept.status)

    @property
    def has_helped(self) -> bool:
        """Say whether the turn builds on what only this socket may know."""
        return bool(self._chunks)

    async def keep(
        self, response_id: str, status: str, items: list[Item], size: ContextSize
    ) -> None:
        """Keep the whole context of a turn that has ended, and its output."""
        chunks = await size.run(self._encode, items)
        self._shelf.keep(response_id, status, chunks, len(items))

    def _encode(self, items: list[Item]) -> _Chunks:
        """Return the items as chunks; those that were recalled keep theirs."""
        count = len(self._given)
        if items[:count] != self._given:
            count, self._chunks = 0, ()
        return (*self._chunks, _encode(items[count:]))


def _decode_all(chunks: _Chunks) -> list[Item]:
    return [item for chunk in chunks for item in _decode(chunk)]


def _size(chunks: Iterable[bytes]) -> int:
    return sum(map(len, chunks))
