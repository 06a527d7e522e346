"""Where does a turn send its events?

A sink takes every batch it is shown and returns whether its reader keeps up. After a False,
`drained` is awaited before more is shown: everything that has to wait (an HTTP head, a slow
client) happens there. A turn without a reader (in the background, or answered whole) has the
sink that drops everything; its answer is `Turn.ended`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from antiphon.protocol.events import Event, TerminalEvent
from antiphon.protocol.items import text_length

__all__ = ["NO_READER", "EventSink", "ReaderGone", "catch_up", "show_all"]

_LONG: Final = 64 * 1024


class ReaderGone(ConnectionError):
    """The client of a turn has disconnected."""


class EventSink(Protocol):
    """Takes the events of a turn, in their order."""

    def show(self, events: list[Event]) -> bool:
        """Take these events; return whether more may follow at once."""
        ...

    async def drained(self) -> None:
        """Wait until more may follow. Raise ConnectionError if the reader has left."""
        ...


class _NullSink:
    def show(self, events: list[Event]) -> bool:
        return True

    async def drained(self) -> None:
        return


NO_READER: Final[EventSink] = _NullSink()


async def show_all(sink: EventSink, events: list[Event]) -> None:
    """Show a batch and wait until the reader has room for the next.

    The last events of a long answer repeat all of it, each of them: they go one by one, so that
    one of them is in memory at a time. Raise ReaderGone if the client has disconnected.
    """
    if sink is NO_READER:
        return  # whether the end is long need not be found out
    for piece in [[event] for event in events] if _is_long_end(events) else [events]:
        sink.show(piece)
        await catch_up(sink)


async def catch_up(sink: EventSink) -> None:
    """Wait until the reader has room. Raise ReaderGone if the client has disconnected."""
    try:
        await sink.drained()
    except ConnectionError as error:
        raise ReaderGone(str(error)) from error


def _is_long_end(events: Sequence[Event]) -> bool:
    if len(events) < 2 or not isinstance(events[-1], TerminalEvent):
        return False
    return any(text_length(item) > _LONG for item in events[-1].response.output)
