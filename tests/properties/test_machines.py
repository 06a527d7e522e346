"""The three machines, tied together: for any turn and any split of its bytes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.codec import (
    Dialect,
    decode_event,
    encode_all_sse,
    encode_sse,
    response_object,
)
from antiphon.protocol.deltas import CallGrew, CallMade, CallOpened, Delta, TextGrew
from antiphon.protocol.errors import BrokenStream
from antiphon.protocol.events import (
    ArgumentsDelta,
    CustomInputDelta,
    Event,
    OutputItemDone,
    OutputTextDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
)
from antiphon.protocol.families import FAMILIES, call_family, is_call, payload_of
from antiphon.protocol.items import Item
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Response
from antiphon.protocol.sse import SseDecoder
from tests.building import build
from tests.strategies import turns, whole_turns

DIALECTS: st.SearchStrategy[Dialect] = st.sampled_from(["openai", "open-responses"])
CHANNELS = st.sampled_from(["content", "summary"])


def terminal(events: list[Event]) -> Response:
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    return last.response


def accumulate(events: list[Event]) -> ResponseAccumulator:
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(event)
    return accumulator


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


@given(turns(families=True), CHANNELS)
def test_the_referee_accepts_whatever_the_builder_builds(turn: list[Delta], channel: Any) -> None:
    assert judge_stream(build(turn, reasoning_as=channel)) == []


@given(turns(families=True), DIALECTS, CHANNELS, st.lists(st.integers(0, 2**32), max_size=12))
def test_bytes_in_any_split_come_back_as_the_same_response(
    turn: list[Delta], dialect: Dialect, channel: Any, cuts: list[int]
) -> None:
    events = build(turn, reasoning_as=channel)
    wire = b"".join(encode_sse(event, dialect) for event in events)
    decoder = SseDecoder()
    frames = [frame for piece in split(wire, cuts) for frame in decoder.feed(piece)]
    decoded = [decode_event(frame.data) for frame in frames]

    assert len(decoded) == len(events)
    accumulator = accumulate(decoded)
    assert accumulator.deviations == []
    assert response_object(accumulator.finish(), dialect) == response_object(
        terminal(events), dialect
    )


@given(turns(families=True), DIALECTS, st.lists(st.integers(0, 2**32), max_size=4))
def test_events_written_together_are_the_bytes_of_each(
    turn: list[Delta], dialect: Dialect, cuts: list[int]
) -> None:
    events = build(turn)
    edges = sorted({0, len(events), *(cut % (len(events) + 1) for cut in cuts)})
    for a, b in pairwise(edges):
        alone = [encode_sse(event, dialect) for event in events[a:b]]
        assert encode_all_sse(events[a:b], dialect) == b"".join(alone)


@given(turns(families=True))
def test_nothing_the_model_said_is_lost_or_doubled(turn: list[Delta]) -> None:
    events = build(turn)
    said = [event.delta for event in events if isinstance(event, OutputTextDelta)]
    meant = [delta.text for delta in turn if isinstance(delta, TextGrew) and delta.text]
    calls = [delta for delta in turn if isinstance(delta, CallOpened | CallMade)]
    made = [family for item in terminal(events).output if (family := call_family(item))]

    if terminal(events).status != "failed":
        assert "".join(said) == "".join(meant)
        assert [family.kind for family in made] == [call.kind for call in calls]
    assert terminal(events).output_text == "".join(said)


def said_by(turn: list[Delta], call: CallOpened | CallMade) -> str:
    if isinstance(call, CallMade):
        return call.said
    grown = [d.arguments for d in turn if isinstance(d, CallGrew) and d.key == call.key]
    return "".join(grown)


def payload(call: CallOpened | CallMade, said: str, status: str) -> Any:
    if call.kind == "custom":
        return said
    if call.kind == "function":
        return said or {"completed": "{}", "incomplete": ""}[status]
    return payload_of(call.kind, said)


@given(whole_turns(families=True))
def test_every_call_says_exactly_what_is_its_own(turn: list[Delta]) -> None:
    made = [item for item in terminal(build(turn)).output if is_call(item)]
    calls = [delta for delta in turn if isinstance(delta, CallOpened | CallMade)]
    assert len(made) == len(calls)
    for call, item in zip(calls, made, strict=True):
        meant = payload(call, said_by(turn, call), item["status"])
        assert item[FAMILIES[call.kind].payload] == meant
        assert item.get("namespace") == call.namespace
        assert item.get("name", call.name) == call.name


def calls_of(response: Response) -> list[Item]:
    return [item for item in response.output if is_call(item)]


@given(whole_turns(families=True), st.data())
def test_on_a_damaged_stream_each_call_arrives_exactly_once(
    turn: list[Delta], data: st.DataObject
) -> None:
    """Events may be repeated, or lost: all but the last, which carries the whole response."""
    events = build(turn)
    repeats = data.draw(st.lists(st.integers(0, len(events) - 1), max_size=4))
    losses = data.draw(st.sets(st.integers(0, max(len(events) - 2, 0)), max_size=4))
    damaged = [
        copy
        for index, event in enumerate(events)
        if index not in losses
        for copy in [event] * (1 + repeats.count(index))
    ]
    assert calls_of(accumulate(damaged).finish()) == calls_of(terminal(events))


@given(whole_turns(families=True), st.data())
def test_a_terminal_event_without_output_is_filled_from_what_was_streamed(
    turn: list[Delta], data: st.DataObject
) -> None:
    events = build(turn)
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)
    whole = terminal(events)
    empty = type(last)(
        sequence_number=last.sequence_number,
        response=Response(id=whole.id, status=whole.status, usage=whole.usage),
    )
    deltas = [
        index
        for index, event in enumerate(events)
        if isinstance(event, OutputTextDelta | ArgumentsDelta | CustomInputDelta)
    ]
    # The deltas may be lost too: the done events carry what they said.
    lost = data.draw(st.sets(st.sampled_from(deltas))) if deltas else set()
    damaged = [event for index, event in enumerate(events[:-1]) if index not in lost]
    response = accumulate([*damaged, empty]).finish()

    assert calls_of(response) == calls_of(whole)
    assert response.output_text == whole.output_text


@given(whole_turns(), st.booleans(), st.booleans())
def test_new_call_ids_make_no_new_calls(
    turn: list[Delta], at_done: bool, has_new_items: bool
) -> None:
    """A server may tell a call under a new call_id when it is done, and under new ids at last."""
    events = build(turn)
    last = events[-1]
    assert isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete)

    def renew(item: Item) -> Item:
        return item | {"call_id": f"new_{item['call_id']}"} if "call_id" in item else item

    def renew_at_end(item: Item) -> Item:
        return renew(item) | ({"id": f"new_{item['id']}"} if has_new_items else {})

    renewed: list[Event] = [
        msgspec.structs.replace(event, item=renew(event.item))
        if at_done and isinstance(event, OutputItemDone)
        else event
        for event in events[:-1]
    ]
    output = [renew_at_end(item) for item in last.response.output]
    whole = msgspec.structs.replace(last.response, output=output)
    accumulator = accumulate([*renewed, msgspec.structs.replace(last, response=whole)])
    assert accumulator.finish().output == output
    drafts = [draft for _, draft in accumulator.settled]
    assert len({id(draft) for draft in drafts if draft}) == len(output)


@given(turns(families=True), st.integers(0, 200))
def test_a_stream_without_its_end_is_never_taken_for_whole(turn: list[Delta], cut: int) -> None:
    events = build(turn)
    accumulator = accumulate(events[: min(cut, len(events) - 1)])
    try:
        accumulator.finish()
    except BrokenStream:
        return
    raise AssertionError("a cut stream was taken for a whole one")


@given(
    turn=turns(families=True),
    faults=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6),
)
def test_events_in_one_batch_are_the_events_one_by_one(
    turn: list[Delta], faults: list[tuple[int, int]]
) -> None:
    """Whatever is dropped, repeated or swapped: the fast way and the slow way agree."""
    events = build(turn)
    for where, what in faults:
        where, what = where % len(events), what % len(events)
        events[where:where] = events[what : what + 1]
        if (where + what) % 3 == 0 and len(events) > 1:
            del events[what]
    one_by_one, at_once = ResponseAccumulator(), ResponseAccumulator()
    for event in events:
        one_by_one.feed(event)
    at_once.feed_all(events)
    assert at_once.response == one_by_one.response
    assert at_once.deviations == one_by_one.deviations
