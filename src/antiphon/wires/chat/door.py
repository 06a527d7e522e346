"""The door of the chat API: POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from antiphon.protocol.body import decode_body
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Response
from antiphon.wires.chat.ask import ChatAsk, read_chat
from antiphon.wires.chat.completion import completion_of, reasoning_fields
from antiphon.wires.chat.encode import ChatEncoder
from antiphon.wires.door import failure_of

__all__ = ["ChatAsked", "ChatDoor"]

_encode = msgspec.json.Encoder().encode


class ChatAsked(msgspec.Struct, frozen=True):
    """One request for a completion."""

    ask: ChatAsk
    fields: tuple[str, ...]
    returns_state: bool = False
    """Most clients send back no `reasoning_details`."""
    returns_items: bool = False
    """A completion has no items."""

    @property
    def request(self) -> CreateResponse:
        """What is asked, in our own terms."""
        return self.ask.request

    def encoder(self) -> ChatEncoder:
        """Return a new encoder for the events of the answer."""
        ask = self.ask
        return ChatEncoder(has_usage=ask.has_usage, is_old=ask.is_old, fields=self.fields)

    def write_whole(self, response: Response) -> bytes:
        """Return the completion. Raise BackendError if the response failed."""
        failure = failure_of(response)
        if failure is not None:
            raise failure
        return _encode(completion_of(response, is_old=self.ask.is_old, fields=self.fields))


class ChatDoor:
    """Reads chat requests. A turn that fails before its first output is an HTTP error here.

    `store` is the value for requests without one; `seals`: reasoning can be sealed for the
    caller.
    """

    streams_overflow = False

    def __init__(self, *, store: bool = False, seals: bool = False) -> None:
        self._store = store
        self._seals = seals

    def read(self, data: bytes, headers: Mapping[str, str]) -> ChatAsked:
        """Return the request. Raise InvalidRequest if it is not one."""
        body = decode_body(data)
        ask = read_chat(body, len(data), store=self._store, seals=self._seals)
        return ChatAsked(ask, reasoning_fields(headers.get("x-antiphon-reasoning")))

    def rename(
        self, data: bytes, headers: Mapping[str, str], error: InvalidRequest
    ) -> InvalidRequest:
        """Return a fault of a request that was read, with the names that its body has."""
        return self.read(data, headers).ask.names.rename(error)
