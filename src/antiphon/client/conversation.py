"""What the client remembers of a conversation between two calls.

A `Thread` is where a conversation stands: what the server calls it, its items, and what it has
cost. `ConversationCache` keeps the threads used last, by session and model; a thread that was
not used for `ttl` seconds is forgotten. Tokens are the server's figures; an estimate
stands in only where the server gave none. The cache may be shared by threads of a program.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import UNSET

from antiphon.client.errors import BadCall
from antiphon.protocol.items import Item
from antiphon.protocol.response import Response, with_total

__all__ = ["ConversationCache", "Thread"]

_log: Final = logging.getLogger("antiphon.client")

_Key = tuple[str, str | None]


class Thread(msgspec.Struct, frozen=True):
    """Where a conversation stands after its last turn."""

    response_id: str | None = None
    """What to continue from; None if the server kept nothing."""
    conversation: str | None = None
    items: tuple[Item, ...] = ()
    """The conversation with the last response's output, as far as it went through us."""
    tokens: int = 0
    """What all turns together have cost."""
    context_tokens: int = 0
    """The size of the last turn: what the next one begins with."""
    is_estimate: bool = False
    """Some of the tokens were not counted by a server."""
    is_whole: bool = True
    """The items are all there is. Otherwise only the server knows what came before them."""

    def add_usage(self, response: Response, estimate: int) -> Thread:
        """Return the thread with the cost of a response added.

        `estimate` stands in for a server that did not count; it never wins over one that did.
        """
        turn, is_estimate = _turn_tokens(response, estimate)
        tokens = self.tokens + turn
        _log.debug("cache tokens updated: %d, of these %d new", tokens, turn)
        return msgspec.structs.replace(
            self,
            tokens=tokens,
            context_tokens=turn,
            is_estimate=self.is_estimate or is_estimate,
        )

    def without(self, gone: str | None) -> Thread | None:
        """Return the thread for a server that has lost `gone`, a response or a conversation.

        The next turn sends its items; if they are not all there is, nothing is left: None. A
        thread that does not go on from there is untouched.
        """
        if gone is None or gone not in (self.response_id, self.conversation):
            return self
        if not self.is_whole:
            return None
        return msgspec.structs.replace(self, response_id=None, conversation=None)


class ConversationCache:
    """Threads by (session, model): the last `max_threads` used, for `ttl` seconds since."""

    def __init__(
        self,
        max_threads: int = 100,
        ttl: float = 7200.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if max_threads < 1 or ttl <= 0:
            raise BadCall("a cache needs room for one thread and a time above 0")
        self._max_threads = max_threads
        self._ttl = ttl
        self._clock = clock
        self._lock = threading.Lock()
        # In the order of use, so what expires first stands first.
        self._threads: OrderedDict[_Key, tuple[float, Thread]] = OrderedDict()

    def get(self, session: str, model: str | None) -> Thread | None:
        """Return the thread, if it is still remembered; asking for it counts as use."""
        with self._lock:
            self._forget_expired()
            found = self._threads.get((session, model))
            if found is None:
                return None
            self._put((session, model), found[1])
            return found[1]

    def set(self, session: str, model: str | None, thread: Thread) -> None:
        """Remember a thread, and forget the one not used for longest if there are too many."""
        with self._lock:
            self._forget_expired()
            self._add((session, model), thread)

    def update(
        self, session: str, model: str | None, change: Callable[[Thread | None], Thread | None]
    ) -> None:
        """Put what `change` makes of a thread in its place, in one step; None forgets it.

        So turns that end at the same time in several threads do not lose each other's cost.
        """
        with self._lock:
            self._forget_expired()
            found = self._threads.get((session, model))
            thread = change(found[1] if found is not None else None)
            if thread is not None:
                self._add((session, model), thread)
            elif found is not None:
                del self._threads[session, model]

    def invalidate(self, session: str, model: str | None) -> None:
        """Forget a thread; one that is not known is no error."""
        with self._lock:
            self._threads.pop((session, model), None)

    def clear(self) -> None:
        """Forget all threads."""
        with self._lock:
            self._threads.clear()

    def __len__(self) -> int:
        with self._lock:
            self._forget_expired()
            return len(self._threads)

    def _add(self, key: _Key, thread: Thread) -> None:
        self._put(key, thread)
        if len(self._threads) > self._max_threads:
            self._threads.popitem(last=False)

    def _put(self, key: _Key, thread: Thread) -> None:
        self._threads[key] = (self._clock() + self._ttl, thread)
        self._threads.move_to_end(key)

    def _forget_expired(self) -> None:
        now = self._clock()
        while self._threads:
            key, (expires, _) = next(iter(self._threads.items()))
            if expires > now:
                return
            del self._threads[key]


def _turn_tokens(response: Response, estimate: int) -> tuple[int, bool]:
    """Return what a turn cost, and whether that is an estimate."""
    usage = response.usage
    if usage is None:
        return estimate, True
    notes = response.antiphon
    is_estimate = notes is not UNSET and notes.usage == "estimated"
    return with_total(usage).total_tokens, is_estimate
