"""The chat wire: a Responses request as chat completions, and the answer as Responses events.

For models and servers without a Responses API. Request, reader, tool rules, builder and usage
are those of the gateway (`wires.chat.exchange`, `plans.assemble`), so a caller sees the same
events. What a chat server cannot honour is listed in `response.antiphon.degraded`. A chat server
stores nothing: a request that refers to something stored is refused.

No I/O here. A fault of the server ends the events without a terminal one, as on the Responses
wire: everything produced comes first, then `fault` holds the error, or an `error` event has the
server's own words. An answer that is whole but breaks a rule of the request (a required call was
not made) ends in `response.failed`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from antiphon.client.errors import BadCall, ClientError, error_from_stream, error_from_transport
from antiphon.plans.assemble import Assembly
from antiphon.plans.assess import Assessment, assess
from antiphon.plans.capabilities import Capabilities
from antiphon.plans.plan import Plan, make_plan
from antiphon.protocol.call_ids import taken_in
from antiphon.protocol.deltas import Degraded, Delta
from antiphon.protocol.echo import first_response
from antiphon.protocol.errors import BackendError, InvalidRequest
from antiphon.protocol.events import Event
from antiphon.protocol.items import item_type
from antiphon.protocol.machines.builder import Mint, ResponseBuilder
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.protocol.response import Failure
from antiphon.wires.chat.exchange import ChatExchange
from antiphon.wires.chat.profiles import Profile, profile_for

__all__ = ["ChatCall", "ChatWire", "legacy_profile", "read_call"]

_T = TypeVar("_T")
_ID_BYTES: Final = 24
_KEPT: Final = ("previous_response_id", "conversation", "prompt", "background")
# In both APIs; a server that does not know them refuses them itself.
_SHARED: Final = ("user", "safety_identifier", "prompt_cache_key")


def legacy_profile(which: str | None = None) -> Profile:
    """Return the profile of a server, by name or base URL, as chat programs use it.

    System text keeps the role `system`, which every model accepts, and a caller may ask for
    several choices. Raise KeyError for a name without a profile.
    """
    profile = profile_for(which)
    return msgspec.structs.replace(
        profile,
        system_role="system",
        late_system_role="system",
        extra_fields=profile.extra_fields | {"n"},
    )


def _mint(prefix: str) -> str:
    """Return an id that is marked as made by the client: no server can be asked for it."""
    return f"{prefix}_client-{secrets.token_hex(_ID_BYTES)}"


class ChatCall(msgspec.Struct, frozen=True):
    """A request, how far a chat server supports it, and the plan for it."""

    request: CreateResponse
    assessment: Assessment
    plan: Plan


def read_call(body: dict[str, Any]) -> ChatCall:
    """Return what the body of a Responses request asks of a chat model. Raise BadCall."""
    try:
        request = read_request(body)
        _refuse_kept(request)
        assessment = assess(request, request.items, Capabilities())
    except InvalidRequest as error:
        raise BadCall(error.message, code=error.code, param=error.param) from None
    if not request.model:
        raise BadCall("model is missing", param="model")
    assessment.degraded.extend(_unkept(request))
    plan = make_plan(request, assessment, request.items, request.model)
    given = {name: getattr(request, name) for name in _SHARED}
    shared = {name: value for name, value in given.items() if value is not None}
    plan = msgspec.structs.replace(plan, extra={**shared, **request.extra})
    return ChatCall(request, assessment, plan)


def _refuse_kept(request: CreateResponse) -> None:
    """Refuse everything that a server would have to store."""
    for name in _KEPT:
        if getattr(request, name):
            raise BadCall(
                f"{name} needs a Responses server: a chat server keeps nothing; "
                "send the whole conversation",
                param=name,
            )
    for index, item in enumerate(request.items):
        if item_type(item) == "item_reference":
            raise BadCall(
                f"input[{index}] refers to an item, and a chat server keeps none; send the item",
                param=f"input[{index}]",
            )


def _unkept(request: CreateResponse) -> list[str]:
    found = []
    if request.store:
        found.append("store: a chat server keeps nothing")
    if request.truncation == "auto":
        found.append("truncation: a chat server does not shorten the context")
    return found


class ChatWire:
    """One request to a chat server, and its answer as events. See `client.wires.Wire`.

    Raise BadCall for a request that cannot be sent to a chat server. `mint` makes ids, `clock`
    returns the seconds since the epoch.
    """

    path = "/chat/completions"

    def __init__(
        self,
        body: dict[str, Any],
        profile: Profile | None = None,
        *,
        mint: Mint = _mint,
        clock: Callable[[], float] = time.time,
    ) -> None:
        call = read_call(body)
        self.fault: ClientError | None = None
        self.is_done = False
        self._clock = clock
        self._exchange = ChatExchange(call.plan, profile or legacy_profile())
        self.request: Final = bytes(self._exchange.body)
        """The body to post."""
        report = [*self._exchange.degraded, *self._exchange.unenforced()]
        self._builder = _builder(call, report, mint, int(clock()))
        self._assembly = Assembly(call.plan, self._builder)
        self._has_begun = False

    @property
    def skipped_choices(self) -> int:
        """How many choices beyond the first the answer has had; only the first is read."""
        return self._exchange.skipped_choices

    @property
    def is_ending(self) -> bool:
        """Whether the model has stopped: only usage and the end mark can follow, at once.

        Some servers keep the connection open and send no end mark, so do not wait long.
        """
        return self._exchange.has_stopped

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of these bytes of a streamed answer."""
        return self._read(self._exchange.feed, data)

    def end(self, error: BackendError | None = None) -> list[Event]:
        """Return the last events; `error` is how the stream broke, if it did."""
        return self._read(self._exchange.end, error)

    def whole(self, body: bytes) -> list[Event]:
        """Return the events of an answer that was not streamed, as a stream would have them."""
        return self._read(self._exchange.whole, body)

    def _read(self, read: Callable[[_T], Sequence[Delta]], given: _T) -> list[Event]:
        if self.is_done or self.fault is not None:
            return []
        events: list[Event] = []
        try:
            deltas = read(given)
            if deltas:
                events += self._begin()
                events += self._assembly.feed(deltas)
        except BackendError as error:
            return events + self._fail(error)
        if self._exchange.fault is not None:
            return events + self._break(self._exchange.fault)
        return events + self._finish() if self._exchange.is_done else events

    def _begin(self) -> list[Event]:
        if self._has_begun:
            return []
        self._has_begun = True
        return self._builder.start()

    def _finish(self) -> list[Event]:
        events, problem = self._assembly.close()
        if problem is not None:
            return events + self._fail(problem)
        self.is_done = True
        return events + self._assembly.finish(int(self._clock()))

    def _fail(self, problem: BackendError) -> list[Event]:
        """End an answer that breaks a rule of the request as a failed response."""
        self.is_done = True
        error = error_from_transport(problem)
        kind = "server_error" if problem.type == BackendError.type else problem.type
        return self._assembly.fail(Failure(error.code or kind, error.message), kind)

    def _break(self, fault: BackendError) -> list[Event]:
        """Stop at a fault of the server, after everything that the model produced."""
        events = self._assembly.interrupt() if self._has_begun else []
        if fault.reported is not None:
            self.is_done = True
            return events + self._builder.report(fault.reported)
        if self._exchange.ended_early:
            self.is_done = True  # the missing terminal event is the error
        else:
            self.fault = error_from_stream(fault)
        return events


def _builder(call: ChatCall, report: Sequence[str], mint: Mint, now: int) -> ResponseBuilder:
    """Return the builder of the response, with what is known to be degraded."""
    request = call.request
    response = first_response(request, call.assessment.degraded, mint("resp"), call.plan.model, now)
    response.store = False
    summary = response.reasoning and response.reasoning.summary
    builder = ResponseBuilder(
        response,
        mint,
        reasoning_as="summary" if summary else "content",
        is_taken=taken_in(call.plan.items),
    )
    builder.feed_all(map(Degraded, report))
    return builder
