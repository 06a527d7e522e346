"""Public fakes and judges for the tests of programs that use antiphon.

`ScriptedUpstream` is a real chat-completions server on loopback that plays a `Script`: what it
answers, and which fault it injects. antiphon is tested with the same faults. `serve_gateway` runs
a whole gateway on a free port, with a `ScriptedBackend`, or a `ChatBackend` before an upstream.
`ScriptedTool` is a hosted tool that such a gateway runs.
`judge_stream` checks the events of a stream against the grammar of the protocol.
"""

from __future__ import annotations

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend
from antiphon.protocol.machines.referee import Violation, judge_stream
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
from antiphon.testing.tools import ScriptedTool
from antiphon.testing.upstream import Received, ScriptedUpstream

__all__ = [
    "BadUtf8",
    "Bom",
    "Call",
    "ChatBackend",
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
    "ScriptedBackend",
    "ScriptedTool",
    "ScriptedUpstream",
    "Split",
    "Stall",
    "Status",
    "Violation",
    "echo",
    "judge_stream",
    "serve_gateway",
]
