"""The door of Anthropic's Messages API: what its clients send, and what they are answered.

Thinking is shown only if the caller asked for it and the gateway can seal it: a client must send
the blocks back, and one that cannot be opened then would be worth nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from antiphon.plans.estimate import estimate_tokens, estimate_tools
from antiphon.plans.plan import BETAS
from antiphon.protocol.body import decode_body
from antiphon.protocol.errors import AntiphonError, InvalidRequest
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import Response
from antiphon.protocol.tool_list import ToolList
from antiphon.wires.door import failure_of
from antiphon.wires.messages.answer import whole_message
from antiphon.wires.messages.ask import Thinking, names_of, read_ask, read_thinking
from antiphon.wires.messages.encode import MessagesEncoder
from antiphon.wires.messages.errors import (
    OVERFLOW_CODES,
    THREAD_LOST,
    error_body,
    error_type,
    overflow_words,
)

__all__ = ["MessagesAsked", "MessagesDoor", "estimate_prompt", "write_error"]

_MAX_BETAS: Final = 32
_encode = msgspec.json.Encoder().encode


class MessagesAsked(msgspec.Struct, frozen=True):
    """One request for a message."""

    request: CreateResponse
    thinking: Thinking
    returns_items: bool = False
    """Calls that the gateway ran are not among the blocks of a message."""

    @property
    def returns_state(self) -> bool:
        """Whether the client gets blocks of thinking, which it has to send back."""
        return self.thinking.is_shown

    def encoder(self) -> MessagesEncoder:
        """Return a new encoder; clients show the length of the prompt before the answer ends."""
        return MessagesEncoder(self.thinking, prompt_tokens=estimate_prompt(self.request))

    def write_whole(self, response: Response) -> bytes:
        """Return the message. Raise BackendError if the response failed: it cannot say so."""
        failure = failure_of(response)
        if failure is not None:
            raise failure
        return _encode(whole_message(response, self.thinking))


class MessagesDoor:
    """POST /v1/messages. `can_seal` is whether thinking can travel through the client.

    `store` is the value of that field for a body without it.
    """

    streams_overflow = False  # clients compact when it is an HTTP error

    def __init__(self, *, can_seal: bool, store: bool = False) -> None:
        self._can_seal = can_seal
        self._store = store

    def read(self, data: bytes, headers: Mapping[str, str]) -> MessagesAsked:
        """Return the request. Raise InvalidRequest if it is not one."""
        body = decode_body(data)
        if not isinstance(body, dict):
            raise InvalidRequest("the body must be a JSON object", code="invalid_type")
        thinking = read_thinking(body) if self._can_seal else Thinking()
        request = read_ask(body, len(data), store=self._store)
        betas = [name.strip() for name in headers.get(BETAS, "").split(",")]
        if any(betas):
            request.extra[BETAS] = tuple(name for name in betas if name)[:_MAX_BETAS]
        return MessagesAsked(request, thinking)

    def rename(
        self, data: bytes, headers: Mapping[str, str], error: InvalidRequest
    ) -> InvalidRequest:
        """Return a fault of a request that was read, with the names that its body has."""
        body = decode_body(data)
        return names_of(body).rename(error) if isinstance(body, dict) else error


def write_error(error: AntiphonError, request_id: str) -> bytes:
    """Return the body of an HTTP error in Anthropic's shape."""
    message = error.message
    if error.code in OVERFLOW_CODES:
        message = overflow_words(error)
    body = error_body(error_type(error.code, status=error.status), message, request_id)
    if error.code == THREAD_LOST:
        body["error"]["details"] = {"error_code": THREAD_LOST}
    return _encode(body)


def estimate_prompt(request: CreateResponse) -> int:
    """Return about how many tokens the prompt of a request has."""
    tools = request.tools or ()
    if isinstance(tools, ToolList):
        return estimate_tokens(request.items) + tools.derived.get(
            estimate_tools, lambda: estimate_tools(tools)
        )
    return estimate_tokens(request.items) + estimate_tools(tools)
