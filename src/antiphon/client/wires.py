"""From the bytes of an answer to events, without I/O.

A wire knows what to post, and turns the answer into events: `feed` for each piece of a streamed
answer, `end` once when it stops, `whole` for an answer in one piece. Everything read before a
fault is returned first; then `fault` holds the error to raise. `client.chat` has the other wire,
for servers that speak chat completions. Both return the same events and the same errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from antiphon.client.errors import ClientError, error_from_stream
from antiphon.protocol.codec import decode_event, decode_events, decode_response
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.events import (
    Event,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
)
from antiphon.protocol.response import Response
from antiphon.protocol.sse import MAX_LINE, SseDecoder

__all__ = ["TERMINAL", "ResponsesWire", "Wire"]

_DONE: Final = b"[DONE]"
TERMINAL: Final = (ResponseCompleted, ResponseIncomplete, ResponseFailed)
_ENDS: Final = frozenset(TERMINAL)
_EVENT_OF: Final[dict[str, Callable[..., Event]]] = {
    "queued": ResponseQueued,
    "in_progress": ResponseInProgress,
    "completed": ResponseCompleted,
    "incomplete": ResponseIncomplete,
    "failed": ResponseFailed,
    "cancelled": ResponseIncomplete,
}


class Wire(Protocol):
    """How to ask one kind of server, and how to read its answer."""

    path: str
    """Where to post, below the base URL."""
    fault: ClientError | None
    """Why the answer cannot be read further."""
    is_done: bool
    """Whether the answer has ended; what follows is not read."""

    @property
    def is_ending(self) -> bool:
        """Whether the model has stopped; what may still follow comes at once."""
        ...

    @property
    def skipped_choices(self) -> int:
        """How many answers beyond the first there were; only chat servers send any."""
        ...

    @property
    def request(self) -> bytes:
        """The body to post."""
        ...

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete."""
        ...

    def end(self, error: BackendError | None = None) -> list[Event]:
        """Return the events of the end of the stream; `error` says how it broke, if it did."""
        ...

    def whole(self, body: bytes) -> list[Event]:
        """Return the events of an answer that was not streamed."""
        ...


class ResponsesWire:
    """The Responses API itself."""

    path = "/responses"
    is_ending = False
    skipped_choices = 0

    def __init__(self, body: dict[str, Any], max_line: int = MAX_LINE) -> None:
        self.fault: ClientError | None = None
        self.is_done = False
        self.has_end_mark = False
        """Whether the server sent the end mark `[DONE]`, which not all servers do."""
        self._body = body
        self._sse = SseDecoder(max_line)

    @property
    def request(self) -> bytes:
        """The body to post."""
        return msgspec.json.encode(self._body)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete."""
        events: list[Event] = []
        try:
            self.is_done = self.has_end_mark = decode_events(self._sse.feed_lines(data), events)
        except BrokenStream as error:
            self.fault = error_from_stream(error)
        if not _ENDS.isdisjoint(map(type, events)):
            self.is_done = True
        return events

    def end(self, error: BackendError | None = None) -> list[Event]:
        """Return the last event, if only the blank line after it is missing."""
        if error is not None:
            self.fault = self.fault or error_from_stream(error)
        try:
            return [decode_event(frame.data) for frame in self._sse.end() if frame.data != _DONE]
        except BrokenStream:  # it is torn, as in any stream that is cut
            return []

    def whole(self, body: bytes) -> list[Event]:
        """Return the one event that holds an answer that was not streamed."""
        try:
            response = decode_response(body)
        except BrokenStream as error:
            self.fault = error_from_stream(error)
            return []
        return [_event_of(response)]


def _event_of(response: Response) -> Event:
    kind = _EVENT_OF.get(response.status, ResponseCompleted)
    return kind(sequence_number=0, response=response)
