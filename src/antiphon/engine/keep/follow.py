"""A stream once more: from any event on, live or finished, from any process.

The log in the store is the truth. Where the turn runs in this process its newest events come
from memory; elsewhere the store is asked again when it hints that something happened, and
now and then in any case. Either way every reader sees the same events. A long log is unpacked
piece by piece, as fast as it is read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from itertools import islice
from typing import Final

from antiphon.engine.keep.live import Channel, Live
from antiphon.protocol.errors import no_response
from antiphon.protocol.events import Event, is_terminal, sequence_of
from antiphon.protocol.machines.log import unpack_events
from antiphon.protocol.machines.replay import replay_response
from antiphon.protocol.response import DONE_STATUSES
from antiphon.store.base import Log, Logs

__all__ = ["events_of", "follow"]

_LOOK_AGAIN_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.25
# Events that are unpacked, and written, together.
_AT_ONCE: Final = 256


async def follow(
    store: Logs, live: Live, owner: str, response_id: str, after: int = -1
) -> AsyncGenerator[list[Event], None]:
    """Yield the events behind the sequence number `after` until the response has ended.

    Raise NotFound if there is no such response, or none any more.
    """
    follower = _Follower(store, owner, response_id, after)
    while not follower.is_over:
        channel = live.find(owner, response_id)
        source = follower.look() if channel is None else follower.listen(channel)
        async with aclosing(source):
            async for events in source:
                yield events


def events_of(log: Log) -> Iterator[Event]:
    """Yield the events of a log; a turn that kept none has told nothing before its end."""
    if log.is_kept:
        for batch in log.batches:
            yield from unpack_events(batch.body, log.response)
    elif log.response.status in DONE_STATUSES:
        yield from replay_response(log.response)


class _Follower:
    """One reader of one response: where it is, and whether there can be more."""

    def __init__(self, store: Logs, owner: str, response_id: str, after: int) -> None:
        self._store = store
        self._owner = owner
        self._response_id = response_id
        self._after = after
        self.is_over = False

    async def look(self) -> AsyncGenerator[list[Event], None]:
        """Yield what the store has; if that is nothing, wait for a hint that it has more."""
        before = self._after
        async with aclosing(self._read()) as batches:
            async for events in batches:
                yield events
        if self._after == before and not self.is_over:
            await self._store.wait(self._response_id, _POLL_SECONDS)

    async def listen(self, channel: Channel) -> AsyncGenerator[list[Event], None]:
        """Yield what the store has, and then what comes, while the turn runs here."""
        with channel.listening():
            is_new_here = True
            while channel.is_open and not self.is_over:
                events = None if is_new_here else channel.after(self._after)
                if events is None:
                    async with aclosing(self._read()) as batches:
                        async for some in batches:
                            yield some
                elif events:
                    yield self._note(events)
                if not self.is_over:
                    # Nothing for a while: the store is asked, for the response may be gone.
                    is_new_here = not await channel.wait(self._after, _LOOK_AGAIN_SECONDS)

    async def _read(self) -> AsyncGenerator[list[Event], None]:
        log = await self._store.read_log(self._owner, self._response_id, self._after)
        if log is None:
            raise no_response(self._response_id)
        after = self._after
        behind = (event for event in events_of(log) if sequence_of(event) > after)
        for events in _in_pieces(behind):
            yield self._note(events)
        if log.response.status in DONE_STATUSES:
            self.is_over = True

    def _note(self, events: list[Event]) -> list[Event]:
        self._after = sequence_of(events[-1])
        self.is_over = is_terminal(events[-1])
        return events


def _in_pieces(events: Iterable[Event]) -> Iterator[list[Event]]:
    rest = iter(events)
    while piece := list(islice(rest, _AT_ONCE)):
        yield piece
