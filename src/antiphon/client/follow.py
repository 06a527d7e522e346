"""The events of a stored response, over as many connections as it takes.

Every event of a response has a sequence number, and a server returns those after any number
(`?stream=true&starting_after=N`). So a connection that is lost costs nothing: the next one goes on
after the last event that was seen, and what a server repeats all the same is skipped. No event is
lost and none is returned twice.

Another connection is made when the last one ended without a terminal event, was silent for too
long, or could not be made, up to a number of times in a row without a new event. What the server
refuses (404: deleted, or never there) is raised at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from antiphon.client.answer import OpenAnswer, broken
from antiphon.client.errors import ClientError, error_from_event
from antiphon.client.resources import read_response
from antiphon.client.sender import Attempts, Sender, with_query
from antiphon.client.wires import ResponsesWire
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import ErrorEvent, Event, is_terminal
from antiphon.protocol.response import DONE_STATUSES, Response

__all__ = ["MAX_RECONNECTS", "Following"]

MAX_RECONNECTS: Final = 10

_log: Final = logging.getLogger("antiphon.client")
_LONGEST_WAIT: Final = 8.0


class Following:
    """The events of a stream that outlives its connections, read as those of an `OpenAnswer`."""

    skipped_choices = 0

    def __init__(
        self,
        sender: Sender,
        path: str,
        *,
        after: int | None,
        max_reconnects: int,
        include: Sequence[str] = (),
    ) -> None:
        self.is_done = False
        self.fault: ClientError | None = None
        self.ending: Response | None = None
        self._sender = sender
        self._path = path
        self._after = after
        self._asked = {"include[]": list(include)} if include else {}
        self._attempts = Attempts(
            max_reconnects + 1,
            gives_up_on=(),
            budget=float("inf"),
            longest_wait=_LONGEST_WAIT,
        )
        self._is_closed = False
        self._has_numbers = True
        self._answer: OpenAnswer | None = None
        self._wire = ResponsesWire({})
        self._is_empty = True
        """Whether the connection had no event yet."""

    async def begin(self) -> Following:
        """Connect; raise ClientError if the server refuses."""
        self._answer = await self._sender.retrying(self._connect)
        return self

    @property
    def is_behind(self) -> bool:
        """Whether more is here already than has been read."""
        return self._answer is not None and self._answer.is_behind

    async def read(self) -> list[Event]:
        """Return the next events; none at the end, or at a fault."""
        while not (self.is_done or self._is_closed) and self.fault is None:
            try:
                events = await self._read_once()
            except ClientError as error:
                await self._note_failure(error)
                continue
            if events:
                self._attempts.start_over()
                return events
        return []

    async def finish(self) -> None:
        """End a stream that was read to its end."""
        if self._answer is not None:
            await self._answer.finish()

    def close(self) -> None:
        """Hang up, and do not connect again. Closing twice does nothing."""
        self._is_closed = True
        if self._answer is not None:
            self._answer.close()

    async def _connect(self) -> OpenAnswer:
        path = with_query(self._path, stream="true", starting_after=self._after, **self._asked)
        self._wire, self._is_empty = ResponsesWire({}), True
        return OpenAnswer(await self._sender.open_events(path), self._wire, [])

    async def _read_once(self) -> list[Event]:
        """Return what the connection has next that is new. Raise ClientError when it is over."""
        if self._answer is None:
            self._answer = await self._connect()
        if self._is_closed:  # while the connection was made
            self._hang_up()
            return []
        batch = await self._answer.read()
        if not batch:
            self._hang_up()
            if await self._is_ended():
                return []
            fault = self._wire.fault or BrokenStream("the stream ended before the response did")
            raise broken(fault, None)
        self._is_empty = False
        self._raise_error(batch[0], self._answer)
        events = [event for event in batch if self._is_new(event)]
        self.is_done = any(map(is_terminal, events))
        return events

    def _is_new(self, event: Event) -> bool:
        number = event.sequence_number
        if number is None:
            return True  # of a kind we do not know, such as a sign of life
        if number < 0:
            self._has_numbers = False
            return True
        if self._after is not None and number <= self._after:
            return False
        self._after = number
        return True

    def _raise_error(self, event: Event, answer: OpenAnswer) -> None:
        """Raise an error that comes in place of events: one that the log cannot have here."""
        if not isinstance(event, ErrorEvent):
            return
        if self._after is None or event.sequence_number <= self._after:
            self._hang_up()
            redact = self._sender.http.redact
            raise error_from_event(event, answer.body.head.headers, redact=redact)

    async def _is_ended(self) -> bool:
        """Look whether there is nothing to read because the caller saw the last event before.

        Then the server has no event for us, and ends its stream properly. Without its end mark
        that is believed only the second time.
        """
        is_proper = self._wire.fault is None and (
            self._wire.has_end_mark or self._attempts.failed > 0
        )
        if not self._is_empty or not is_proper:
            return False
        path = with_query(self._path, **self._asked)
        response = read_response(await self._sender.fetch("GET", path))
        if response.status not in DONE_STATUSES:
            return False
        self.ending = response
        self.is_done = True
        return True

    async def _note_failure(self, error: ClientError) -> None:
        """Wait before the next connection, or note the error if there is to be none."""
        self._hang_up()
        wait = self._attempts.wait_after(error, self._sender.jitter())
        # Without numbers, new events cannot be told from those that were seen.
        if wait is None or self._is_closed or not self._has_numbers:
            self.fault = error
            return
        _log.debug("lost the events of a response; connecting again in %.2f s", wait)
        await self._sender.sleep(wait)

    def _hang_up(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
