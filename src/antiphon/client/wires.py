"""From the bytes of an answer to events, without I/O.

A wire knows what to post, and turns the answer into events: `feed` for each piece of a streamed
answer, `end` once when it stops, `whole` for an answer in one piece. Everything read before a
fault is returned first; then `fault` holds the error to raise. `client.chat` has the other wire,
for servers that speak chat completions. Both return the same events and the same errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from antiphon.client.chat import ChatWire
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
from antiphon.protocol.sse import SseDecoder

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


class ResponsesWire:
    """The Responses API itself."""

    path = "/responses"
    """Where to post, below the base URL."""
    is_ending = False
    skipped_choices = 0

    def __init__(self, body: dict[str, Any]) -> None:
        self.fault: ClientError | None = None
        """Why the answer cannot be read further."""
        self.is_done = False
        """Whether the answer has ended; what follows is not read."""
        self.has_end_mark = False
        """Whether the server sent the end mark `[DONE]`, which not all servers do."""
        self.request: Final = msgspec.json.encode(body)
        """The body to post."""
        self._sse = SseDecoder()

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
        kind = _EVENT_OF.get(response.status, ResponseCompleted)
        return [kind(sequence_number=0, response=response)]


Wire = ResponsesWire | ChatWire
"""How to ask one kind of server, and how to read its answer."""
