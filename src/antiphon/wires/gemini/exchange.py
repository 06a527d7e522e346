"""One request to a Gemini server, and its answer as deltas. No I/O.

    request   plan -> body
    answer    bytes -> GeminiStream -> names -> lifter -> deltas

The deltas are about the caller's own tools. Nothing is raised for what the server does wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallMade, CallOpened, Delta
from antiphon.protocol.errors import BackendError
from antiphon.protocol.sse import MAX_LINE
from antiphon.wires.gemini.names import alias_for
from antiphon.wires.gemini.profiles import Profile
from antiphon.wires.gemini.request import encode_request
from antiphon.wires.gemini.stream import GeminiStream
from antiphon.wires.lift import CallLifter

__all__ = ["GeminiExchange", "model_path"]


def model_path(model: str) -> str:
    """Return the path of a model: its name alone, or with its place (`tunedModels/x`)."""
    return f"/{quote(model if '/' in model else f'models/{model}')}"


class GeminiExchange:
    """The body to post for a plan, and the reader of what comes back."""

    def __init__(
        self, plan: Plan, profile: Profile, account: str = "", max_line: int = MAX_LINE
    ) -> None:
        method = "streamGenerateContent?alt=sse" if plan.stream else "generateContent"
        self.path = f"{model_path(plan.model)}:{method}"
        self.headers: Mapping[str, str] = {}
        self.body, self.degraded = encode_request(plan, profile, account)
        self.has_begun = False
        self._stream = GeminiStream(account=account, max_line=max_line)
        self._lifter = CallLifter(plan.toolbox)
        self._aliases = plan.toolbox.aliases

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
        """Whether the model has stopped; the end of the stream follows."""
        return self._stream.has_reason

    @property
    def is_about_to_end(self) -> bool:
        """Whether nothing more is to be expected but the end."""
        return self._stream.has_reason or self._stream.fault is not None

    def feed(self, data: bytes) -> Sequence[Delta]:
        """Return the deltas of these bytes of a streamed answer."""
        return self._lift(self._stream.feed(data))

    def end(self, error: BackendError | None = None) -> Sequence[Delta]:
        """Return the deltas of the end of the stream; `error` is how it broke, if it did."""
        return self._lift(self._stream.end(error))

    def whole(self, body: bytes) -> Sequence[Delta]:
        """Return the deltas of an answer that was not streamed."""
        return self._lift(self._stream.whole(body))

    def _lift(self, deltas: list[Delta]) -> Sequence[Delta]:
        self.has_begun = self.has_begun or bool(deltas)
        lifter = self._lifter
        if lifter.taken.isdisjoint(map(type, deltas)):
            return deltas  # as most are
        lifted = lifter.feed([self._named(delta) for delta in deltas])
        return [*lifted, *lifter.release()] if self.fault is not None else lifted

    def _named(self, delta: Delta) -> Delta:
        """Return a call under the alias of its tool."""
        if isinstance(delta, CallMade):
            return CallMade(alias_for(delta.name, self._aliases), delta.said, delta.call_id)
        if isinstance(delta, CallOpened):
            return CallOpened(delta.key, alias_for(delta.name, self._aliases), delta.call_id)
        return delta
