"""Function calls of a chat model as the caller's own: whole and in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.toolbox import Toolbox, gather_tools
from antiphon.protocol.deltas import (
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Degraded,
    Delta,
    Stopped,
    StopReason,
    TextGrew,
    UsageKnown,
)
from antiphon.protocol.response import Usage
from antiphon.wires.lift import CallLifter
from tests.building import STOP
from tests.strategies import interleaved

BOX: Toolbox = gather_tools(
    [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]},
        {"type": "shell"},
        {"type": "apply_patch"},
        {"type": "tool_search", "execution": "client"},
    ]
)[0]
COUNT = UsageKnown(Usage(total_tokens=1))


def raised(*deltas: Delta, lifter: CallLifter | None = None) -> list[Delta]:
    """What is told of these deltas, one by one."""
    lifter = lifter or CallLifter(BOX)
    return [told for delta in deltas for told in lifter.feed([delta])]


def call(key: int, name: str, *pieces: str) -> list[Delta]:
    return [CallOpened(key, name, f"call_{key}"), *(CallGrew(key, piece) for piece in pieces)]


def made(name: str, said: str, key: int, kind: str, namespace: str | None = None) -> CallMade:
    alias = name if namespace is None else f"{namespace}__{name}"
    return CallMade(name, said, f"call_{key}", kind, namespace, alias)  # type: ignore[arg-type]  # a kind


def function(key: int, name: str, namespace: str | None = None) -> CallOpened:
    alias = name if namespace is None else f"{namespace}__{name}"
    return CallOpened(key, name, f"call_{key}", "function", namespace, alias)


# Functions.


def test_without_tools_nothing_changes() -> None:
    deltas = [*call(0, "f", "{}"), STOP]
    assert CallLifter(Toolbox()).feed(deltas) is deltas


def test_a_function_grows_as_it_comes() -> None:
    told = raised(*call(0, "f", '{"a":', "1}"), STOP)
    assert told == [function(0, "f"), CallGrew(0, '{"a":'), CallGrew(0, "1}"), STOP]


def test_a_name_is_taken_apart_into_name_and_namespace() -> None:
    assert raised(*call(0, "n__g", "{}"))[0] == function(0, "g", "n")
    assert raised(*call(0, "g", "{}"))[0] == function(0, "g", "n")


def test_a_name_that_nobody_has_passes_as_it_is() -> None:
    deltas = call(0, "made_up", "{", "}")
    assert raised(*deltas) == deltas


def test_what_was_raised_already_is_not_raised_again() -> None:
    opened = CallOpened(0, "n__g", "x", "function", None, "f")
    assert raised(opened) == [opened]


@pytest.mark.parametrize("cut", range(1, 14))
def test_arguments_in_a_string_are_taken_out_of_it(cut: int) -> None:
    text = " " + json.dumps('{"a":1}')
    told = raised(*call(0, "f", text[:cut], text[cut:]), STOP)
    assert told == [function(0, "f"), CallGrew(0, '{"a":1}'), STOP]


def test_arguments_in_a_string_after_pieces_of_blanks_are_taken_out_of_it() -> None:
    told = raised(*call(0, "f", " ", "\n", '"', '{\\"a\\":1}', '"'), STOP)
    assert told == [function(0, "f"), CallGrew(0, '{"a":1}'), STOP]


def test_arguments_in_a_string_are_told_when_the_call_is_closed() -> None:
    told = raised(*call(0, "f", '"{}"'), CallClosed(0))
    assert told == [function(0, "f"), CallGrew(0, "{}"), CallClosed(0)]


def test_a_string_that_holds_no_arguments_stays_a_string() -> None:
    assert raised(*call(0, "f", '"what?"'), STOP)[1] == CallGrew(0, '"what?"')


def test_a_string_that_breaks_off_is_told_as_far_as_it_came() -> None:
    lifter = CallLifter(BOX)
    assert raised(*call(0, "f", '"{'), lifter=lifter) == [function(0, "f")]
    assert lifter.release() == [CallGrew(0, '"{')]
    assert lifter.release() == []


# All others.


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c", '{"input":"ls"}', made("c", "ls", 0, "custom")),
        ("c", '"ls"', made("c", "ls", 0, "custom")),
        ("shell", '{"commands":["ls"]}', made("shell", '{"commands":["ls"]}', 0, "shell")),
        ("shell", '{"commands":"ls","x":1}', made("shell", '{"commands":["ls"]}', 0, "shell")),
        (
            "shell",
            json.dumps('{"commands":["ls"]}'),
            made("shell", '{"commands":["ls"]}', 0, "shell"),
        ),
        (
            "apply_patch",
            '{"type":"delete_file","path":"a"}',
            made(
                "apply_patch", '{"operation":{"type":"delete_file","path":"a"}}', 0, "apply_patch"
            ),
        ),
        ("tool_search", "{}", made("tool_search", "{}", 0, "tool_search")),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_any_other_call_is_told_whole(name: str, text: str, expected: CallMade, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    lifter = CallLifter(BOX)
    assert raised(*call(0, name, *pieces), lifter=lifter) == []
    assert raised(STOP, lifter=lifter) == [expected, STOP]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c", '{"input":"ls"}', made("c", "ls", 0, "custom")),
        ("shell", '{"commands":"ls"}', made("shell", '{"commands":["ls"]}', 0, "shell")),
        ("f", json.dumps('{"a":1}'), made("f", '{"a":1}', 0, "function")),
        ("nobody", "{}", CallMade("nobody", "{}", "call_0")),
    ],
)
def test_a_call_that_came_whole_is_lifted(name: str, text: str, expected: CallMade) -> None:
    assert raised(CallMade(name, text, "call_0")) == [expected]


def test_a_held_call_is_told_when_it_is_closed() -> None:
    lifter = CallLifter(BOX)
    told = raised(*call(0, "c", '{"input":"a"}'), CallClosed(0), lifter=lifter)
    assert told == [made("c", "a", 0, "custom")]
    # White space behind it, or a second end, is nothing to the builder.
    assert raised(CallClosed(0), lifter=lifter) == [CallClosed(0)]


def test_a_call_without_arguments_is_one_of_an_empty_text() -> None:
    told = raised(*call(0, "c"), *call(1, "tool_search"), STOP)
    assert told == [made("c", "", 0, "custom"), made("tool_search", "{}", 1, "tool_search"), STOP]


def test_what_comes_after_a_held_call_waits_behind_it() -> None:
    lifter = CallLifter(BOX)
    first = raised(
        *call(0, "c", '{"input":'), TextGrew("after"), *call(1, "f", "{}"), lifter=lifter
    )
    assert first == []
    told = raised(CallGrew(0, '"x"}'), STOP, lifter=lifter)
    assert told == [
        made("c", "x", 0, "custom"),
        TextGrew("after"),
        function(1, "f"),
        CallGrew(1, "{}"),
        STOP,
    ]


def test_what_was_told_before_a_held_call_goes_on_growing() -> None:
    told = raised(*call(0, "f", "{"), *call(1, "c", '{"input":'), CallGrew(0, "}"), CallClosed(0))
    assert told == [function(0, "f"), CallGrew(0, "{"), CallGrew(0, "}"), CallClosed(0)]


def test_what_is_counted_and_noted_does_not_wait() -> None:
    note = Degraded("x")
    assert raised(*call(0, "c", "{"), COUNT, note) == [COUNT, note]


def test_a_whole_call_is_told_as_soon_as_something_follows() -> None:
    told = raised(*call(0, "c", '{"input":"x"}'), TextGrew("y"))
    assert told == [made("c", "x", 0, "custom"), TextGrew("y")]


# Cut, broken, wrong.


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_call_that_is_cut_short_is_told_as_what_it_was(reason: StopReason) -> None:
    told = raised(*call(0, "c", '{"input":"ha'), Stopped(reason))
    opened = CallOpened(0, "c", "call_0", alias="c")
    assert told == [opened, CallGrew(0, '{"input":"ha'), Stopped(reason)]


def test_a_whole_call_before_the_cut_is_a_call() -> None:
    told = raised(*call(0, "c", '{"input":"x"}'), Stopped("length"))
    assert told == [made("c", "x", 0, "custom"), Stopped("length")]


def test_a_stream_that_breaks_off_tells_what_was_held() -> None:
    lifter = CallLifter(BOX)
    raised(*call(0, "c", "{"), *call(1, "shell", "{"), TextGrew("x"), lifter=lifter)
    assert lifter.release() == [
        CallOpened(0, "c", "call_0", alias="c"),
        CallGrew(0, "{"),
        CallOpened(1, "shell", "call_1", alias="shell"),
        CallGrew(1, "{"),
        TextGrew("x"),
    ]


@pytest.mark.parametrize("text", ["{}", '{"commands":[]}', "ls", "[1]"])
def test_a_call_that_cannot_be_one_is_told_as_what_it_was(text: str) -> None:
    told = raised(*call(0, "shell", text), STOP)
    assert told == [CallOpened(0, "shell", "call_0", alias="shell"), CallGrew(0, text), STOP]


def test_very_many_calls_that_are_none_are_told_all_the_same() -> None:
    deltas = [delta for key in range(400) for delta in call(key, "shell", "nothing")]
    told = raised(*deltas, STOP)
    assert [delta.key for delta in told if isinstance(delta, CallOpened)] == list(range(400))


# Any split, any interleaving.

INPUTS = {
    "f": '{"a": "b"}',
    "n__g": "{}",
    "c": '{"input": "x\\ny"}',
    "shell": '{"commands":["ls"]}',
    "tool_search": '{"paths":["a"]}',
}
MEANT = {
    "f": ("f", None, "function", '{"a": "b"}'),
    "n__g": ("g", "n", "function", "{}"),
    "c": ("c", None, "custom", "x\ny"),
    "shell": ("shell", None, "shell", '{"commands":["ls"]}'),
    "tool_search": ("tool_search", None, "tool_search", '{"paths":["a"]}'),
}


@st.composite
def _mixed(draw: st.DrawFn) -> tuple[list[str], list[Delta]]:
    """Calls side by side in pieces, each opened after the one before it."""
    names = draw(st.lists(st.sampled_from(sorted(INPUTS)), min_size=1, max_size=4))
    tails: list[list[Delta]] = []
    for key, name in enumerate(names):
        rest, told = INPUTS[name], []
        while rest:
            size = draw(st.integers(1, len(rest)))
            told.append(CallGrew(key, rest[:size]))
            rest = rest[size:]
        tails.append([*told, CallClosed(key)] if draw(st.booleans()) else list(told))
    opened = draw(st.booleans())
    openings: list[Delta] = [CallOpened(n, name, f"call_{n}") for n, name in enumerate(names)]
    if opened:
        return names, [*openings, *draw(interleaved(tails))]
    return names, [d for first, tail in zip(openings, tails, strict=True) for d in (first, *tail)]


def _calls(told: Sequence[Delta]) -> list[tuple[str | None, str, str | None, str, str]]:
    """The calls that were told: call_id, name, namespace, kind and all that they say."""
    found: dict[int, list[str]] = {}
    calls: list[tuple[CallOpened | CallMade, list[str]]] = []
    for delta in told:
        if isinstance(delta, CallOpened):
            found[delta.key] = []
            calls.append((delta, found[delta.key]))
        elif isinstance(delta, CallGrew):
            found[delta.key].append(delta.arguments)
        elif isinstance(delta, CallMade):
            calls.append((delta, [delta.said]))
    return [(d.call_id, d.name, d.namespace, d.kind, "".join(said)) for d, said in calls]


@given(_mixed(), st.integers(1, 9))
def test_any_interleaving_tells_the_same_calls_in_their_order(
    mixed: tuple[list[str], list[Delta]], size: int
) -> None:
    names, deltas = mixed
    lifter = CallLifter(BOX)
    told: list[Delta] = []
    for at in range(0, len(deltas), size):
        told += lifter.feed(deltas[at : at + size])
    told += lifter.feed([STOP])
    expected = [
        (f"call_{key}", name, namespace, kind, said)
        for key, (name, namespace, kind, said) in enumerate(MEANT[name] for name in names)
    ]
    assert _calls(told) == expected
    assert told[-1] == STOP


def _work(calls: int) -> int:
    """Count the functions that are called to raise so many interleaved custom calls."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    opened = [CallOpened(key, "c") for key in range(calls)]
    pieces = ['{"input":"', *"a" * 30, '"}']
    grown = [CallGrew(key, piece) for piece in pieces for key in range(calls)]
    lifter = CallLifter(BOX)
    sys.setprofile(note)
    try:
        told = lifter.feed([*opened, *grown, STOP])
    finally:
        sys.setprofile(None)
    assert len(told) == calls + 1
    return count


def test_pieces_that_wait_behind_many_calls_are_not_looked_at_for_each_of_them() -> None:
    # Of 4,096 pieces each costs some 40 calls of functions; looked at again, it would be 500.
    assert _work(128) < 100 * 128 * 32
