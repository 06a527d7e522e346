"""One request to a Responses server, and its answer as deltas. No I/O.

    request   plan -> body
    answer    bytes -> ResponsesStream -> lifter -> deltas

Calls of functions that stood for tools of other kinds are lifted back. Nothing is raised for what
the server does wrong: everything read before a fault is returned, and `fault` holds the fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import Delta
from antiphon.protocol.errors import BackendError
from antiphon.protocol.sse import MAX_LINE
from antiphon.wires.lift import CallLifter
from antiphon.wires.responses.profiles import Profile
from antiphon.wires.responses.request import encode_request
from antiphon.wires.responses.stream import ResponsesStream

__all__ = ["ResponsesExchange"]


class ResponsesExchange:
    """The body to post for a plan, and the reader of what comes back."""

    path: Final = "/responses"

    def __init__(
        self,
        plan: Plan,
        profile: Profile,
        hosted: frozenset[str] = frozenset(),
        account: str = "",
        max_line: int = MAX_LINE,
    ) -> None:
        self.headers: Mapping[str, str] = {}
        self.body, self.degraded = encode_request(plan, profile, hosted, account)
        self._stream = ResponsesStream(
            profile,
            plan.toolbox,
            account=account,
            limit=plan.max_output_tokens,
            max_line=max_line,
        )
        self._lifter = CallLifter(plan.toolbox)

    @property
    def has_begun(self) -> bool:
        """Whether the model has begun to answer; its output may still be held back."""
        return self._stream.has_begun

    @property
    def fault(self) -> BackendError | None:
        """Why the answer cannot be read further."""
        return self._stream.fault

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete."""
        return self._stream.is_done

    @property
    def has_stopped(self) -> bool:
        """Whether only the end can follow: the terminal event, or an error, has come."""
        return self._stream.is_done or self._stream.error is not None

    @property
    def is_about_to_end(self) -> bool:
        """Whether nothing more, or only the end of a failed answer, is to be expected."""
        return self.has_stopped or self._stream.fault is not None

    def feed(self, data: bytes) -> Sequence[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        return self._lift(self._stream.feed(data))

    def end(self, error: BackendError | None = None) -> Sequence[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        return self._lift(self._stream.end(error))

    def whole(self, body: bytes) -> Sequence[Delta]:
        """Return the deltas of an answer that was not streamed."""
        return self._lift(self._stream.whole(body))

    def _lift(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        lifted = self._lifter.feed(deltas)
        return lifted if self.fault is None else [*lifted, *self._lifter.release()]
