"""Logs, for any turn: packed and unpacked, told from the end, and continued from any cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.codec import decode_event, encode_event
from antiphon.protocol.deltas import Degraded, Delta, NativeState
from antiphon.protocol.errors import BackendError, BrokenStream
from antiphon.protocol.events import Event, is_terminal
from antiphon.protocol.items import Item
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.log import pack_events, unpack_events
from antiphon.protocol.machines.rebuild import rebuild
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.machines.replay import replay_response
from antiphon.protocol.response import Failure, Response
from tests.building import COUNTED, counting_mint
from tests.strategies import prose, turns

GONE = Failure("server_restarted", "the server was restarted")
ENDS = st.sampled_from(["finish", "cancel"])


def seal(item: Item, state: NativeState | None) -> str:
    return f"sealed {item['id']}"


class Stream(msgspec.Struct):
    """A whole stream, and how its builder was set."""

    events: list[Event]
    options: dict[str, Any]

    @property
    def response(self) -> Response:
        last = self.events[-1]
        assert is_terminal(last)
        response: Response = last.response  # type: ignore[union-attr] # a terminal event
        return response


def begun() -> Response:
    return Response(id="resp_1", model="m", usage=COUNTED.usage, metadata={"a": "b"})


def play(turn: list[Delta], end: str, *, is_queued: bool, options: dict[str, Any]) -> list[Event]:
    """Return the whole stream of a turn that ends by itself, or breaks, or is cancelled."""
    builder = ResponseBuilder(begun(), counting_mint(), **options)
    events = builder.start(is_queued=is_queued)
    events += builder.go_on() if is_queued else []
    try:
        for delta in [Degraded("verbosity"), *turn]:
            events += builder.feed(delta)
        return events + (builder.cancel() if end == "cancel" else builder.finish(7))
    except BackendError as error:
        return events + builder.fail(Failure(error.code, error.message))


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Any stream that a builder may tell."""
    options = {
        "reasoning_as": draw(st.sampled_from(["content", "summary"])),
        "seal": draw(st.sampled_from([None, seal])),
    }
    events = play(
        draw(turns(families=True)), draw(ENDS), is_queued=draw(st.booleans()), options=options
    )
    return Stream(events, options)


def batches(events: list[Event], cuts: list[int]) -> list[list[Event]]:
    edges = sorted({0, len(events), *(cut % len(events) for cut in cuts)})
    return [events[a:b] for a, b in pairwise(edges)]


def accumulate(events: list[Event]) -> ResponseAccumulator:
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(decode_event(encode_event(event)))
    return accumulator


@given(streams())
def test_the_referee_accepts_queued_cancelled_and_sealed_streams(stream: Stream) -> None:
    assert judge_stream(stream.events) == []


@given(streams(), st.lists(st.integers(0, 200), max_size=6))
def test_a_log_in_any_batches_is_the_stream(stream: Stream, cuts: list[int]) -> None:
    bodies = [pack_events(batch) for batch in batches(stream.events, cuts)]
    told = [event for body in bodies for event in unpack_events(body, stream.response)]
    assert told == stream.events


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_garbage_is_never_taken_for_a_log(body: bytes) -> None:
    try:
        assert unpack_events(body, Response()) == []
    except BrokenStream:
        return


@given(streams(), st.integers(0, 2**32), st.integers(0, 255))
def test_a_damaged_log_is_read_or_refused(stream: Stream, where: int, what: int) -> None:
    body = bytearray(pack_events(stream.events))
    body[where % len(body)] = what
    try:
        unpack_events(bytes(body), stream.response)
    except BrokenStream:
        return


@given(streams())
def test_a_response_without_a_log_is_told_as_a_right_stream(stream: Stream) -> None:
    events = replay_response(stream.response)
    accumulator = accumulate(events)

    assert judge_stream(events) == []
    assert accumulator.finish() == stream.response
    assert accumulator.deviations == []
    assert [item["id"] for item in accumulator.finish().output] == [
        item["id"] for item in stream.response.output
    ]


@given(streams(), st.integers(0, 200), st.booleans())
def test_a_log_cut_after_any_event_is_brought_to_a_right_end(
    stream: Stream, cut: int, is_cancelled: bool
) -> None:
    told = stream.events[: 1 + cut % (len(stream.events) - 1)]
    before = msgspec.json.encode(told)
    builder = rebuild(begun(), told, counting_mint(), **stream.options)
    whole = told + (builder.cancel() if is_cancelled else builder.fail(GONE))

    assert judge_stream(whole) == []
    assert msgspec.json.encode(told) == before
    assert accumulate(whole).deviations == []
    assert accumulate(whole).finish() == whole[-1].response  # type: ignore[union-attr] # the end


@given(st.lists(prose(), max_size=8), st.sampled_from(["content", "summary"]), st.booleans())
def test_another_builder_goes_on_exactly_as_the_first(
    said: list[Delta], channel: Any, is_cancelled: bool
) -> None:
    first = ResponseBuilder(begun(), counting_mint(), reasoning_as=channel, seal=seal)
    events = first.start()
    for delta in said:
        events += first.feed(delta)
    second = rebuild(begun(), events, counting_mint(), reasoning_as=channel, seal=seal)

    assert second.output == first.output
    assert second.feed(COUNTED) == first.feed(COUNTED)
    if is_cancelled:
        assert second.cancel() == first.cancel()
    else:
        assert second.fail(GONE) == first.fail(GONE)
