"""A stream once more: from any event on, live or finished, from any process.

The log in the store is the truth. Where the turn runs in this process its newest events come
from memory; elsewhere the store is asked again when it hints that something happened, and
now and then in any case. Either way every reader sees the same events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import nullcontext
from typing import Final

from antiphon.engine.live import Live
from antiphon.protocol.errors import NotFound
from antiphon.protocol.events import Event, is_terminal, sequence_of
from antiphon.protocol.log import unpack_events
from antiphon.protocol.response import DONE_STATUSES
from antiphon.protocol.tell import tell_response
from antiphon.store.base import Log, Store

__all__ = ["events_of", "follow"]

_LOOK_AGAIN_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.25


async def follow(
    store: Store, live: Live, owner: str, response_id: str, after: int = -1
) -> AsyncGenerator[list[Event], None]:
    """Yield the events behind the sequence number `after` until the response has ended.

    Raise NotFound if there is no such response, or none any more.
    """
    while True:
        channel = live.find(owner, response_id)
        with channel.listening() if channel else nullcontext():
            has_news = False
            while channel is None or channel.is_open:
                events = channel.after(after) if channel and has_news else None
                if events is None:
                    log = await store.read_log(owner, response_id, after)
                    events = _behind(log, response_id, after)
                    if not events and log is not None and log.response.status in DONE_STATUSES:
                        return
                if events:
                    yield events
                    after = sequence_of(events[-1])
                    if is_terminal(events[-1]):
                        return
                if channel is None:
                    if not events:
                        await store.wait(response_id, _POLL_SECONDS)
                    break  # it may run here by now
                # Nothing for a while: the store is asked, for the response may be gone.
                has_news = await channel.wait(after, _LOOK_AGAIN_SECONDS)


def _behind(log: Log | None, response_id: str, after: int) -> list[Event]:
    if log is None:
        raise NotFound(f"Response with id '{response_id}' not found.", code="response_not_found")
    return [event for event in events_of(log) if sequence_of(event) > after]


def events_of(log: Log) -> list[Event]:
    """Return the events of a log; a turn that kept none has told nothing before its end."""
    if log.is_kept:
        return [event for batch in log.batches for event in unpack_events(batch.body, log.response)]
    return tell_response(log.response) if log.response.status in DONE_STATUSES else []
