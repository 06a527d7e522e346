"""Events to the bytes of a log, and back.

Most events differ from the one before them in a few letters of text, and most of a response
never changes. So a log has everything once, in four kinds of record:

    | record   | of                       | holds                                             |
    |----------|--------------------------|---------------------------------------------------|
    | run      | deltas of one text       | the first number, the place, and all the pieces   |
    | noted    | the same with logprobs   | those too                                         |
    | state    | an event with a response | the fields that change; the rest is taken from the |
    |          |                          | stored response, the output at the end only       |
    | event    | any other                | the event as it is                                |

A body is JSON: the version of this form, the records in order, whether the stream has an `error`
event (false over a WebSocket, written in its first body alone), and the time of the batch in
milliseconds since the response began. The last two are left out where they are true and 0, as in
logs of versions that wrote no times. A body is read whole or not at all: damage, or a form that
only a newer antiphon knows, is a `BrokenStream`. Text that is no Unicode (half a surrogate pair)
cannot be written, here as on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, cast, get_args

import msgspec
from msgspec import UNSET, UnsetType

from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    EVENT_CLASSES,
    ArgumentsDelta,
    CallDelta,
    CallDone,
    CodeDelta,
    CustomInputDelta,
    Event,
    KnownEvent,
    LifecycleEvent,
    McpArgumentsDelta,
    OutputItemDone,
    OutputTextDelta,
    PartDone,
    PartialImage,
    ReasoningTextDelta,
    RefusalDelta,
    SummaryTextDelta,
    TextDelta,
    TextDone,
    UnknownEvent,
)
from antiphon.protocol.items import Item, text_length
from antiphon.protocol.machines.open_items import copy_json
from antiphon.protocol.response import Failure, IncompleteDetails, Notes, Response, Usage

__all__ = ["has_error_event", "pack_events", "packed_at", "split_events", "unpack_events"]

_Kind = Literal[
    "text", "refusal", "reasoning", "summary", "arguments", "input", "code", "mcp_arguments"
]
_Name = Literal["created", "queued", "in_progress", "completed", "failed", "incomplete"]
_Logprobs = list[dict[str, Any]] | None
_Delta = TextDelta | CallDelta

_PREFIX: Final = "response."
_ENDS: Final = frozenset({"completed", "failed", "incomplete"})
_OWN: Final = frozenset({"sequence_number", "delta", "logprobs"})
_FINAL_TEXTS: Final = frozenset({"text", "refusal", "arguments", "input", "code"})
_PART_INDEXES: Final = frozenset({"content_index", "summary_index"})
_KINDS: Final[dict[type[Any], _Kind]] = {
    OutputTextDelta: "text",
    RefusalDelta: "refusal",
    ReasoningTextDelta: "reasoning",
    SummaryTextDelta: "summary",
    ArgumentsDelta: "arguments",
    CustomInputDelta: "input",
    CodeDelta: "code",
    McpArgumentsDelta: "mcp_arguments",
}
_INDEXES: Final[dict[type[Any], str | None]] = {
    cls: next((name for name in cls.__struct_fields__ if name in _PART_INDEXES), None)
    for cls in _KINDS
}
_DELTAS: Final[dict[_Kind, tuple[Callable[..., _Delta], str | None]]] = {
    kind: (cls, _INDEXES[cls]) for cls, kind in _KINDS.items()
}
# What the deltas of a run have in common: their class, and all but number, text and logprobs.
_common_of: Final[dict[type[Any], Callable[[Any], Any]]] = {
    cls: attrgetter("__class__", *(name for name in cls.__struct_fields__ if name not in _OWN))
    for cls in _KINDS
}


# What an event repeats of the answer: an item, a part or a text. Other events repeat nothing.
_repeated_by: Final[dict[type[Any], Callable[[Any], Any]]] = {
    OutputItemDone: attrgetter("item"),
    PartialImage: attrgetter("partial_image_b64"),
    **dict.fromkeys(get_args(PartDone), attrgetter("part")),
    **{
        cls: attrgetter(name)
        for cls in get_args(TextDone | CallDone)
        for name in _FINAL_TEXTS.intersection(cls.__struct_fields__)
    },
}


class _RunRecord(msgspec.Struct, array_like=True, frozen=True, tag="run"):
    kind: _Kind
    first: int
    item_id: str
    output_index: int
    part_index: int
    pieces: list[str]


class _NotedRunRecord(msgspec.Struct, array_like=True, frozen=True, tag="noted"):
    first: int
    item_id: str
    output_index: int
    content_index: int
    pieces: list[str]
    logprobs: list[_Logprobs]


class _Changes(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    status: str = "in_progress"
    completed_at: int | float | None = None
    error: Failure | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: Usage | None = None
    service_tier: str | None = "default"
    antiphon: Notes | UnsetType = UNSET


class _StateRecord(msgspec.Struct, array_like=True, frozen=True, tag="state"):
    name: _Name
    number: int
    changes: _Changes


class _EventRecord(msgspec.Struct, array_like=True, frozen=True, tag="event"):
    event: KnownEvent


class _UnknownRecord(msgspec.Struct, array_like=True, frozen=True, tag="unknown"):
    name: str
    fields: dict[str, Any]


_Record = _RunRecord | _NotedRunRecord | _StateRecord | _EventRecord | _UnknownRecord


class _Body(msgspec.Struct, array_like=True, frozen=True):
    version: Literal[1]
    records: list[_Record]
    has_error_event: bool = True
    at: int = 0


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Body).decode
_changes_of: Final = attrgetter(*_Changes.__struct_fields__)


def pack_events(events: Sequence[Event], *, has_error_event: bool = True, at: int = 0) -> bytes:
    """Return the events as the bytes of a log.

    `at` is the time of the batch in milliseconds since the response began. `has_error_event`
    belongs to the whole stream, and is written with its beginning alone.
    """
    if (
        len(events) == 1  # most tokens come so
        and type(event := events[0]) is OutputTextDelta
        and event.extra is event.obfuscation is UNSET
        and event.logprobs == []
    ):
        run = _RunRecord(
            "text",
            event.sequence_number,
            event.item_id,
            event.output_index,
            event.content_index,
            [event.delta],
        )
        return _encode((1, [run], True, at) if at else (1, [run]))
    records: Sequence[_Record]
    if len(events) == 1 and type(events[0]) in _KINDS:
        records = _run_records(events)  # type: ignore[arg-type] # of a class that has runs
    else:
        records = _records(events)
    is_marked = not has_error_event and getattr(events[0], "sequence_number", None) == 0
    if at:
        return _encode((1, records, not is_marked, at))
    return _encode((1, records, False) if is_marked else (1, records))


def split_events(events: Sequence[Event], size: int) -> list[list[Event]]:
    """Return the events in pieces that each repeat little more text than `size` characters.

    The last events of an answer repeat it, each of them. One event is never divided.
    """
    pieces: list[list[Event]] = [[]]
    left = size
    for event in events:
        get = _repeated_by.get(type(event))
        length = 0 if get is None else _length(get(event))
        if length > left and pieces[-1]:
            pieces.append([])
            left = size
        pieces[-1].append(event)
        left -= length
    return pieces


def _length(repeated: Item | str) -> int:
    """Return how many characters of text are repeated in a log, about."""
    return len(repeated) if isinstance(repeated, str) else text_length(repeated)


def _records(events: Sequence[Event]) -> list[_Record]:
    records: list[_Record] = []
    run: list[_Delta] = []
    common: object = None
    due = -1
    for event in events:
        get = _common_of.get(type(event))
        if get is None:
            if run:
                records += _run_records(run)
                run, common = [], None
            records.append(_record(event))
            continue
        place = get(event)
        if place != common or event.sequence_number != due:
            if run:
                records += _run_records(run)
            run, common = [], place
            due = event.sequence_number  # type: ignore[assignment] # known ones have one
        run.append(event)  # type: ignore[arg-type] # one of the classes that have runs
        due += 1
    if run:
        records += _run_records(run)
    return records


def _run_records(run: Sequence[_Delta]) -> Sequence[_Record]:
    """Return the records of deltas that have all but their number and text in common."""
    first = run[0]
    if first.extra is not UNSET or getattr(first, "obfuscation", UNSET) is not UNSET:
        return [_EventRecord(delta) for delta in run]
    pieces = [delta.delta for delta in run]
    number, item_id, index = first.sequence_number, first.item_id, first.output_index
    if type(first) is OutputTextDelta:
        notes = [delta.logprobs for delta in run]  # type: ignore[union-attr] # as the first is
        if notes.count([]) != len(notes):
            return (_NotedRunRecord(number, item_id, index, first.content_index, pieces, notes),)
    part_index = _INDEXES[type(first)]
    place = getattr(first, part_index) if part_index else 0
    return (_RunRecord(_KINDS[type(first)], number, item_id, index, place, pieces),)


def _record(event: Event) -> _Record:
    if isinstance(event, UnknownEvent):
        return _UnknownRecord(event.type, event.fields)
    if isinstance(event, LifecycleEvent) and event.extra is UNSET:
        name = cast(_Name, event.type.removeprefix(_PREFIX))
        return _StateRecord(name, event.sequence_number, _Changes(*_changes_of(event.response)))
    return _EventRecord(event)


def unpack_events(body: bytes, response: Response) -> list[Event]:
    """Return the events of this body. Raise BrokenStream if it is damaged or too new.

    `response` is the stored one: what its lifecycle events have in common with it is taken
    from there.
    """
    events: list[Event] = []
    for record in _read(body).records:
        events += _events_of(record, response)
    return events


def has_error_event(body: bytes) -> bool:
    """Return whether a stream with this beginning reports a failure by an `error` event.

    Raise BrokenStream as `unpack_events` does.
    """
    return _read(body).has_error_event


def packed_at(body: bytes) -> int:
    """Return the time of a batch in milliseconds since the response began; 0 if it has none.

    Raise BrokenStream as `unpack_events` does.
    """
    return _read(body).at


def _read(body: bytes) -> _Body:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(str(error)) from None


def _events_of(record: _Record, response: Response) -> Iterable[Event]:
    match record:
        case _RunRecord():
            return _run(record)
        case _NotedRunRecord():
            return _noted_run(record)
        case _StateRecord():
            return [_lifecycle(record, response)]
        case _EventRecord():
            return [record.event]
        case _UnknownRecord():
            return [UnknownEvent(record.name, record.fields)]


def _run(run: _RunRecord) -> Iterator[Event]:
    make, index = _DELTAS[run.kind]
    place: dict[str, Any] = {"item_id": run.item_id, "output_index": run.output_index}
    if index is not None:
        place[index] = run.part_index
    for number, piece in enumerate(run.pieces, run.first):
        yield make(sequence_number=number, delta=piece, **place)


def _noted_run(run: _NotedRunRecord) -> Iterator[Event]:
    if len(run.pieces) != len(run.logprobs):
        raise _broken("a run has not as many logprobs as pieces")
    notes = zip(run.pieces, run.logprobs, strict=True)
    for number, (piece, logprobs) in enumerate(notes, run.first):
        yield OutputTextDelta(
            sequence_number=number,
            item_id=run.item_id,
            output_index=run.output_index,
            content_index=run.content_index,
            delta=piece,
            logprobs=logprobs,
        )


def _lifecycle(state: _StateRecord, response: Response) -> Event:
    make = cast(Callable[..., LifecycleEvent], EVENT_CLASSES[_PREFIX + state.name])
    changes = {name: getattr(state.changes, name) for name in _Changes.__struct_fields__}
    if state.changes.status == "cancelled":
        changes["incomplete_details"] = None  # older versions wrote a reason here
    output = copy_json(response.output) if state.name in _ENDS else []
    whole = msgspec.structs.replace(response, output=output, **changes)
    return make(sequence_number=state.number, response=whole)


def _broken(why: str) -> BrokenStream:
    return BrokenStream(f"the log cannot be read: {why}", code="log_broken")
