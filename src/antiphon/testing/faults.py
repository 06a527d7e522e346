"""How an upstream can misbehave, as data.

A fault with `after=n` strikes when n chunks have gone out; the chunk that names the role is the
first of them. `Act` is what only the server can commit; everything else is a matter of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

__all__ = [
    "Act",
    "BadUtf8",
    "Bom",
    "Close",
    "Comments",
    "ContentType",
    "Cut",
    "Empty",
    "Endless",
    "ErrorChunk",
    "Fault",
    "Garbage",
    "Gzip",
    "Html",
    "HugeLine",
    "IdleClose",
    "LineEnds",
    "NoDone",
    "NoFinalBlank",
    "NoSpace",
    "Reset",
    "Split",
    "Stall",
    "Status",
]


class Fault(msgspec.Struct, frozen=True):
    """Some way of misbehaving."""


class Status(Fault, frozen=True):
    """Answer with this HTTP status, an OpenAI-shaped error and these headers."""

    code: int
    message: str = "scripted failure"
    error_code: str | None = None
    headers: Mapping[str, str] = {}
    body: bytes | None = None
    """Sent instead of the error object, if given."""


class Html(Fault, frozen=True):
    """Answer 200 with a web page, as captive portals and wrong base URLs do."""


class Empty(Fault, frozen=True):
    """Answer 200 with no body."""


class ContentType(Fault, frozen=True):
    """Claim that the body is of this type."""

    value: str = "text/plain"


class _Striking(Fault, frozen=True):
    """A fault that strikes when so many chunks have gone out."""

    after: int = 0


class Reset(_Striking, frozen=True):
    """Reset the connection (RST)."""


class Cut(_Striking, frozen=True):
    """Close the connection in the middle of the body (FIN)."""


class Close(_Striking, frozen=True):
    """End the body properly, but before the answer has ended."""


class Stall(_Striking, frozen=True):
    """Fall silent until the upstream is released or the client leaves; then go on."""


class Garbage(_Striking, frozen=True):
    """Slip in a chunk that is not JSON."""


class BadUtf8(_Striking, frozen=True):
    """Slip in a chunk whose text is not UTF-8."""


class HugeLine(Fault, frozen=True):
    """Slip in one line of this many bytes, made as it is sent."""

    size: int = 300_000_000
    after: int = 0


class Endless(_Striking, frozen=True):
    """Repeat a text chunk for ever."""


class ErrorChunk(Fault, frozen=True):
    """Send an error object in mid-stream and end the body there."""

    after: int = 0
    error: Mapping[str, Any] = MappingProxyType({"message": "scripted failure", "code": 500})


class Gzip(Fault, frozen=True):
    """Compress the body, asked or not."""


class Split(Fault, frozen=True):
    """Send the body in pieces of these sizes, over and over, without regard to the chunks."""

    sizes: Sequence[int] = (1,)


class LineEnds(Fault, frozen=True):
    """End lines with this."""

    value: Literal["\r\n", "\r", "\n"] = "\r\n"


class NoSpace(Fault, frozen=True):
    """Write `data:` without the space."""


class Comments(Fault, frozen=True):
    """Write a comment and a meta-only event before each chunk."""


class Bom(Fault, frozen=True):
    """Begin the body with a byte order mark."""


class NoFinalBlank(Fault, frozen=True):
    """Leave out the blank line after the last event."""


class NoDone(Fault, frozen=True):
    """Leave out `[DONE]`."""


class IdleClose(Fault, frozen=True):
    """Answer in full; close the connection, unannounced, when it has been idle for a while.

    With `crosses` it is closed when the next request arrives instead, which is not answered.
    """

    seconds: float = 0.0
    crosses: bool = False


Act = Reset | Cut | Close | Stall
