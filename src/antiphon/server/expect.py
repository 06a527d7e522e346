"""`Expect: 100-continue`: a client waits for an interim answer before it sends its body.

That answer is sent when the body is about to be read. By then the caller is authenticated, and what
can be refused by the head alone has been refused, so no client sends a large body for nothing.
A client that gets its final answer instead does not send the body. The connection closes after
that answer, because it is not clear where the next request would begin.
"""

from __future__ import annotations

from typing import Final

from aiohttp import HttpVersion11, web

from antiphon.protocol.errors import CallerError

__all__ = ["ExpectationFailed", "check_expectation", "invite_body", "is_waiting"]

_CONTINUE: Final = "100-continue"


class ExpectationFailed(CallerError):
    """The client expects something that we do not know."""

    status = 417
    code = "expectation_failed"


def check_expectation(request: web.BaseRequest) -> None:
    """Raise ExpectationFailed for any expectation but 100-continue."""
    expected = request.headers.get("Expect")
    if expected is not None and expected.strip().lower() != _CONTINUE:
        raise ExpectationFailed(f"only Expect: {_CONTINUE} is known here")


def is_waiting(request: web.BaseRequest) -> bool:
    """Return whether the client holds its body back until it gets an interim answer."""
    # Anything else than 100-continue was refused. HTTP/1.0 knows no interim answers.
    return "Expect" in request.headers and request.version >= HttpVersion11


def invite_body(request: web.BaseRequest) -> None:
    """Send the interim answer to a client that waits for it."""
    transport = request.transport
    if is_waiting(request) and transport is not None:
        transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
