"""What a test needs to stand an upstream up and knock it over.

`ScriptedUpstream` is a real chat-completions server on loopback that plays a `Script`: what it
says, and how it misbehaves while saying it. It is public, so that programs built on antiphon
can be tested against the faults that antiphon is tested against. `serve_gateway` runs a whole
gateway on a free port. The fake model for tests without an upstream is
`antiphon.backends.scripted`.
"""

from __future__ import annotations

from antiphon.testing.faults import (
    BadUtf8,
    Bom,
    Close,
    Comments,
    ContentType,
    Cut,
    Empty,
    Endless,
    ErrorChunk,
    Fault,
    Garbage,
    Gzip,
    Html,
    HugeLine,
    IdleClose,
    LineEnds,
    NoDone,
    NoFinalBlank,
    NoSpace,
    Reset,
    Split,
    Stall,
    Status,
)
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.testing.script import Call, Script, echo
from antiphon.testing.upstream import Received, ScriptedUpstream

__all__ = [
    "BadUtf8",
    "Bom",
    "Call",
    "Close",
    "Comments",
    "ContentType",
    "Cut",
    "Empty",
    "Endless",
    "ErrorChunk",
    "Fault",
    "Garbage",
    "Gateway",
    "Gzip",
    "Html",
    "HugeLine",
    "IdleClose",
    "LineEnds",
    "NoDone",
    "NoFinalBlank",
    "NoSpace",
    "Received",
    "Reset",
    "Script",
    "ScriptedUpstream",
    "Split",
    "Stall",
    "Status",
    "echo",
    "serve_gateway",
]
