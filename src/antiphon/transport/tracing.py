"""Which trace does the work of this task belong to?

A request that is traced has a `Trace`, in a context variable: tasks that it starts inherit it. Its
ids come from the caller's `traceparent` header if that is valid (W3C Trace Context), and go on to
upstreams: `trace_headers` names the call that is being made. Who records traces is elsewhere.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from random import getrandbits
from typing import Final

__all__ = ["Trace", "begin_trace", "current_trace", "read_parent", "trace_headers"]

_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MAX_STATE: Final = 512
_INVALID_VERSION: Final = "ff"
_current: ContextVar[Trace | None] = ContextVar("antiphon_trace", default=None)


class Trace:
    """The ids of one request. `parent_id` is the caller's span, 0 without one."""

    __slots__ = ("call_id", "is_sampled", "parent_id", "span_id", "state", "trace_id")

    def __init__(
        self, trace_id: int, parent_id: int = 0, state: str = "", *, is_sampled: bool | None = None
    ) -> None:
        self.trace_id = trace_id
        self.parent_id = parent_id
        self.span_id = self.new_span_id()
        self.call_id = self.span_id
        """The span of the call of a model that was begun last."""
        self.state = state
        self.is_sampled = is_sampled
        """What the caller has decided about recording it; None if it has not."""

    @staticmethod
    def new_span_id() -> int:
        """Return the id of another span of the trace."""
        return getrandbits(64) or 1


def read_parent(parent: str | None, state: str | None = None) -> Trace:
    """Return the trace that a caller's headers begin, or a new one."""
    found = _PARENT.fullmatch(parent) if parent else None
    if found is None or found[1] == _INVALID_VERSION or (found[1] == "00" and found[5]):
        return Trace(getrandbits(128) or 1)
    trace_id, parent_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not parent_id:
        return Trace(getrandbits(128) or 1)
    kept = state if state and len(state) <= _MAX_STATE and state.isprintable() else ""
    return Trace(trace_id, parent_id, kept, is_sampled=bool(int(found[4], 16) & 1))


def begin_trace(trace: Trace) -> None:
    """Let the current task, and those it starts, work for this trace."""
    _current.set(trace)


def current_trace() -> Trace | None:
    """Return the trace that the current task works for, if it is traced."""
    return _current.get()


def trace_headers() -> dict[str, str]:
    """Return the headers that tell an upstream which call of which trace it answers."""
    trace = _current.get()
    if trace is None:
        return {}
    flags = "00" if trace.is_sampled is False else "01"
    headers = {"traceparent": f"00-{trace.trace_id:032x}-{trace.call_id:016x}-{flags}"}
    if trace.state:
        headers["tracestate"] = trace.state
    return headers
