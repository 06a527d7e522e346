"""What the exchanges of all native wires have in common: a reader, and a lifter after it.

    answer    bytes -> reader -> lifter -> deltas

The deltas are about the caller's own tools. Nothing is raised for what the server does wrong:
everything read before a fault is returned, and `fault` holds the fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.wires.lift import CallLifter

__all__ = ["LiftedExchange", "Reader"]


class Reader(Protocol):
    """Reads one answer of a server, streamed or whole."""

    @property
    def fault(self) -> BackendError | None:
        """Why the answer cannot be read further."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether the model has begun to answer."""
        ...

    @property
    def has_stopped(self) -> bool:
        """Whether the model has stopped, so that only the end can follow."""
        ...

    def feed(self, data: bytes) -> Sequence[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        ...

    def end(self, error: BackendError | None = None) -> Sequence[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        ...

    def whole(self, body: bytes) -> Sequence[Delta]:
        """Return the deltas of an answer that was not streamed."""
        ...


class LiftedExchange:
    """One request, and the reader of what comes back. A subclass writes the request."""

    headers: Mapping[str, str] = {}
    body: bytes

    def __init__(self, reader: Reader, toolbox: Toolbox) -> None:
        self._reader = reader
        self._lifter = CallLifter(toolbox)

    @property
    def has_begun(self) -> bool:
        """Whether the model has begun to answer; its output may still be held back."""
        return self._reader.has_begun

    @property
    def fault(self) -> BackendError | None:
        """Why the answer cannot be read further."""
        return self._reader.fault

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete."""
        return self._reader.is_done

    @property
    def has_stopped(self) -> bool:
        """Whether the model has stopped, so that only the end can follow."""
        return self._reader.has_stopped

    @property
    def is_about_to_end(self) -> bool:
        """Whether nothing more, or only the end, is to be expected."""
        reader = self._reader
        return reader.has_stopped or reader.is_done or reader.fault is not None

    def drop_body(self) -> None:
        """Forget the request: the answer has begun, so it is not sent again."""
        self.body = b""

    def feed(self, data: bytes) -> Sequence[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        deltas = self._reader.feed(data)
        lifter = self._lifter
        must_lift = lifter.held is not None or self._reader.fault is not None
        if must_lift or not lifter.taken.isdisjoint(map(type, deltas)):
            return self._lift(deltas)
        return deltas  # as most are

    def end(self, error: BackendError | None = None) -> Sequence[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        return self._lift(self._reader.end(error))

    def whole(self, body: bytes) -> Sequence[Delta]:
        """Return the deltas of an answer that was not streamed."""
        return self._lift(self._reader.whole(body))

    def named(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return the deltas with calls under the aliases of their tools."""
        return deltas

    def _lift(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return what these deltas are about the caller's tools, as far as that is certain."""
        deltas = self._lifter.feed(self.named(deltas))
        return deltas if self.fault is None else [*deltas, *self._lifter.release()]
