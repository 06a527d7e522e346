"""An answer that has begun, as events.

The bytes come from the connection, and a wire reads them. A fault of the connection is the wire's
to report, after everything that came before it.
"""

from __future__ import annotations

from typing import Final

from antiphon.client.errors import ClientError, StreamBroken
from antiphon.client.wires import Wire
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.events import Event
from antiphon.protocol.response import Response
from antiphon.transport.stream import ByteStream

__all__ = ["OpenAnswer", "broken", "read_batch"]

# Usage and the end mark of a chat server follow its last word at once, or not at all.
_AFTERWORD: Final = 5.0


class OpenAnswer:
    """An answer that has begun: the bytes, the wire that reads them, and the first events."""

    def __init__(
        self, body: ByteStream, wire: Wire, first: list[Event], ending: Response | None = None
    ) -> None:
        self.body: Final = body
        self.ending: Final = ending
        """The response as it ended, where that is known without a terminal event."""
        self._wire: Final = wire
        self._first = first

    @property
    def is_done(self) -> bool:
        """Whether no event can follow."""
        return self._wire.is_done

    @property
    def is_behind(self) -> bool:
        """Whether more is here already than has been read."""
        return self.body.is_behind

    @property
    def fault(self) -> ClientError | None:
        """Why it is impossible to read further."""
        return self._wire.fault

    @property
    def skipped_choices(self) -> int:
        """How many answers beyond the first there were; only chat servers have any."""
        return self._wire.skipped_choices

    async def read(self) -> list[Event]:
        """Return the next events; none at the end, or at a fault."""
        first, self._first = self._first, []
        return first or await read_batch(self.body, self._wire)

    async def finish(self) -> None:
        """End a stream that was read to its end."""
        await self.body.finish()

    def close(self) -> None:
        """Hang up. Closing twice does nothing."""
        self._first = []
        self.body.close()


async def read_batch(body: ByteStream, wire: Wire) -> list[Event]:
    """Return the events of the next read that has any; none at the end, or before a fault."""
    while not wire.is_done and wire.fault is None:
        try:
            data = await anext(body, b"")
        except BackendError as error:
            return wire.end(error)
        if not data:
            events = wire.end()
            wire.is_done = True
            return events
        events = wire.feed(data)
        if wire.is_ending:
            body.hurry(_AFTERWORD)
        if events:
            return events
    return []


def broken(fault: ClientError | BrokenStream, partial: Response | None) -> ClientError:
    """Return a fault of the stream as the caller gets it, with what arrived before it."""
    if isinstance(fault, ClientError):
        error = fault
    else:
        error = StreamBroken(fault.message, code=fault.code)
    error.partial = partial
    return error
