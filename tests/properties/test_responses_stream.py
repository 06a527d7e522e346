"""Damaged streams of Responses servers: whatever is wrong with one, ours keeps its rules."""

from __future__ import annotations

import copy
from typing import Any, Final

from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.protocol.deltas import TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Response
from antiphon.wires.responses.exchange import ResponsesExchange
from antiphon.wires.responses.profiles import PROFILES
from tests.building import COUNTED, counting_mint, plan_with
from tests.wires.responses.test_stream import CALL, LOOK, SEARCH, THOUGHT, added, called, done
from tests.wires.responses.upstream import Json, ended, message, sse, texted

CODE: Final[Json] = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "status": "completed",
    "code": "print()",
    "container_id": "c",
    "outputs": None,
}
LIST: Final[Json] = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}
THING: Final[Json] = {"type": "vendor:thing", "id": "v_1", "status": "completed"}


def coded() -> list[Json]:
    place = {"output_index": 5, "item_id": "ci_1"}
    name = "response.code_interpreter_call"
    return [
        added({**CODE, "status": "in_progress", "code": ""}, 5),
        {"type": f"{name}.in_progress", **place},
        {"type": f"{name}_code.delta", **place, "delta": "print"},
        {"type": f"{name}_code.delta", **place, "delta": "()"},
        {"type": f"{name}_code.done", **place, "code": "print()"},
        {"type": f"{name}.interpreting", **place},
        {"type": f"{name}.completed", **place},
        done(CODE, 5),
    ]


WHOLE: Final[list[Json]] = [
    {"type": "response.created", "response": {"id": "r", "output": []}},
    added({**THOUGHT, "summary": []}, 0),
    done(THOUGHT, 0),
    *texted(["Hel", "lo"], 1),
    *called(2),
    added({**SEARCH, "status": "in_progress"}, 3),
    {"type": "response.web_search_call.searching", "output_index": 3, "item_id": "ws_1"},
    done(SEARCH, 3),
    added(LIST, 4),
    *coded(),
    added({**THING, "status": "in_progress"}, 6),
    {"type": "response.vendor_thing.went_on", "output_index": 6, "item_id": "v_1"},
    done(THING, 6),
    *texted(["Bye"], 7, "msg_2"),
    ended([THOUGHT, message("Hello"), CALL, SEARCH, LIST, CODE, THING, message("Bye")]),
]


@st.composite
def damaged(draw: st.DrawFn) -> list[Json]:
    """A stream in which events are missing, doubled, moved, or have wrong places."""
    events = copy.deepcopy(WHOLE)
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(events) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                del events[place]
            case 1:
                events.insert(place, copy.deepcopy(events[place]))
            case 2:
                events.insert(draw(st.integers(0, len(events) - 1)), events.pop(place))
            case 3:
                damage_field(draw, events[place])
            case _:
                events[place]["output_index"] = draw(st.sampled_from([-1, 0, 3, 99, None]))
        if not events:
            break
    return events


def damage_field(draw: st.DrawFn, event: Json) -> None:
    fields = [name for name in event if name != "type"]
    if fields:
        name = draw(st.sampled_from(fields))
        value: Any = draw(st.sampled_from([None, "x", 7, [], {}, {"type": "message"}]))
        event[name] = value


def play(events: list[Json], size: int) -> tuple[list[Any], BackendError | None]:
    plan = plan_with([LOOK])
    exchange = ResponsesExchange(plan, PROFILES["openai"], frozenset(), "team")
    data = sse(events)
    deltas: list[Any] = []
    for begin in range(0, len(data), size):
        if exchange.is_done or exchange.fault is not None:
            break
        deltas += exchange.feed(data[begin : begin + size])
    if not exchange.is_done and exchange.fault is None:
        deltas += exchange.end()
    return deltas, exchange.fault


@given(damaged())
def test_no_damage_breaks_a_rule_of_our_own_stream(events: list[Json]) -> None:
    deltas, fault = play(events, 1 << 20)
    builder = ResponseBuilder(
        Response(id="resp_1", model="m", usage=COUNTED.usage), counting_mint()
    )
    told = builder.start()
    try:
        told += builder.feed_all(deltas)
        told += builder.finish(1) if fault is None else builder.fail(Failure("x", "y"))
    except BackendError:
        told += builder.fail(Failure("x", "y"))
    assert judge_stream(told) == []


@given(damaged(), st.integers(1, 400))
def test_a_damaged_stream_is_the_same_however_it_is_split(events: list[Json], size: int) -> None:
    whole, fault = play(events, 1 << 20)
    pieces, other = play(events, size)
    assert pieces == whole
    assert (fault and fault.code) == (other and other.code)


@given(st.sets(st.integers(0, len(WHOLE) - 2)))
def test_no_text_is_lost_whichever_events_are_missing(missing: set[int]) -> None:
    first, second = (
        number
        for number, event in enumerate(WHOLE)
        if event.get("item_id") == "msg_1" and "delta" in event
    )
    # A text whose beginning is missing ends as another one than it was streamed: that is reported.
    assume(first not in missing or second in missing)
    events = [event for number, event in enumerate(WHOLE) if number not in missing]
    deltas, fault = play(events, 1 << 20)
    assert fault is None
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextGrew))
    assert sorted(said) == sorted("HelloBye")
