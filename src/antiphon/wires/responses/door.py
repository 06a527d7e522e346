"""The door of the Responses API: bodies, events and responses are those of our protocol.

The codec writes them; this is only its form as a door. `encode` is a partial of the codec's
function, so that a token costs no call more than the codec's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from antiphon.protocol.body import decode_body
from antiphon.protocol.codec import DONE, Dialect, encode_all_sse, encode_response
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.events import Event
from antiphon.protocol.includes import Hidden, hidden_in_stream
from antiphon.protocol.kept_inputs import OwnInputs
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.protocol.response import Response
from antiphon.wires.door import HEARTBEAT

__all__ = ["ResponsesDoor", "ResponsesEncoder"]

_EVENT: Final = b'event: keepalive\ndata: {"type":"keepalive"}\n\n'


class ResponsesEncoder:
    """Writes events as they are, in a dialect. `agent` is the client's own name for itself.

    `hidden` leaves out what `include` did not ask for.
    """

    __slots__ = ("encode", "heartbeat")

    def __init__(self, dialect: Dialect, agent: str = "", hidden: Hidden | None = None) -> None:
        plain = partial(encode_all_sse, dialect=dialect)
        self.encode: Callable[[Sequence[Event]], bytes] = plain
        if hidden is not None:
            self.encode = partial(_encode_shown, plain, hidden)
        self.heartbeat = _EVENT if _counts_only_events(agent, dialect) else HEARTBEAT

    def end(self) -> bytes:
        """Return the end marker."""
        return DONE


class _Asked(msgspec.Struct, frozen=True):
    request: CreateResponse
    dialect: Dialect
    agent: str
    returns_state: bool = True
    returns_items: bool = True

    def encoder(self) -> ResponsesEncoder:
        hidden = hidden_in_stream(self.request.tools, self.request.include)
        return ResponsesEncoder(self.dialect, self.agent, hidden)

    def write_whole(self, response: Response) -> bytes:
        hidden = Hidden(self.request.include or ())
        return encode_response(hidden.response(response), self.dialect)


class ResponsesDoor:
    """POST /v1/responses. A failed response is an answer here, not an HTTP error.

    `inputs` are those that the caller has sent before, and gets the long ones.
    """

    streams_overflow = True  # the only form in which Codex knows it

    def __init__(self, dialect: Dialect, inputs: OwnInputs | None = None) -> None:
        self._dialect: Dialect = dialect
        self._inputs = inputs

    def read(self, data: bytes, headers: Mapping[str, str]) -> _Asked:
        """Return the request. Raise InvalidRequest if it is not one."""
        request = read_request(decode_body(data, self._inputs), len(data))
        return _Asked(request, self._dialect, headers.get("User-Agent", ""))

    def rename(
        self, data: bytes, headers: Mapping[str, str], error: InvalidRequest
    ) -> InvalidRequest:
        """Return the fault as it is: the names are those of this API."""
        return error


def _encode_shown(
    encode: Callable[[Sequence[Event]], bytes], hidden: Hidden, events: Sequence[Event]
) -> bytes:
    return encode(hidden.events(events))


def _counts_only_events(agent: str, dialect: Dialect) -> bool:
    """Return whether only parsed events reset this client's idle timer, as in Codex."""
    return dialect == "openai" and agent.lower().startswith("codex")
