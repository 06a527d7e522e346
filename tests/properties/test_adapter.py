"""The adapter: any response, any damage. Each call once, all text, or an error that says why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.errors import (
    DamagedText,
    HostError,
    MalformedCall,
    ResponseFailed,
    StreamCut,
)
from antiphon.host.outcome import Outcome
from antiphon.protocol.codec import Dialect, decode_event, encode_sse, read_event
from antiphon.protocol.deltas import CallClosed, CallOpened, Delta, Stopped
from antiphon.protocol.events import (
    ArgumentsDelta,
    ArgumentsDone,
    ContentPartDone,
    ErrorEvent,
    Event,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    RefusalDelta,
    RefusalDone,
    ResponseCompleted,
    ResponseIncomplete,
)
from antiphon.protocol.events import (
    ResponseFailed as FailedEvent,
)
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.response import Response
from antiphon.protocol.sse import SseDecoder
from antiphon.wires.host.parts import DataPart, ResponsePart, TextPart, ThinkingPart, ToolCallPart
from tests.building import build
from tests.host import streams
from tests.strategies import turns, whole_turns

DIALECTS: st.SearchStrategy[Dialect] = st.sampled_from(["openai", "open-responses"])
CHANNELS: Any = st.sampled_from(["content", "summary"])
PLAIN = AdapterSettings(annotations="none")
_Terminal = ResponseCompleted | ResponseIncomplete | FailedEvent
_Call = tuple[str, str, str]


class Answer:
    """What an application saw of a stream: the parts, and how it ended."""

    def __init__(self, events: Sequence[Event], settings: AdapterSettings = PLAIN) -> None:
        adapter = StreamAdapter(settings)
        self.parts: list[ResponsePart] = []
        for event in events:
            self.parts += adapter.feed(event)
        self.outcome: Outcome | None = None
        self.error: HostError | None = None
        try:
            self.outcome = adapter.finish()
        except HostError as error:
            self.error = error

    @property
    def text(self) -> str:
        return "".join(part.value for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> list[_Call]:
        calls = [part for part in self.parts if isinstance(part, ToolCallPart)]
        return [(call.call_id, call.name, _plain(call.input)) for call in calls]

    @property
    def data(self) -> list[Item]:
        return [json.loads(part.data) for part in self.parts if isinstance(part, DataPart)]


def _plain(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def terminal(events: Sequence[Event]) -> Response:
    last = events[-1]
    assert isinstance(last, _Terminal)
    return last.response


def messages_of(response: Response) -> list[Item]:
    return [item for item in response.output if item["type"] == "message"]


def spoken(response: Response) -> str:
    return "".join(text_of(item["content"]) for item in messages_of(response))


def calls_of(response: Response) -> tuple[list[_Call], list[Item]]:
    """The calls that can be run, and those that cannot."""
    whole, malformed = [], []
    for item in response.output:
        if item["type"] == "function_call":
            try:
                arguments = json.loads(item["arguments"])
            except ValueError:
                malformed.append(item)
            else:
                whole.append((item["call_id"], item["name"], _plain(arguments)))
    return whole, malformed


def arrival_order(events: Sequence[Event], truth: Response) -> str:
    """The text of the response, its messages in the order in which the events first tell any."""
    texts = {item["id"]: text_of(item["content"]) for item in messages_of(truth)}
    order = [item_id for event in events if (item_id := _speaks(event)) in texts]
    return "".join(texts[item_id] for item_id in dict.fromkeys([*order, *texts]))


def _speaks(event: Event) -> str | None:
    """The item of whose text the event tells something."""
    match event:
        case OutputTextDelta() | RefusalDelta() if event.delta:
            return event.item_id
        case OutputTextDone() if event.text:
            return event.item_id
        case RefusalDone() if event.refusal:
            return event.item_id
        case ContentPartDone() if event.part.get("text") or event.part.get("refusal"):
            return event.item_id
        case OutputItemDone() if text_of(event.item.get("content")):
            return str(event.item["id"])
    return None


def check(answer: Answer, events: Sequence[Event], truth: Response) -> None:
    """Each call at most once and as it was meant; nothing missing unless an error says so."""
    meant, _ = calls_of(truth)
    assert len(answer.calls) == len(set(answer.calls))
    assert set(answer.calls) <= set(meant)
    if answer.error is None:
        assert answer.outcome is not None
        assert set(answer.calls) == set(meant)
        assert answer.text == arrival_order(events, truth)


# Whole streams.


@pytest.mark.requirement("RFC22-text-flow", "RFC22-call-flow", "RFC22-order", "RFC016-adapter")
@given(turns(), CHANNELS)
def test_a_whole_stream_is_told_whole(turn: list[Delta], channel: Any) -> None:
    events = build(turn, reasoning_as=channel)
    truth, answer = terminal(events), Answer(events)
    meant, malformed = calls_of(truth)

    assert answer.text == spoken(truth)
    assert answer.calls == meant
    assert answer.data == [
        item
        for item in truth.output
        if item["type"] not in ("message", "reasoning", "function_call")
    ]
    if truth.status == "failed":
        assert isinstance(answer.error, ResponseFailed)
    elif malformed:
        assert isinstance(answer.error, MalformedCall)
        assert answer.error.call_id == malformed[0]["call_id"]
    else:
        assert answer.outcome is not None
        assert answer.outcome.response == truth
        assert answer.outcome.meta.deviations == ()


@pytest.mark.requirement("RFC016-adapter")
@given(turns(), DIALECTS, st.lists(st.integers(0, 2**32), max_size=12))
def test_bytes_in_any_split_and_dialect_make_the_same_parts(
    turn: list[Delta], dialect: Dialect, cuts: list[int]
) -> None:
    events = build(turn)
    wire = b"".join(encode_sse(event, dialect) for event in events)
    edges = sorted({0, len(wire), *(cut % (len(wire) + 1) for cut in cuts)})
    decoder = SseDecoder()
    frames = [frame for a, b in pairwise(edges) for frame in decoder.feed(wire[a:b])]
    settings = AdapterSettings(shows_thinking=True, annotations="data")

    direct = Answer(events, settings)
    answer = Answer([decode_event(frame.data) for frame in frames], settings)
    assert answer.parts == direct.parts
    assert type(answer.error) is type(direct.error)


@pytest.mark.requirement("RFC22-gap-2")
@given(whole_turns())
def test_links_are_beside_the_text_and_change_nothing_in_it(turn: list[Delta]) -> None:
    events = build(turn)
    plain = Answer(events)
    linked = Answer(events, AdapterSettings(annotations="inline"))
    links = [part for part in linked.parts if part not in plain.parts]

    assert [part for part in linked.parts if part not in links] == plain.parts
    assert all(isinstance(link, TextPart) and link.value.startswith(" [") for link in links)
    assert type(linked.error) is type(plain.error)


@pytest.mark.requirement("RFC22-reasoning-flow", "RFC22-thinking")
@given(whole_turns())
def test_of_each_reasoning_item_one_voice_is_shown_and_all_of_it(turn: list[Delta]) -> None:
    events = build(turn)
    answer = Answer(events, AdapterSettings(shows_thinking=True, annotations="none"))
    for item in terminal(events).output:
        if item["type"] == "reasoning":
            pieces = [
                part.value
                for part in answer.parts
                if isinstance(part, ThinkingPart) and part.id == item["id"]
            ]
            parts = [part["text"] for part in item["summary"] if part["text"]]
            voices = (text_of(item.get("content")), "\n\n".join(parts))
            assert "".join(pieces) in voices


# Damage.


def _damage(draw: Callable[[Any], Any], events: list[Event]) -> list[Event]:
    """Some events lost, some told again; the last one stays, for it carries the response."""
    repeats = draw(st.lists(st.integers(0, len(events) - 1), max_size=4))
    losses = draw(st.sets(st.integers(0, len(events) - 2), max_size=6))
    return [
        copy
        for index, event in enumerate(events)
        if index not in losses
        for copy in [event] * (1 + repeats.count(index))
    ]


@pytest.mark.requirement("RFC22-atomic-calls", "RFC22-gap-1", "22-D3")
@given(whole_turns(), st.data())
def test_lost_and_repeated_events_lose_and_double_nothing_in_silence(
    turn: list[Delta], data: st.DataObject
) -> None:
    events = build(turn)
    damaged = _damage(data.draw, events)
    check(Answer(damaged), damaged, terminal(events))


@pytest.mark.requirement("RFC22-atomic-calls")
@given(whole_turns(), st.data())
def test_without_sequence_numbers_it_is_no_worse(turn: list[Delta], data: st.DataObject) -> None:
    events = build(turn)
    damaged = [
        msgspec.structs.replace(event, sequence_number=-1)
        for event in _damage(data.draw, events)
        if isinstance(event, msgspec.Struct)
    ]
    check(Answer(damaged), damaged, terminal(events))


@pytest.mark.requirement("RFC22-atomic-calls")
@given(whole_turns(), st.data())
def test_a_terminal_event_without_output_is_no_worse(
    turn: list[Delta], data: st.DataObject
) -> None:
    """Whatever is then lost, the parts are those of the response that the outcome holds."""
    events = build(turn)
    last = events[-1]
    assert isinstance(last, _Terminal)
    empty = msgspec.structs.replace(last.response, output=[])
    damaged = _damage(data.draw, [*events[:-1], msgspec.structs.replace(last, response=empty)])
    answer = Answer(damaged)
    if answer.outcome is not None:
        assert sorted(answer.calls) == sorted(calls_of(answer.outcome.response)[0])
        assert answer.text == arrival_order(damaged, answer.outcome.response)


@pytest.mark.requirement("RFC22-atomic-calls")
@given(whole_turns(), st.data())
def test_items_that_are_done_under_other_ids_are_told_once(
    turn: list[Delta], data: st.DataObject
) -> None:
    events = build(turn)
    last = events[-1]
    assert isinstance(last, _Terminal)
    chosen = data.draw(
        st.sets(st.sampled_from([item["id"] for item in last.response.output] or [""]))
    )

    def rename(item: Item) -> Item:
        return item | {"id": f"other_{item['id']}"} if item["id"] in chosen else item

    renamed: list[Event] = [
        msgspec.structs.replace(event, item=rename(event.item))
        if isinstance(event, OutputItemDone)
        else event
        for event in events[:-1]
    ]
    if data.draw(st.booleans()):
        output = [rename(item) for item in last.response.output]
        whole = msgspec.structs.replace(last.response, output=output)
        last = msgspec.structs.replace(last, response=whole)
    truth, answer = terminal(events), Answer([*renamed, last])
    assert answer.text == spoken(truth)
    assert answer.calls == calls_of(truth)[0]
    assert type(answer.error) is type(Answer(events).error)


def _payloads(calls: Sequence[_Call]) -> Counter[tuple[str, str]]:
    """What is asked for, and how often, under whatever ids."""
    return Counter((name, arguments) for _, name, arguments in calls)


def _with_output(events: Sequence[Event], change: Callable[[Item], Item]) -> Event:
    """The terminal event, each item of its output changed."""
    last = events[-1]
    assert isinstance(last, _Terminal)
    output = [change(item) for item in last.response.output]
    whole = msgspec.structs.replace(last.response, output=output)
    return msgspec.structs.replace(last, response=whole)


def _with_items(events: Sequence[Event], change: Callable[[Item], Item]) -> list[Event]:
    """The events, each item that is done changed."""
    return [
        msgspec.structs.replace(event, item=change(event.item))
        if isinstance(event, OutputItemDone)
        else event
        for event in events
    ]


def _renew(item: Item) -> Item:
    """The item under a call_id that nobody has heard before."""
    return item | {"call_id": f"new_{item['call_id']}"} if "call_id" in item else item


def _renew_all(item: Item) -> Item:
    return _renew(item) | {"id": f"new_{item['id']}"}


_CHANGES: Any = st.sampled_from([dict, _renew, _renew_all])


@pytest.mark.requirement("RFC22-atomic-calls", "RFC22-parallel")
@given(whole_turns(), st.sampled_from([dict, _renew]), _CHANGES)
def test_calls_that_get_new_call_ids_are_told_once(
    turn: list[Delta], at_done: Callable[[Item], Item], at_end: Callable[[Item], Item]
) -> None:
    """At item done under the old item id; in the terminal response under whatever id."""
    events = build(turn)
    truth = terminal(events)
    answer = Answer([*_with_items(events[:-1], at_done), _with_output(events, at_end)])
    assert answer.text == spoken(truth)
    assert _payloads(answer.calls) == _payloads(calls_of(truth)[0])
    assert type(answer.error) is type(Answer(events).error)
    if answer.outcome is not None:
        assert len(answer.outcome.response.output) == len(truth.output)


@pytest.mark.requirement("RFC22-atomic-calls")
@given(whole_turns(), st.sampled_from([dict, _renew]), _CHANGES, st.data())
def test_new_call_ids_on_a_damaged_stream_double_nothing_in_silence(
    turn: list[Delta],
    at_done: Callable[[Item], Item],
    at_end: Callable[[Item], Item],
    data: st.DataObject,
) -> None:
    events = build(turn)
    damaged = _damage(data.draw, [*_with_items(events[:-1], at_done), _with_output(events, at_end)])
    answer, meant = Answer(damaged), _payloads(calls_of(terminal(events))[0])
    assert _payloads(answer.calls) <= meant
    if answer.error is None:
        assert _payloads(answer.calls) == meant
        assert answer.text == arrival_order(damaged, terminal(damaged))


_PLACELESS: Any = st.sampled_from(
    [{"item_id": ""}, {"output_index": -1}, {"item_id": "", "output_index": -1}]
)


def _strip(events: Sequence[Event], lost: dict[str, Any]) -> list[Event]:
    """The events without their item_id, their output_index or both."""
    return [
        msgspec.structs.replace(
            event,
            **{field: value for field, value in lost.items() if hasattr(event, field)},
        )
        if isinstance(event, msgspec.Struct)
        else event
        for event in events
    ]


_TWINS: list[Delta] = [
    CallOpened(0, "find"),
    CallOpened(1, "find"),
    CallClosed(0),
    Stopped("length"),
]


@pytest.mark.requirement("RFC22-gap-1", "RFC22-parallel")
@example(_TWINS, {"item_id": "", "output_index": -1}, True)
@given(whole_turns(), _PLACELESS, st.booleans())
def test_events_that_do_not_say_whose_they_are_lose_and_mix_up_nothing(
    turn: list[Delta], lost: dict[str, Any], has_end: bool
) -> None:
    events = build(turn)
    truth = terminal(events)
    stripped = _strip(events, lost)
    answer = Answer(stripped if has_end else stripped[:-1])
    assert answer.text == spoken(truth)
    meant = calls_of(truth)[0]
    if has_end:
        assert sorted(answer.calls) == sorted(meant)
        assert type(answer.error) is type(Answer(events).error)
    else:
        assert set(answer.calls) <= set(meant)
        assert isinstance(answer.error, StreamCut)


@pytest.mark.requirement("RFC22-gap-1", "RFC22-atomic-calls")
@given(whole_turns(), _PLACELESS, st.data())
def test_events_without_their_place_on_a_damaged_stream_hide_nothing(
    turn: list[Delta], lost: dict[str, Any], data: st.DataObject
) -> None:
    """What is guessed may be wrong; then an error says so."""
    events = build(turn)
    answer = Answer(_damage(data.draw, _strip(events, lost)))
    if answer.error is None:
        assert sorted(answer.calls) == sorted(calls_of(terminal(events))[0])
        assert sorted(answer.text) == sorted(spoken(terminal(events)))


@pytest.mark.requirement("RFC22-parallel")
@given(whole_turns(), st.data())
def test_calls_under_one_item_id_are_told_apart_by_their_index(
    turn: list[Delta], data: st.DataObject
) -> None:
    events = build(turn)
    calls = {item["id"] for item in terminal(events).output if item["type"] == "function_call"}

    def share(item: Item) -> Item:
        return item | {"id": "fc"} if item["id"] in calls else item

    shared = [
        msgspec.structs.replace(event, item=share(event.item))
        if isinstance(event, OutputItemAdded | OutputItemDone)
        else msgspec.structs.replace(event, item_id="fc")
        if isinstance(event, ArgumentsDelta | ArgumentsDone)
        else event
        for event in _mix(data.draw, events)[:-1]
    ]
    answer = Answer([*shared, _with_output(events, share)])
    assert sorted(answer.calls) == sorted(calls_of(terminal(events))[0])
    assert type(answer.error) is type(Answer(events).error)


@pytest.mark.requirement("RFC22-reasoning-flow")
@given(
    st.lists(st.text("ab ", min_size=1, max_size=3), min_size=1, max_size=6),
    st.lists(st.text("cd ", min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["reasoning_text", "reasoning_summary_text"]),
    st.booleans(),
)
def test_thoughts_at_the_place_of_the_message_are_shown_once(
    thoughts: list[str], pieces: list[str], name: str, has_thought: bool
) -> None:
    """Each delta under an id of its own, as a proxy tells them; the answer is only the answer."""
    said = streams.message(*pieces)
    index = "summary_index" if "summary" in name else "content_index"
    stray = [
        streams.event(f"{name}.delta", delta=delta, item_id=f"rs_{n}", output_index=0, **{index: 0})
        for n, delta in enumerate(thoughts)
    ]
    whole = [{"type": name.removeprefix("reasoning_"), "text": "".join(thoughts)}]
    field = "summary" if "summary" in name else "content"
    thought = {"id": "rs", "type": "reasoning", "summary": [], field: whole}
    last = streams.end(*([thought] if has_thought else []), streams.message_item("".join(pieces)))
    stream = [streams.created(), *said[:2], *stray, *said[2:], last]
    answer = Answer(
        [read_event({"sequence_number": n} | fields) for n, fields in enumerate(stream)],
        AdapterSettings(shows_thinking=True),
    )
    shown = [part.value for part in answer.parts if isinstance(part, ThinkingPart)]
    assert answer.error is None
    assert shown == thoughts
    assert answer.text == "".join(pieces)


@pytest.mark.requirement("RFC22-atomic-calls")
@given(whole_turns(), st.booleans())
def test_of_calls_under_one_call_id_one_is_told_and_the_others_are_reported(
    turn: list[Delta], has_output: bool
) -> None:
    events = build(turn)

    def share(item: Item) -> Item:
        return item | {"call_id": "shared"} if item["type"] == "function_call" else item

    last = events[-1]
    assert isinstance(last, _Terminal)
    output = [share(item) for item in last.response.output] if has_output else []
    whole = msgspec.structs.replace(last.response, output=output)
    shared: list[Event] = [
        msgspec.structs.replace(event, item=share(event.item))
        if isinstance(event, OutputItemAdded | OutputItemDone)
        else event
        for event in events[:-1]
    ]
    answer = Answer([*shared, msgspec.structs.replace(last, response=whole)])
    meant = {(name, arguments) for _, name, arguments in calls_of(terminal(events))[0]}
    assert len(answer.calls) == min(len(meant), 1)
    assert set(answer.calls) <= {("shared", *payload) for payload in meant}
    if answer.outcome is not None:
        assert len(calls_of(answer.outcome.response)[0]) == len(meant)
        conflict = "call_id shared stands for several calls; only the first was handed over"
        assert (conflict in answer.outcome.meta.deviations) == (len(meant) > 1)


def _mix(draw: Callable[[Any], Any], events: list[Event]) -> list[Event]:
    """The events of different items side by side; those of one item keep their order."""
    lanes: dict[int, list[Event]] = {}
    for event in events[2:-1]:
        lanes.setdefault(event.output_index, []).append(event)  # type: ignore[union-attr] # all in items
    waiting = list(lanes.values())
    mixed = events[:2]
    while waiting:
        mixed.append(draw(st.sampled_from(waiting)).pop(0))
        waiting = [lane for lane in waiting if lane]
    return [*mixed, events[-1]]


@pytest.mark.requirement("RFC22-parallel", "RFC22-interleaved")
@given(whole_turns(), st.data())
def test_items_told_side_by_side_are_not_mixed_up(turn: list[Delta], data: st.DataObject) -> None:
    """Each item keeps the order of its own events; all else is mixed as chance has it."""
    events = build(turn)
    mixed = _mix(data.draw, events)
    answer = Answer(mixed)
    said = [e.delta for e in mixed if isinstance(e, OutputTextDelta | RefusalDelta)]

    assert answer.text == "".join(said)
    assert sorted(answer.calls) == sorted(calls_of(terminal(events))[0])
    assert type(answer.error) is type(Answer(events).error)


@pytest.mark.requirement("RFC22-gap-1")
@given(whole_turns(), st.data())
def test_neighbours_that_change_places_lose_nothing(turn: list[Delta], data: st.DataObject) -> None:
    """An event before its `added`, done events in another order: nothing is lost in silence."""
    events = build(turn)
    swapped = list(events)
    for place in data.draw(st.lists(st.integers(0, max(len(events) - 3, 0)), max_size=4)):
        if place + 1 < len(events) - 1:
            swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
    check(Answer(swapped), swapped, terminal(events))


@pytest.mark.requirement("RFC22-error")
@given(turns(), st.integers(0, 200))
def test_a_stream_without_its_end_is_an_error(turn: list[Delta], cut: int) -> None:
    events = build(turn)
    kept = events[: min(cut, len(events) - 1)]
    answer = Answer(kept)
    expected = ResponseFailed if any(isinstance(e, ErrorEvent) for e in kept) else StreamCut
    assert type(answer.error) is expected
    assert set(answer.calls) <= set(calls_of(terminal(events))[0])
    assert spoken(terminal(events)).startswith(answer.text)


@pytest.mark.requirement("RFC22-error", "RFC22-atomic-calls")
@given(whole_turns(), st.data())
def test_a_damaged_stream_without_its_end_tells_no_call_that_was_not_meant(
    turn: list[Delta], data: st.DataObject
) -> None:
    events = build(turn)
    answer = Answer([e for e in _damage(data.draw, events) if not isinstance(e, _Terminal)])
    assert isinstance(answer.error, StreamCut)
    assert len(answer.calls) == len(set(answer.calls))
    assert set(answer.calls) <= set(calls_of(terminal(events))[0])


@pytest.mark.requirement("RFC22-text-flow")
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1))
def test_text_in_half_characters_arrives_whole(pieces: list[str]) -> None:
    """Every character beyond the basic plane comes in two deltas, half of it in each."""
    units = "".join(pieces).encode("utf-16-le")
    halves = [
        units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)
    ]
    place = {"item_id": "m", "output_index": 0, "content_index": 0}
    events = [
        read_event(
            {"type": "response.output_text.delta", "sequence_number": n, "delta": half} | place
        )
        for n, half in enumerate(halves)
    ]
    end = {"type": "response.completed", "response": {"id": "r", "status": "completed"}}
    answer = Answer([*events, read_event(end)])
    assert answer.error is None
    assert answer.text == "".join(pieces)
    assert all(len(part.value) == 1 for part in answer.parts if isinstance(part, TextPart))


@pytest.mark.requirement("RFC22-error")
@given(st.lists(st.sampled_from(range(60)), max_size=40), whole_turns())
def test_no_order_of_events_makes_it_raise_before_the_end(
    order: list[int], turn: list[Delta]
) -> None:
    events = build(turn)
    answer = Answer([events[place % len(events)] for place in order])
    assert (answer.outcome is None) != (answer.error is None)
    assert not isinstance(answer.error, DamagedText) or answer.error.shown != answer.error.said
    assert len(answer.calls) == len(set(answer.calls))


def test_added_events_alone_show_nothing() -> None:
    events = [event for event in build([]) if not isinstance(event, OutputItemAdded)]
    assert Answer(events).parts == []
