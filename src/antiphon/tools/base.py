"""What runs a kind of hosted tool? The contract between the loop and the runners of tools.

A `ToolRunner` lives as long as the process and knows some kinds of tools. For each turn that
declares one of them it makes a `ToolSession`. Who does what, in this order:

    | step                                          | done by                                 |
    |-----------------------------------------------|-----------------------------------------|
    | take the tools of a request, or refuse them   | `ToolRunner.begin`, before the turn     |
    | list what the model may call                  | `ToolSession.prepare`, in the turn      |
    | run calls that were approved                  | the loop, for `ToolSession.approved`    |
    | ask the model, gather its hosted calls        | the loop (`engine.run.hosted`)          |
    | decide on a call: start, ask, decline         | `ToolSession.decide`                    |
    | limits on calls, rounds and time              | the loop                                |
    | open the item, emit its arguments             | the loop                                |
    | make the intent durable, if it has effects    | the loop                                |
    | run it, report progress, return the outcome   | `ToolSession.run`                       |
    | run the calls that it needs, and it again     | the loop, for `Outcome.calls`           |
    | close the item, cut the result, ask again     | the loop                                |
    | release what the turn held                    | `ToolSession.close`                     |

A runner makes no ids, no indexes and no events of its own: it reports stages by their event names,
and the builder does the rest. It never starts a call by itself, never runs one twice and never
sees another owner's session. What it returns as `Outcome.result` goes to the model as data; the
loop cuts it to `ToolLimits.result_bytes` and states the cut in it.

A call is cancelled by cancelling the task that iterates `run`: close connections in `finally`.
After that the item is closed as incomplete. An exception of `run` is a failed call, not a failed
turn: raise `ToolFailed` with a text that caller and model may read. Any other exception is
logged, and reported without its text.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from antiphon.plans.hosted_functions import HostedFunction
from antiphon.plans.toolbox import DeclaredTool, Offer
from antiphon.protocol.citations import Pattern, ShownSources
from antiphon.protocol.deltas import Delta
from antiphon.protocol.items import Item, Part
from antiphon.protocol.tool_usage import ToolUsage

__all__ = [
    "Answer",
    "Approvals",
    "Ask",
    "Decision",
    "Decline",
    "Fee",
    "Follow",
    "HostedCall",
    "HostedFunction",
    "Outcome",
    "Progress",
    "ShownResult",
    "Start",
    "ToolFailed",
    "ToolLimits",
    "ToolRequest",
    "ToolRunner",
    "ToolSession",
]

_KIB: Final = 1024


class ToolLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What hosted tools may take in one turn. Configurable under `[tools]`."""

    rounds: int = 16
    """How often the model is asked; then the response ends incomplete, `max_messages`."""
    calls: int = 64
    """How many hosted calls are run; `max_tool_calls` of the request lowers it."""
    at_once: int = 4
    """How many of them run at the same time."""
    call_seconds: float = 60.0
    """How long a call may run, unless its `Start` allows less or its runner has its own limit."""
    list_seconds: float = 10.0
    """How long `ToolSession.prepare` may take."""
    turn_seconds: float = 600.0
    """From the beginning of a turn to the end of its last call; then no more are started."""
    background_seconds: float = 3600.0
    """The same for a background response."""
    result_bytes: int = 64 * _KIB
    """How much of a result the model is shown; the cut is stated in it."""
    stored_bytes: int = 1024 * _KIB
    """How large an item may be that is stored; longer texts in it are cut."""


class Approvals(Protocol):
    """The approvals of one owner. Each serves one call, whichever process runs it."""

    async def find(self, request_id: str) -> Item | None:
        """Return the `mcp_approval_request` with this id as it was stored; None if it was not."""
        ...

    async def claim(self, request_id: str) -> bool:
        """Take the approval for this turn, durable on return; False if it was taken before.

        Claim last in `ToolRunner.begin`, when nothing else can refuse the request.
        """
        ...

    async def is_spent(self, request_id: str) -> bool:
        """Return whether the response that took the approval has ended."""
        ...

    async def release(self, request_id: str) -> None:
        """Give back an approval that this turn took, if its call was surely not started."""
        ...


class ShownResult(msgspec.Struct, frozen=True):
    """The result of a call that did not fail, as the model was shown it."""

    kind: str
    """The type of the tool."""
    result: str | list[Part]


class ToolRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn asks of one runner."""

    owner: str
    response_id: str
    tools: Sequence[DeclaredTool]
    """The tools of the runner's kinds, with their places in the request."""
    items: Sequence[Item]
    """The whole context in order, references resolved. Shared: it must not be changed."""
    own: Sequence[Item]
    """The items of this request alone, at the end of the context."""
    programmatic: Sequence[Offer] = ()
    """The functions of the caller's that programs may call."""
    callable: Sequence[HostedFunction] | None = ()
    """Hosted functions that programs may call. They are known when all tools are prepared. None
    if what they did would not be found again: then it could run twice."""
    serves_programs: bool = False
    """Whether programs may call a tool that is run here."""
    hidden: Sequence[Offer] = ()
    """The tools that the model is not shown yet, and that a search may find."""
    is_searched: bool = False
    """Whether such a search is run here in this turn."""
    deferred: Sequence[HostedFunction] = ()
    """Hosted functions that a search may find. They are known when all tools are prepared."""
    results: Sequence[ShownResult] = ()
    """What the model was shown in this turn as results of hosted calls, by all tools; it grows."""
    include: frozenset[str] = frozenset()
    """What the caller wants to see. Put everything into the item: it is filtered on the way out."""
    approvals: Approvals
    sources: ShownSources = msgspec.field(default_factory=ShownSources)
    """What the model was shown in this turn, by all tools: one numbering of marks."""
    limits: ToolLimits = ToolLimits()
    is_formatted: bool = False
    """Whether the answer has to be JSON: no citation may add words to it."""
    is_stored: bool = True
    is_background: bool = False
    keeps_items: bool = True
    """Whether what is done here is in the context again, if the caller has to go on itself."""
    is_alone: bool = False
    """Whether the request has no tools but these."""
    sees_images: bool = False
    """Whether the model can be shown images in results."""


class HostedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the model to a hosted function, or one that a caller has approved."""

    function: HostedFunction
    arguments: str
    """As the model wrote them: JSON in most cases, but any text is possible."""
    call_id: str
    approval_request_id: str | None = None


class Fee(msgspec.Struct, frozen=True, kw_only=True):
    """What a call costs that asks somebody who is paid by the piece."""

    kind: Literal["search", "image"]
    name: str
    """What is paid for, as the books name it."""
    provider: str = ""
    cost: int | None = None
    """Nano-dollars for the piece; None if that is not known."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Run the call.

    `item` is the whole item as far as it is known before it runs, without id and status. Its
    arguments or code are in it: the loop emits them as the events of its type.
    """

    item: Item
    has_effects: bool = True
    """Whether it may change something outside: then its intent is durable before it starts."""
    seconds: float | None = None
    """How long it may run, if that is not `ToolLimits.call_seconds`."""
    fee: Fee | None = None
    """What it costs, if somebody has to be paid for it."""
    is_open: bool = False
    """Whether the item is in the conversation already: it is neither opened nor closed again."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the caller first: `item` is the request for approval. The response ends with it."""

    item: Item


class Decline(msgspec.Struct, frozen=True, kw_only=True):
    """Do not run the call, and make no item: `result` is what the model gets instead."""

    result: str


Decision = Start | Ask | Decline


class Progress(msgspec.Struct, frozen=True):
    """The running call came further: an event of its item's type, and the fields of that event."""

    event: str
    fields: dict[str, Any] = {}


class Follow(msgspec.Struct, frozen=True):
    """The call is whole, and what it results in is an item of its own, which opens now.

    What comes after this is of that item: its progress, and `Outcome.item`. It is stored as it
    is, because it was streamed: its tool limits its size.
    """

    item: Item
    """The call, in its last form."""
    opens: Item


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a call: the final item, and what the model gets.

    `item` has its last status, and errors in the form of its type. `also` are whole items that
    follow it, such as what a search for tools has found.
    """

    item: Item
    result: str | list[Part] | None
    """None if the caller has to answer what is in `also` first: the response ends with that."""
    has_failed: bool = False
    also: Sequence[Item] = ()
    functions: Sequence[HostedFunction] = ()
    """Functions that the model may call from now on."""
    usage: ToolUsage | None = None
    """What it took, as a part of `tool_usage`: see `protocol.tool_usage`."""
    loads: Sequence[str] = ()
    """Aliases of hidden tools of the caller's that it may call from now on."""
    calls: Sequence[HostedCall] = ()
    """Hosted calls that this one needs. They are run, `ToolSession.answer` gets what became of
    them, and the call is run again; `result` is None until then."""


class Answer(msgspec.Struct, frozen=True):
    """What became of a call that another call needed."""

    items: Sequence[Item] = ()
    """Its items, as they are stored."""
    problem: str = ""
    """Why it was not run, if it was not."""


class ToolFailed(Exception):
    """A call failed, for this reason. Caller and model read the text: no secrets in it."""


class ToolSession:
    """The hosted tools of one runner in one turn. By itself it offers nothing."""

    degraded: Sequence[str] = ()
    """What of the declared tools cannot be honoured, as `tools[0].field: reason`."""
    cites: bool = False
    """Whether it shows sources with marks (`ToolRequest.sources`), which the answer cites."""
    patterns: Sequence[Pattern] = ()
    """What else of the answer it annotates: see `protocol.citations`."""
    approved: Sequence[HostedCall] = ()
    """Calls to run before the model is asked: approved, claimed, and checked against the policy."""

    def prepare(self) -> AsyncIterator[Delta | HostedFunction]:
        """Yield what the model may call, and the deltas of items that report it.

        An asynchronous generator. Called once, inside the turn, before the model is asked. What
        takes longer than `ToolLimits.list_seconds` is cancelled. Raise BackendError to fail the
        turn.
        """
        return _offer_nothing()

    def decide(self, call: HostedCall) -> Decision:
        """Return what becomes of a call. It must be quick, and start nothing."""
        raise NotImplementedError

    def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Follow | Outcome]:
        """Run a call that was decided to start. Yield its progress, and its outcome at the end.

        An asynchronous generator.
        """
        raise NotImplementedError

    def answer(self, call: HostedCall, answers: Sequence[Answer]) -> None:
        """Take what became of the `Outcome.calls` of a call, in their order; then it runs again."""
        raise NotImplementedError

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        """Return the outcome of a call that failed for this reason: an exception, or the time.

        After a `Follow`, it is the end of the item that was opened.
        """
        return Outcome(
            item={**start.item, "status": "failed"}, result=f"error: {why}", has_failed=True
        )

    async def close(self) -> None:
        """Release what the turn held. Called once, however the turn ended."""


async def _offer_nothing() -> AsyncIterator[Delta | HostedFunction]:
    nothing: Sequence[HostedFunction] = ()
    for function in nothing:
        yield function


class ToolRunner(Protocol):
    """Runs some kinds of tools, in this process."""

    @property
    def kinds(self) -> frozenset[str]:
        """The types of tools that it runs, as a request declares them."""
        ...

    @property
    def includes(self) -> frozenset[str]:
        """The values of `include` that its items honour."""
        ...

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn.

        Raise InvalidRequest for tools or approvals that cannot be right, before anything is sent.
        Do no work here that the turn can do: use `ToolSession.prepare`.
        """
        ...

    async def close(self) -> None:
        """Close what all turns share, when the gateway ends."""
        ...
