"""Deltas to events: the only place where events, ids, indexes and sequence numbers are made.

Invariants, for any deltas:

- sequence numbers count 0, 1, 2, … without a gap; the response's id never changes;
- every item is added once and done once, under one id, at the next free output_index;
- items are done in index order; several calls may be open at once, prose (a message, a
  reasoning item, an item passed through) never stands beside an open item;
- the text of every done event is the concatenation of its deltas, and the terminal response
  holds exactly the items that were done;
- there is one terminal event, and it is the last.

What opens and closes what:

    | delta            | while prose is open      | while calls are open                       |
    |------------------|--------------------------|--------------------------------------------|
    | text, refusal    | goes on, or a new part   | closes them if their arguments are whole   |
    | reasoning        | goes on, or a new item   | JSON; is held back until they are, or the  |
    | annotation, item | goes on, or a new item   | end, if they are not: a tail may come      |
    | native state     | ends the reasoning item, | the same                                   |
    |                  | or is an item of its own |                                            |
    | call opened      | prose closes             | one more is open                           |
    | call made        | prose closes             | it is done when those before it are        |
    | item opened      | prose closes             | one more is open                           |
    | item progressed  |                          | the next stages of its type                |
    | item closed      |                          | it is done when those before it are        |

Hosted and foreign items count as calls in this table, and are whole when they are closed.

Nothing here uses a clock or randomness: `mint` makes ids, and times are passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET

from antiphon.protocol.call_ids import CallIds
from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    ItemClosed,
    ItemOpened,
    ItemPassed,
    ItemProgressed,
    NativeState,
    ProseDelta,
    ReasoningGrew,
    RefusalGrew,
    Repaired,
    Reported,
    Stopped,
    StopReason,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.errors import BackendError, ErrorObject, failure_type
from antiphon.protocol.events import (
    ErrorEvent,
    Event,
    OutputTextDelta,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    TerminalEvent,
)
from antiphon.protocol.families import WHOLE, payload_of
from antiphon.protocol.items import Item, Part, item_prefix, item_type
from antiphon.protocol.machines.call_writer import CallWriter
from antiphon.protocol.machines.event_writer import EventWriter, ItemStatus
from antiphon.protocol.machines.hosted_items import OpenItem, is_hosted
from antiphon.protocol.machines.open_items import OpenCall, copy_json
from antiphon.protocol.machines.prose_writer import KeptState, Mint, ProseWriter, Seal
from antiphon.protocol.machines.whole_items import unfold
from antiphon.protocol.response import (
    MOST_NOTES,
    Attempt,
    BudgetNote,
    CostNote,
    Failure,
    IncompleteDetails,
    Notes,
    Response,
    Usage,
    add_notes,
)
from antiphon.protocol.tool_usage import add_tool_usage

__all__ = ["KeptState", "Mint", "ReasoningAs", "ResponseBuilder", "Seal"]

ReasoningAs = Literal["content", "summary"]

_WHY_INCOMPLETE: Final[dict[StopReason, str]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "rounds": "max_messages",
}
_ENDS: Final[dict[str, type[TerminalEvent]]] = {
    "completed": ResponseCompleted,
    "incomplete": ResponseIncomplete,
    "cancelled": ResponseIncomplete,
    "failed": ResponseFailed,
}
_RUNNING: Final = "in_progress"


class ResponseBuilder:
    """Builds one response. Feed it deltas; it answers with the events to send.

    `response` is the response as it begins: id, model, echoes of the request. The builder
    owns it from here on. `seal` is given each reasoning item when it is done, with the native
    state that belongs to it, and returns its `encrypted_content`: "" for none. Without it, `keep`
    is given those with native state; what it returns is in `states`, and in no event. Without
    `has_error_event`, `response.failed` alone reports a failure, as it has to over a WebSocket.
    `is_taken` returns whether the history uses a call id. `first` is the number of the first event.
    """

    def __init__(
        self,
        response: Response,
        mint: Mint,
        *,
        reasoning_as: ReasoningAs = "content",
        seal: Seal | None = None,
        keep: Seal | None = None,
        has_error_event: bool = True,
        is_taken: Callable[[str], bool] = lambda call_id: False,
        first: int = 0,
    ) -> None:
        self._response = response
        self._has_error_event = has_error_event
        self._mint = mint
        self._reasoning_kind = "summary_text" if reasoning_as == "summary" else "reasoning_text"
        self._out = EventWriter(first)
        self._prose = ProseWriter(self._out, mint, seal, keep)
        # Not a method of ours: a cycle would keep each turn until the garbage is collected.
        degrade = partial(_degrade, response)
        self._calls = CallWriter(self._out, mint, CallIds(is_taken=is_taken), degrade)
        self._open: dict[int | str, OpenCall | OpenItem] = {}
        """The calls, by number, and other items, by name, that are not done, in index order."""
        self._held: list[ProseDelta | None] = []
        self._given_ids: set[str] = set()
        """Prose that waits for an open call or item; None where a round ended."""
        self.stop: StopReason | None = None
        """Why the model stopped, once it did so by itself."""
        self._end_number = 0
        self._made = 0

    @property
    def usage(self) -> Usage | None:
        """What a backend counted so far."""
        return self._response.usage

    @property
    def answer_text(self) -> str | None:
        """The text of a finished answer, or None if there is none: cut off, refused or a call.

        What comes before the last hosted call is not the answer.
        """
        parts: list[Part] = []
        for item in self._out.output:
            if item.get("type") == "message":
                parts += item["content"]
            elif is_hosted(item):
                parts = []
        if self.stop != "stop" or not parts or any("refusal" in part for part in parts):
            return None
        return "".join(part["text"] for part in parts)

    @property
    def states(self) -> Mapping[str, KeptState]:
        """The native states of items that are done, by the id of the item."""
        return self._prose.states

    @property
    def output(self) -> list[Item]:
        """Return copies of the items that are done."""
        items: list[Item] = copy_json(self._out.output)
        return items

    def start(self, *, is_queued: bool = False) -> list[Event]:
        """Return the events that begin every stream. A queued one has yet to `go_on`.

        They may be asked for again, as they are then, until there are others.
        """
        self._out.sequence = 0
        self._out.announce(self._response, ResponseCreated, "queued" if is_queued else _RUNNING)
        if not is_queued:
            return self.go_on()
        self._out.announce(self._response, ResponseQueued, "queued")
        return self._out.take()

    def go_on(self) -> list[Event]:
        """Return the event of a queued response that begins to run."""
        self._out.announce(self._response, ResponseInProgress, _RUNNING)
        return self._out.take()

    def feed(self, delta: Delta) -> list[Event]:
        """Return the events that this delta causes; often one, sometimes none."""
        _HANDLERS[type(delta)](self, delta)
        return self._out.take()

    def feed_text(self, delta: TextGrew) -> list[Event]:
        """Like `feed`, for what most deltas are."""
        self._write_text(delta)
        out = self._out
        events, out.events = out.events, []
        return events

    def feed_all(self, deltas: Iterable[Delta]) -> list[Event]:
        """Return the events that these deltas cause. If one is refused, those before it wait.

        They come with the events of the next call, which is how the stream ends.
        """
        for delta in deltas:
            _HANDLERS[type(delta)](self, delta)
        return self._out.take()

    def next_round(self) -> list[Event]:
        """End what the model wrote in a round; the next one may use the same keys for its calls.

        Hosted items stay open: they may run between two rounds. What waits for one of them is
        whole, and goes out before the words of the next round.
        """
        self.free_keys()
        for item in self._open.values():
            if isinstance(item, OpenCall):
                item.is_whole = True
        self._end_first()
        if self._open:
            self._held.append(None)
        self._prose.close()
        return self._out.take()

    def abandon_reasoning(self) -> list[Event]:
        """End reasoning that came to nothing; it is not sealed, so that no model gets it back."""
        self._prose.close(seals=False)
        return self._out.take()

    def free_keys(self) -> None:
        """Let calls use the keys of those that are open, in a round that goes on with the answer.

        No more can be added to the open calls then.
        """
        before, self._open = self._open, {}
        for key, item in before.items():
            if isinstance(item, OpenCall):
                self._made += 1
                key = -self._made
            self._open[key] = item

    def close(self, status: ItemStatus | None = None) -> list[Event]:
        """Close what is open. Without a status, the model's stop reason decides how."""
        self._close_all(status or self._own_status())
        return self._out.take()

    def break_off(self, why: str) -> list[Event]:
        """Close what a process left open when it ended; calls that ran then failed for this reason.

        They are not run again, so nothing else will ever be known of them.
        """
        for item in self._open.values():
            if isinstance(item, OpenItem) and not item.is_whole:
                item.break_off(why)
        return self.close("incomplete")

    def finish(self, at: int) -> list[Event]:
        """Close what is open and end the response by the model's stop reason."""
        if self.stop is None:
            raise BackendError("the model broke off", code="upstream_closed")
        self._close_all(self._own_status())
        reason = _WHY_INCOMPLETE.get(self.stop)
        if reason is None:
            # A clock may be set back while a turn runs.
            self._response.completed_at = max(at, self._response.created_at)
            self._out.announce(self._response, ResponseCompleted, "completed")
        else:
            self._response.incomplete_details = IncompleteDetails(reason)
            self._out.announce(self._response, ResponseIncomplete, "incomplete")
        return self._out.take()

    def fail(self, failure: Failure, kind: str = "server_error") -> list[Event]:
        """Close what is open and end the response as failed: the error event, then the end."""
        return self._fail(failure, kind, is_kept=True)

    def report(self, error: ErrorObject) -> list[Event]:
        """Return the event of an error that the upstream reports. It does not end the response."""
        kind, number = error.type or UNSET, self._out.sequence
        said = (error.message, error.code, error.param, kind)
        self._out.emit(ErrorEvent(*said, sequence_number=number))
        return self._out.take()

    def retract(self, failure: Failure) -> list[Event]:
        """Replace a terminal event that was built but not sent by a failure.

        What was closed before it stays closed, and its events count.
        """
        self._out.sequence = self._end_number
        self._response.completed_at = None
        self._response.incomplete_details = None
        return self._fail(failure, "server_error", is_kept=False)

    def cancel(self) -> list[Event]:
        """Close what is open and end the response as cancelled.

        There is no event of that name: it is an incomplete response with this status.
        `incomplete_details` stays null: clients know no reason for this end.
        """
        self._close_all("incomplete")
        self._out.announce(self._response, ResponseIncomplete, "cancelled")
        return self._out.take()

    def _fail(self, failure: Failure, kind: str, *, is_kept: bool) -> list[Event]:
        self._close_all("incomplete")
        self._response.error = failure
        if self._has_error_event:
            self._out.emit_error(self._response, kind, is_kept=is_kept)
        self._out.announce(self._response, ResponseFailed, "failed")
        return self._out.take()

    def repeat_end(self, ended: Response) -> list[Event]:
        """End as this response did, which is stored: the terminal event has it as it is."""
        end = _ENDS[ended.status]
        if end is ResponseFailed and self._has_error_event:
            kind = failure_type(ended.error.code if ended.error else None)
            self._out.emit_error(ended, kind, is_kept=True)
        response = msgspec.structs.replace(ended, output=copy_json(ended.output))
        self._out.emit(end(sequence_number=self._out.sequence, response=response))
        return self._out.take()

    # What is noted for the end.

    def _note_usage(self, delta: UsageKnown) -> None:
        self._response.usage = delta.usage

    def _note_tier(self, delta: TierUsed) -> None:
        self._response.service_tier = delta.tier

    def _note_degraded(self, delta: Degraded | Reported) -> None:
        _degrade(self._response, delta.what)

    def _note_repaired(self, delta: Repaired) -> None:
        notes = self._response.antiphon or Notes()
        repaired = (*notes.repaired, delta.what)
        self._response.antiphon = msgspec.structs.replace(notes, repaired=repaired)

    def _note_stop(self, delta: Stopped) -> None:
        self.stop = delta.reason

    def note_estimate(self, usage: Usage) -> None:
        """Take an estimate where no backend has counted, and mark it as one."""
        notes = self._response.antiphon or Notes()
        self._response.antiphon = msgspec.structs.replace(notes, usage="estimated")
        self._response.usage = usage

    def note_usage(self, usage: Usage, *, is_estimated: bool) -> None:
        """Take what the whole response has used."""
        if is_estimated:
            self.note_estimate(usage)
        else:
            self._response.usage = usage

    def note_cost(self, cost: CostNote | None, budget: BudgetNote | None) -> None:
        """Note what the response has cost, and which limit has ended it, if one did."""
        if cost is None and budget is None:
            return
        notes = self._response.antiphon or Notes()
        self._response.antiphon = msgspec.structs.replace(notes, cost=cost, budget=budget)

    def note_attempt(self, attempt: Attempt) -> None:
        """Note how a deployment that was asked has answered or failed."""
        notes = self._response.antiphon or Notes()
        attempts = (*notes.attempts, attempt)[-MOST_NOTES:]
        usage = "estimated" if attempt.estimated else notes.usage
        self._response.antiphon = msgspec.structs.replace(notes, attempts=attempts, usage=usage)

    # Prose: one item at a time, one part at a time.

    def _write_prose(self, delta: ProseDelta) -> None:
        if getattr(delta, "text", None) == "":
            return
        if self._open and not self._end_whole_calls():
            self._held.append(delta)
            return
        match delta:
            case ReasoningGrew():
                self._prose.begin(delta.begins)
                self._prose.grow_part(self._reasoning_kind, delta.text)
            case TextGrew():
                self._prose.begin(delta.begins)
                self._prose.ensure_part("output_text", delta.phase)
                self._write_text(TextGrew(delta.text, delta.logprobs))
            case RefusalGrew():
                self._prose.begin(delta.begins)
                self._prose.grow_part("refusal", delta.text)
            case SummaryGrew():
                self._prose.begin(delta.begins)
                self._prose.grow_part("summary_text", delta.text)
            case AnnotationAdded():
                self._prose.annotate(delta.annotation, delta.covers)
            case ItemPassed():
                self._pass_item(delta.item)
            case NativeState():
                self._prose.keep_state(delta)

    def _write_text(self, delta: TextGrew) -> None:
        """Go on with the text that is open, as nearly always: then nothing is open beside it."""
        out, prose, text = self._out, self._prose.open, delta.text
        part = None if prose is None else prose.part
        if (
            prose is None
            or part is None
            or part.kind != "output_text"
            or not text
            or delta.begins is not None
        ):
            self._write_prose(delta)
            return
        part.growing.add(text)
        logprobs: list[dict[str, Any]] = []
        if delta.logprobs:
            part.logprobs.extend(delta.logprobs)
            logprobs = copy_json(list(delta.logprobs))
        out.events.append(
            OutputTextDelta(
                sequence_number=out.sequence,
                item_id=prose.id,
                output_index=prose.index,
                content_index=part.index,
                delta=text,
                logprobs=logprobs,
            )
        )
        out.sequence += 1

    # Calls: many may be open, and they end in the order in which they began.

    def _open_call(self, delta: CallOpened) -> None:
        if delta.key in self._open:
            raise _invalid(f"the model opened call {delta.key} twice")
        self._prose.close()
        self._open[delta.key] = self._calls.open(delta, "")

    def _make_call(self, delta: CallMade) -> None:
        """Emit a call from its opening to its end, at once if nothing before it is open."""
        if delta.kind in WHOLE and payload_of(delta.kind, delta.said) is None:
            raise _invalid(f"the model's call of {delta.name} is invalid")
        self._prose.close()
        self._made += 1
        call = self._open[-self._made] = self._calls.open(delta, delta.said)
        if delta.said:
            self._calls.grow(call, delta.said)
        self._end_call(CallClosed(-self._made))

    def _grow_call(self, delta: CallGrew) -> None:
        call = self._open.get(delta.key)
        if not isinstance(call, OpenCall):
            if delta.arguments.strip():
                raise _invalid(f"arguments arrived for call {delta.key}, which is not open")
            return
        if not delta.arguments:
            return
        call.is_whole = False
        self._calls.grow(call, delta.arguments)
        if self._held and self._end_whole_calls():
            self._write_held()

    def _end_call(self, delta: CallClosed) -> None:
        call = self._open.get(delta.key)
        if isinstance(call, OpenCall):
            call.is_whole = True
            self._end_first()

    def _end_first(self) -> None:
        """Close the open calls and items up to the first that is not whole."""
        for key, first in list(self._open.items()):
            if not first.is_whole:
                break
            self._close_open(key, "completed")
        if self._held and not self._open:
            self._write_held()

    def _end_whole_calls(self) -> bool:
        """Close the open calls if all are whole; return whether all are closed."""
        if not all(call.check_whole() for call in self._open.values()):
            return False
        self._end_calls()
        return True

    def _end_calls(self) -> None:
        for key in list(self._open):
            self._close_open(key, "completed")

    def _close_open(self, key: int | str, status: ItemStatus) -> None:
        """Close a call with this status, or another item with the status that it has."""
        item = self._open.pop(key)
        if isinstance(item, OpenCall):
            self._calls.close(item, self._out.after_cut(status))
        else:
            final = item.final or item.cut()
            self._out.emit_steps(item.id, item.index, item.ending())
            self._out.end_item(item.index, final)

    # Hosted and foreign items, which end like calls in the order in which they began.

    def _open_item(self, delta: ItemOpened) -> None:
        if delta.key in self._open:
            raise _invalid(f"the item {delta.key} was opened twice")
        self._prose.close()
        item = OpenItem(self._with_id(delta.item), self._out.next_index())
        self._open[delta.key] = item
        self._out.add_item(item.index, item.opening())
        self._out.emit_steps(item.id, item.index, item.first_steps())

    def _progress_item(self, delta: ItemProgressed) -> None:
        item = self._item_at(delta.key)
        self._out.emit_steps(item.id, item.index, item.progress(delta.event, delta.fields))

    def _end_open_item(self, delta: ItemClosed) -> None:
        self._item_at(delta.key).close(delta.item)
        if delta.usage is not None:
            known = self._response.tool_usage or None
            self._response.tool_usage = add_tool_usage(known, delta.usage)
        self._end_first()

    def _item_at(self, key: str) -> OpenItem:
        item = self._open.get(key)
        if not isinstance(item, OpenItem):
            raise _invalid(f"the item {key} is not open")
        return item

    def _pass_item(self, item: Item) -> None:
        self._prose.close()
        whole, index = self._with_id(item), self._out.next_index()
        opening, steps, done = unfold(whole, index)
        self._out.add_item(index, opening)
        self._out.emit_steps(whole["id"], index, steps)
        self._out.end_item(index, done)

    def _with_id(self, item: Item) -> Item:
        whole: Item = copy_json(item)
        given = whole.get("id")
        if isinstance(given, str) and given and given not in self._given_ids:
            self._given_ids.add(given)
        else:
            whole["id"] = self._mint(item_prefix(item_type(item)))
            if given:
                self._note_degraded(Reported(f"{item_type(item)}: its id is invalid or taken"))
        return whole

    def _write_held(self) -> None:
        held, self._held = self._held, []
        for delta in held:
            if delta is None:
                self._prose.close()
            else:
                self._write_prose(delta)

    # The end.

    def _close_all(self, status: ItemStatus) -> None:
        """Close everything; at a cut, what is not whole or comes last is incomplete."""
        if status == "completed":
            self._require_closed()
        if self._held:
            # The model went on to prose: the cut, if it is one, is there, unless in a call too.
            # But the status of an item that was passed on cannot be changed after a cut.
            may_cut = status == "incomplete" and not any(
                isinstance(delta, ItemPassed) for delta in self._held
            )
            for key in list(self._open):
                is_cut = may_cut and not self._open[key].check_whole()
                self._close_open(key, "incomplete" if is_cut else "completed")
            self._write_held()
        for key in list(self._open):
            is_last = len(self._open) == 1
            is_cut = status == "incomplete" and (is_last or not self._open[key].check_whole())
            self._close_open(key, "incomplete" if is_cut else "completed")
        self._prose.close(status)
        self._end_number = self._out.sequence

    def _own_status(self) -> ItemStatus:
        """Return how the last items end by the model's stop reason."""
        return "incomplete" if self.stop in _WHY_INCOMPLETE else "completed"

    def _require_closed(self) -> None:
        """Raise BackendError if the model went on to its end over an item that has none."""
        for item in self._open.values():
            if isinstance(item, OpenItem) and not item.is_whole:
                raise _invalid(f"the item {item.kind} was never closed")


def _degrade(response: Response, what: str) -> None:
    """Note on the response what could not be handed on as the model wrote it."""
    notes = response.antiphon or Notes()
    degraded = add_notes(notes.degraded, (what,))
    if len(degraded) > len(notes.degraded):
        response.antiphon = msgspec.structs.replace(notes, degraded=degraded)


def _invalid(why: str) -> BackendError:
    return BackendError(why, code="upstream_invalid_response")


# One table for all builders: binding these methods again would cost in every turn.
_HANDLERS: Final[dict[type[Any], Callable[[ResponseBuilder, Any], None]]] = {
    **dict.fromkeys(get_args(ProseDelta), ResponseBuilder._write_prose),
    TextGrew: ResponseBuilder._write_text,
    ItemOpened: ResponseBuilder._open_item,
    ItemProgressed: ResponseBuilder._progress_item,
    ItemClosed: ResponseBuilder._end_open_item,
    CallOpened: ResponseBuilder._open_call,
    CallGrew: ResponseBuilder._grow_call,
    CallClosed: ResponseBuilder._end_call,
    CallMade: ResponseBuilder._make_call,
    UsageKnown: ResponseBuilder._note_usage,
    TierUsed: ResponseBuilder._note_tier,
    Degraded: ResponseBuilder._note_degraded,
    Reported: ResponseBuilder._note_degraded,
    Repaired: ResponseBuilder._note_repaired,
    Stopped: ResponseBuilder._note_stop,
}
