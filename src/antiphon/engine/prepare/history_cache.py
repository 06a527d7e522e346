"""In-process cache of conversation histories.

A turn that continues a stored response needs the whole history. The process that ended that
response has it in memory, so it is kept: the items as the store would return them, and what was
derived from them. An entry is valid only while nothing was removed from the store, by any
process. Its size is bounded: the least recently used entry goes first. A process without an
entry reads the history from the store, which is the only truth.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from antiphon.protocol.response import Response
from antiphon.protocol.thread import Thread
from antiphon.store.base import MAX_DEPTH
from antiphon.store.encoding import decode_item, encode_items

__all__ = ["HistoryCache", "Past"]

_ROOM: Final = 32 * 1024 * 1024
# What a thread takes at most, measured: its text as items and as messages, and so much for the
# objects of each item.
_BYTES_PER_BYTE: Final = 3
_BYTES_PER_ITEM: Final = 800

_GOES_ON: Final = frozenset({"completed", "incomplete"})

_Key = tuple[str, str]


class Past(NamedTuple):
    """A chain of turns, and what `Store.removals` was when it was read."""

    thread: Thread
    turns: int
    removals: int


class HistoryCache:
    """The threads that ended in this process, by owner and id of their last response.

    `room` is how many bytes they may take together, about.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room = room
        self._taken = 0
        self._pasts: OrderedDict[_Key, Past] = OrderedDict()

    def find(self, owner: str, response_id: str) -> Past | None:
        """Return the thread that ends in this response, if it is remembered."""
        past = self._pasts.get((owner, response_id))
        if past is not None:
            self._pasts.move_to_end((owner, response_id))
        return past

    def forget(self, owner: str, response_id: str) -> None:
        """Forget the thread that ends in this response."""
        past = self._pasts.pop((owner, response_id), None)
        if past is not None:
            self._taken -= _room_of(past.thread)

    def keep(self, owner: str, past: Past, whole: Thread, response: Response) -> None:
        """Remember a thread that has grown by a response, which is durable.

        `past` is what its turn began with, `whole` that and the turn's own items.
        """
        if response.status not in _GOES_ON or past.turns >= MAX_DEPTH:
            return
        own = whole[len(past.thread) :]
        bodies = [item.body for item in encode_items((*own, *response.output))]
        weight = past.thread.weight + sum(map(len, bodies))
        # Decoded again: as the store would return them, and not shared.
        new = [decode_item(body) for body in bodies]
        is_same = own == tuple(new[: len(own)])
        known = whole.known if is_same else past.thread.known
        thread = Thread(past.thread + tuple(new), weight, known)
        if thread.is_long:
            self._put((owner, response.id), Past(thread, past.turns + 1, past.removals))
            self._step_back((owner, response.previous_response_id or ""))

    def _put(self, key: _Key, past: Past) -> None:
        self.forget(*key)
        if _room_of(past.thread) > self._room:
            return  # it would push out all others, and then itself
        self._pasts[key] = past
        self._taken += _room_of(past.thread)
        while self._taken > self._room:
            self.forget(*next(iter(self._pasts)))

    def _step_back(self, key: _Key) -> None:
        """Let a thread that has grown go before those of other conversations."""
        if key in self._pasts:
            self._pasts.move_to_end(key, last=False)


def _room_of(thread: Thread) -> int:
    return thread.weight * _BYTES_PER_BYTE + len(thread) * _BYTES_PER_ITEM
