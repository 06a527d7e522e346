"""What is a door: an API that the gateway answers?

A door reads a request in its own language and writes the answer in it; everything between is
the same for all doors. What it reads becomes a `CreateResponse`, and what it writes comes from
the events of a turn, or from the response that the turn ended in. Doors are pure, and know
nothing of HTTP but the headers of a request, which are found by names of any case. The shape of
errors belongs to a route, because some are raised before its door reads anything.

An encoder belongs to one stream and sees all of its events, in their order, the first one too.
It is called for every batch of tokens, so it must be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from antiphon.protocol.errors import AntiphonError, BackendError, InvalidRequest, failure_type
from antiphon.protocol.events import Event
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Response

__all__ = [
    "HEARTBEAT",
    "Asked",
    "Door",
    "ErrorWriter",
    "EventEncoder",
    "failure_of",
    "openai_error",
]

HEARTBEAT: Final = b": keepalive\n\n"
"""A comment: every reader of server-sent events skips it."""

ErrorWriter = Callable[[AntiphonError, str], bytes]
"""Writes the body of an HTTP error; the text is the id of the request."""

# The status of a failure, by its code. What is not listed is the fault of the upstream.
_STATUSES: Final = {
    "context_length_exceeded": 400,
    "key_revoked": 401,
    "model_not_found": 404,
    "response_deleted": 409,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "cancelled": 500,
    "server_error": 500,
    "server_restarted": 500,
    "server_overloaded": 503,
    "store_unavailable": 503,
    "upstream_overloaded": 503,
}
_encode = msgspec.json.Encoder().encode


class EventEncoder(Protocol):
    """Writes the events of one stream as bytes."""

    @property
    def encode(self) -> Callable[[Sequence[Event]], bytes]:
        """What writes a batch of events; the bytes may be none."""
        ...

    @property
    def heartbeat(self) -> bytes:
        """What is sent in silence, so that the connection is not taken for dead."""
        ...

    def end(self) -> bytes:
        """Return what ends a stream after its last event."""
        ...


class Asked(Protocol):
    """One request, as its door has read it."""

    @property
    def request(self) -> CreateResponse:
        """What is asked, in our own terms."""
        ...

    @property
    def returns_state(self) -> bool:
        """Whether the client sends sealed reasoning back with the calls of the answer.

        If not, the gateway keeps native state for it, by call id.
        """
        ...

    @property
    def returns_items(self) -> bool:
        """Whether the client gets what hosted tools did as items, and can send it back."""
        ...

    def encoder(self) -> EventEncoder:
        """Return a new encoder for the events of the answer."""
        ...

    def write_whole(self, response: Response) -> bytes:
        """Return the body of the answer. Raise AntiphonError if it must be an HTTP error."""
        ...


class Door(Protocol):
    """An API that the gateway answers."""

    @property
    def streams_overflow(self) -> bool:
        """Whether a context that is too long is reported as a failed stream, if one was asked for.

        If not, it is an HTTP error.
        """
        ...

    def read(self, data: bytes, headers: Mapping[str, str]) -> Asked:
        """Return what the body asks for. Raise CallerError; large bodies are read in a thread."""
        ...

    def rename(
        self, data: bytes, headers: Mapping[str, str], error: InvalidRequest
    ) -> InvalidRequest:
        """Return a fault that was found after the body was read, with the names that it has."""
        ...


def openai_error(error: AntiphonError, request_id: str = "") -> bytes:
    """Return the body of an HTTP error as OpenAI has it, also for chat completions."""
    fields = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    return _encode({"error": fields})


def failure_of(response: Response) -> BackendError | None:
    """Return the error of a response that did not come to an answer, None if it did.

    For doors whose answers cannot express a failure. What the model produced before is in the
    stored response, if that is stored.
    """
    if response.status not in ("failed", "cancelled"):
        return None
    code, message = response.status, f"the response is {response.status}"
    if response.error is not None:
        code, message = response.error.code or "server_error", response.error.message
    status = _STATUSES.get(code, BackendError.status)
    return BackendError(message, code=code, status=status, type=failure_type(code))
