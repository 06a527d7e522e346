"""How an answer can fall short of what a chat application was promised.

    AntiphonError
    └── HostError               any of these
        ├── StreamCut           no terminal event: `partial` holds what arrived
        ├── ResponseFailed      the server ended it as failed: `code`, `message`, `response`
        ├── MalformedCall       a call that cannot be run: `call_id`, `name`, `arguments`
        ├── ChangedCall         a call changed after it was handed over: `told`, `said`
        ├── DamagedText         the text shown is not that of the response: `shown`, `said`
        ├── TurnCancelled       the application asked to stop: `partial` holds what arrived
        └── UnsupportedContent  a part that no model accepts (also a ValueError): `mime`

The first five are raised when the answer is over: the parts before it stay valid, and the error
names what is missing. If several apply, the first in this list is raised. A connection that
breaks raises the client's errors (`antiphon.client.errors`) on every endpoint.
Messages hold ids and names, never text or arguments.
"""

from __future__ import annotations

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.response import Response

__all__ = [
    "ChangedCall",
    "DamagedText",
    "HostError",
    "MalformedCall",
    "ResponseFailed",
    "StreamCut",
    "TurnCancelled",
    "UnsupportedContent",
]


class HostError(AntiphonError):
    """Something between the application and the model went wrong."""

    type = "host_error"


class StreamCut(HostError):
    """The stream ended without its terminal event. `partial` holds what arrived, if anything."""

    code = "stream_cut"

    def __init__(self, partial: Response | None) -> None:
        super().__init__("the answer broke off: its stream ended without a terminal event")
        self.partial = partial


class ResponseFailed(HostError):
    """The server ended the response as failed. `message` is the server's own.

    `response` holds the output until then; None if the stream did not begin.
    """

    def __init__(self, code: str | None, message: str, response: Response | None) -> None:
        super().__init__(f"the response failed: {message or 'no reason given'}")
        self.code = code
        self.message = message
        self.response = response


class MalformedCall(HostError):
    """A tool call that cannot be run, because its arguments are no JSON object or are cut off.

    It was not handed over, and its meaning was not guessed. All other calls were handed over.
    """

    code = "malformed_call"

    def __init__(
        self, call_id: str, name: str, arguments: str, *, why: str, response: Response
    ) -> None:
        super().__init__(f"the call {call_id!r} of {name!r} cannot be run: {why}")
        self.call_id = call_id
        self.name = name
        self.arguments = arguments
        self.response = response


class ChangedCall(HostError):
    """A tool call was handed over, and the final response has other arguments for it.

    `told` are the arguments that were handed over, `said` those of the final response. What the
    call caused cannot be undone: handle the difference, or ask again.
    """

    code = "changed_call"

    def __init__(
        self, call_id: str, name: str, *, told: str, said: str, response: Response
    ) -> None:
        super().__init__(f"the call {call_id!r} of {name!r} changed after it was handed over")
        self.call_id = call_id
        self.name = name
        self.told = told
        self.said = said
        self.response = response


class DamagedText(HostError):
    """The text that was shown is not the text of the response: some of it got lost or doubled.

    Text that was shown cannot be withdrawn. Show `said`, the text of the response, or ask again.
    """

    code = "damaged_text"

    def __init__(self, shown: str, said: str, response: Response) -> None:
        super().__init__(
            f"the text that was shown ({len(shown)} characters) is not that of the response "
            f"({len(said)} characters)"
        )
        self.shown = shown
        self.said = said
        self.response = response


class TurnCancelled(HostError):
    """The application asked to stop, and the model was stopped. Nothing went wrong."""

    code = "cancelled"

    def __init__(self, partial: Response | None) -> None:
        super().__init__("the turn was cancelled")
        self.partial = partial


class UnsupportedContent(HostError, ValueError):
    """A part of a message that no model accepts."""

    code = "unsupported_content"

    def __init__(self, mime: str) -> None:
        super().__init__(f"data of type {mime!r} cannot be sent to a model")
        self.mime = mime
