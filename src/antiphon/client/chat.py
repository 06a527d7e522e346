"""The other wire: a Responses request said as chat completions, the answer told as events.

For models and servers that have no Responses API. The events are those of a Responses stream,
born in the same builder as the gateway's, so that nobody behind this wire sees a difference;
rules about tools and usage are the gateway's too. What a chat server cannot honour stands in
`response.antiphon.degraded`. A chat server keeps nothing: a request that points to something
kept is refused.

No I/O here. A fault before the model has said anything is told by `fault` alone, without an
event, so that the call can be tried again. After that the stream ends in `error` and
`response.failed`, with everything that was said, and `fault` says why.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from antiphon.client.errors import BadCall, error_from_transport
from antiphon.plans.assess import Checked, check_request
from antiphon.plans.estimate import estimate_usage
from antiphon.plans.lift import Raiser
from antiphon.plans.plan import Plan, make_plan
from antiphon.plans.tool_gate import gate_for
from antiphon.protocol.call_ids import taken_in
from antiphon.protocol.deltas import Degraded, Delta
from antiphon.protocol.echo import first_response
from antiphon.protocol.errors import AntiphonError, BackendError, InvalidRequest
from antiphon.protocol.events import Event
from antiphon.protocol.items import item_type
from antiphon.protocol.machines.builder import Mint, ResponseBuilder
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.protocol.response import Failure
from antiphon.protocol.sse import MAX_LINE
from antiphon.wires.chat.emulation import emulate
from antiphon.wires.chat.profiles import Profile, profile_for
from antiphon.wires.chat.request import names_in_text, unenforced, write_request
from antiphon.wires.chat.stream import ChatStream

__all__ = ["ChatCall", "ChatWire", "legacy_profile", "read_call"]

_ID_BYTES: Final = 24
_KEPT: Final = ("previous_response_id", "conversation", "prompt", "background")
# Of the Responses API and of the chat API alike; a server that knows them not says so itself.
_SHARED: Final = ("user", "safety_identifier", "prompt_cache_key")


def legacy_profile(which: str | None = None) -> Profile:
    """Return how to speak to the server of a name or base URL as chat programs always have.

    System text stays under the role `system`, which every model takes, and a caller may ask
    for several choices. Raise KeyError for a name that there is no profile of.
    """
    profile = profile_for(which)
    return msgspec.structs.replace(
        profile,
        system_role="system",
        late_system_role="system",
        extra_fields=profile.extra_fields | {"n"},
    )


def _mint(prefix: str) -> str:
    """Return an id whose mark tells that no server made it, so none can be asked for it."""
    return f"{prefix}_client-{secrets.token_hex(_ID_BYTES)}"


class ChatCall(msgspec.Struct, frozen=True):
    """What is asked: the request, what of it can be done, and the plan of that."""

    request: CreateResponse
    checked: Checked
    plan: Plan


def read_call(body: dict[str, Any]) -> ChatCall:
    """Return what the body of a Responses request asks of a chat model. Raise BadCall."""
    try:
        request = read_request(body)
        _refuse_kept(request)
        checked = check_request(request, request.items)
    except InvalidRequest as error:
        raise BadCall(error.message, code=error.code, param=error.param) from None
    if not request.model:
        raise BadCall("model is missing", param="model")
    checked.degraded.extend(_unkept(request))
    plan = make_plan(request, checked, request.items, request.model)
    given = {name: getattr(request, name) for name in _SHARED}
    shared = {name: value for name, value in given.items() if value is not None}
    plan = msgspec.structs.replace(plan, extra={**shared, **request.extra})
    return ChatCall(request, checked, plan)


def _refuse_kept(request: CreateResponse) -> None:
    """Refuse whatever a server would have to remember."""
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

    Raise BadCall for a request that no chat server can be asked. `mint` makes ids, `clock`
    tells the seconds since the epoch.
    """

    path = "/chat/completions"

    def __init__(
        self,
        body: dict[str, Any],
        profile: Profile | None = None,
        *,
        mint: Mint = _mint,
        clock: Callable[[], float] = time.time,
        max_line: int = MAX_LINE,
    ) -> None:
        profile = legacy_profile() if profile is None else profile
        call = read_call(body)
        self.fault: AntiphonError | None = None
        self.is_done = False
        self._plan = call.plan
        self._clock = clock
        self._emulation = emulate(call.plan, profile)
        asked = call.plan if self._emulation is None else self._emulation.plan
        chat_body, report = write_request(asked, profile)
        report += unenforced(asked, profile)
        self._request = msgspec.json.encode(chat_body)
        names = names_in_text(asked, profile)
        self._chat = ChatStream(think_tags=profile.think_tags, names=names, max_line=max_line)
        self._raiser = Raiser(call.plan.toolbox)
        self._gate = gate_for(call.plan)
        self._builder = _builder(call, report, mint, int(clock()))
        self._has_begun = False

    @property
    def request(self) -> bytes:
        """What to post."""
        return self._request

    @property
    def skipped_choices(self) -> int:
        """How many choices beyond the first the answer has had; only the first is told."""
        return self._chat.skipped_choices

    @property
    def is_ending(self) -> bool:
        """Say whether the model has stopped: only usage and the end mark can follow, at once.

        Some servers keep the line open and send no end mark; there is no need to be patient.
        """
        return self._chat.has_reason

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes of a streamed answer cause."""
        return self._read(lambda: self._chat.feed(data))

    def end(self, error: BackendError | None = None) -> list[Event]:
        """Return the last events: the answer was whole, or it failed. `error` says how."""
        return self._read(lambda: self._chat.end(error))

    def whole(self, body: bytes) -> list[Event]:
        """Return the events of an answer that was not streamed: all that a stream would tell."""
        return self._read(lambda: self._chat.whole(body))

    def _read(self, deltas: Callable[[], list[Delta]]) -> list[Event]:
        if self.is_done:
            return []
        events: list[Event] = []
        try:
            self._tell(self._raise(deltas()), events)
            if self._chat.fault is not None:
                raise self._chat.fault
        except BackendError as fault:
            return events + self._fail(fault)
        return events + self._finish() if self._chat.is_done else events

    def _raise(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        """Return what the deltas are to the caller: calls of the tools that were offered."""
        if self._emulation is not None:
            deltas = self._emulation.feed(deltas)
        deltas = self._raiser.feed(deltas)
        if self._chat.fault is None:
            return deltas
        rest = self._emulation.release() if self._emulation is not None else []
        return [*deltas, *self._raiser.feed(rest), *self._raiser.release()]

    def _tell(self, deltas: Sequence[Delta], events: list[Event]) -> None:
        """Add what the deltas cause to `events`, which keep it if one of them is a fault."""
        if deltas and not self._has_begun:
            self._has_begun = True
            events += self._builder.start()
        for delta in deltas:
            admitted = self._gate.admit(delta)
            if admitted is not None:
                events += self._builder.feed(admitted)

    def _finish(self) -> list[Event]:
        events = self._builder.close()
        violation = self._gate.violation()
        if violation is not None:
            return events + self._fail(violation)
        self._note_rest()
        self.is_done = True
        return events + self._builder.finish(int(self._clock()))

    def _fail(self, fault: BackendError) -> list[Event]:
        self.fault = fault
        if not self._has_begun:
            return []
        self.is_done = True
        events = self._builder.close("incomplete")
        self._note_rest()
        error = error_from_transport(fault)
        kind = "server_error" if fault.type == BackendError.type else fault.type
        return events + self._builder.fail(Failure(error.code or kind, error.message), kind)

    def _note_rest(self) -> None:
        """Note what only the end shows: usage that the server did not count."""
        if self._builder.usage is None:
            self._builder.note_estimate(estimate_usage(self._plan, self._builder.output))


def _builder(call: ChatCall, report: list[str], mint: Mint, now: int) -> ResponseBuilder:
    """Return the builder of the response, with what is known to be degraded."""
    request = call.request
    response = first_response(request, call.checked.degraded, mint("resp"), call.plan.model, now)
    response.store = False
    summary = response.reasoning and response.reasoning.summary
    builder = ResponseBuilder(
        response,
        mint,
        reasoning_as="summary" if summary else "content",
        is_taken=taken_in(call.plan.items),
    )
    for what in report:
        builder.feed(Degraded(what))
    return builder
