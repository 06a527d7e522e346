"""One request to a chat completions server, and its answer as deltas. No I/O.

    request   plan -> emulation -> body
    answer    bytes -> ChatStream -> emulation -> lifter -> deltas

The deltas are about the caller's own tools: calls of the functions that stood for them in the
request are lifted back. Nothing is raised for what the server does wrong: everything read before
a fault is returned, and `fault` holds the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.protocol.long_body import LongBody
from antiphon.protocol.sse import MAX_LINE
from antiphon.wires.chat.emulation import emulate
from antiphon.wires.chat.profiles import Profile
from antiphon.wires.chat.request import encode_request, names_in_text, unenforced, write_request
from antiphon.wires.chat.stream import ChatStream
from antiphon.wires.lift import CallLifter

__all__ = ["ChatExchange", "prompt_of"]

_T = TypeVar("_T")


class ChatExchange:
    """The body to post for a plan, and the reader of what comes back."""

    path: Final = "/chat/completions"

    def __init__(self, plan: Plan, profile: Profile, max_line: int = MAX_LINE) -> None:
        self._profile = profile
        self._emulation = emulate(plan, profile)
        sent = self._sent = plan if self._emulation is None else self._emulation.plan
        self.headers: Mapping[str, str] = {}
        self.body: bytes | LongBody
        self.body, self.degraded = encode_request(sent, profile)
        """The request, and what it cannot express of the plan."""
        self._stream = ChatStream(
            think_tags=profile.think_tags, names=names_in_text(sent, profile), max_line=max_line
        )
        self._lifter = CallLifter(plan.toolbox)
        self.has_begun = False
        """Whether the model has begun to answer; its output may still be held back."""
        self._is_at_end = False
        self._is_whole = False
        self._cut: BackendError | None = None

    def unenforced(self) -> list[str]:
        """Return what the server may not do, though it was asked to."""
        return unenforced(self._sent, self._profile)

    @property
    def fault(self) -> BackendError | None:
        """Why the answer cannot be read further."""
        return self._stream.fault

    @property
    def ended_early(self) -> bool:
        """Whether the fault is only that a stream ended, in good order, before the answer did."""
        if self.fault is None or self.fault is self._cut or self._is_whole:
            return False
        is_empty = self._is_at_end and not self._stream.has_frames
        return is_empty or self.fault.code == "upstream_closed"

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete."""
        return self._stream.is_done

    @property
    def has_stopped(self) -> bool:
        """Whether the model has stopped, so that only usage and the end mark can follow."""
        return self._stream.has_reason

    @property
    def is_about_to_end(self) -> bool:
        """Whether nothing more, or only usage and the end mark, is to be expected."""
        stream = self._stream
        return stream.has_reason or stream.is_done or stream.fault is not None

    @property
    def skipped_choices(self) -> int:
        """How many choices beyond the first the answer has had; only the first is read."""
        return self._stream.skipped_choices

    def drop_body(self) -> None:
        """Forget the request: the answer has begun, so it is not sent again."""
        self.body = b""

    def feed(self, data: bytes) -> Sequence[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        try:
            deltas = self._stream.feed(data)
        except BackendError:  # `fault` holds it
            return self._lift(())
        lifter = self._lifter
        if (
            self._emulation is None
            and lifter.held is None
            and lifter.taken.isdisjoint(map(type, deltas))
        ):
            if deltas:
                self.has_begun = True
            return deltas  # as most are
        return self._lift(deltas)

    def end(self, error: BackendError | None = None) -> Sequence[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        self._is_at_end, self._cut = True, error
        return self._read(self._stream.end, error)

    def whole(self, body: bytes) -> Sequence[Delta]:
        """Return the deltas of an answer that was not streamed."""
        self._is_whole = True
        return self._read(self._stream.whole, body)

    def _read(self, read: Callable[[_T], list[Delta]], given: _T) -> Sequence[Delta]:
        try:
            deltas: Sequence[Delta] = read(given)
        except BackendError:  # `fault` holds it
            deltas = ()
        return self._lift(deltas)

    def _lift(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return what these deltas are about the caller's tools, as far as that is certain."""
        self.has_begun = self.has_begun or bool(deltas)
        if self._emulation is not None:
            deltas = self._emulation.feed(deltas)
        deltas = self._lifter.feed(deltas)
        if self.fault is not None:
            held = self._emulation.release() if self._emulation is not None else []
            self.fault.is_torn = self.fault.is_torn or bool(held)
            return [*deltas, *self._lifter.feed(held), *self._lifter.release()]
        return deltas


def prompt_of(plan: Plan, profile: Profile) -> dict[str, Any]:
    """Return the request for this plan as a JSON object, to count what the model would read."""
    emulation = emulate(plan, profile)
    return write_request(plan if emulation is None else emulation.plan, profile)[0]
