"""Hypothesis strategies: what a model may do, as lists of deltas.

The lists are what a backend may say by its contract: a key is opened before it grows, and
opened once. What models really do is in them: calls side by side, text after a call whose
arguments are complete or not, no end.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import strategies as st

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemPassed,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    StopReason,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.families import Kind
from antiphon.protocol.response import InputDetails, OutputDetails, Usage

__all__ = [
    "arguments",
    "broken_turns",
    "citations",
    "deltas",
    "interleaved",
    "passed_items",
    "prose",
    "texts",
    "turns",
    "usages",
    "whole_turns",
]


@cache
def texts() -> st.SearchStrategy[str]:
    """Short text, with the characters that break naive readers; sometimes empty."""
    awkward = st.sampled_from(["\u2028", "\u0085", "\r\n", "\n\n", "data: ", "\U0001f600", "\x00"])
    return st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), awkward)


@cache
def arguments() -> st.SearchStrategy[str]:
    """The arguments of a call: whole JSON, JSON cut short, or nothing."""
    values = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers() | texts())
    whole = values.map(json.dumps)
    cut = st.tuples(whole, st.integers(1, 5)).map(lambda pair: pair[0][: -pair[1]])
    return st.one_of(whole, whole, cut, st.just(""))


@cache
def citations() -> st.SearchStrategy[dict[str, Any]]:
    """A url_citation, as on the wire."""
    return st.fixed_dictionaries(
        {
            "type": st.just("url_citation"),
            "url": st.sampled_from(["https://a.example/", "https://b.example/"]),
            "title": texts(),
            "start_index": st.integers(0, 9),
            "end_index": st.integers(0, 9),
        }
    )


@cache
def passed_items() -> st.SearchStrategy[dict[str, Any]]:
    """A whole item of a type we do not know, with an id or without."""
    return st.fixed_dictionaries(
        {"type": st.sampled_from(["acme:search", "web_search_call"]), "query": texts()},
        optional={"status": st.just("completed"), "nested": st.just({"list": [1, {"two": 2}]})},
    )


@cache
def images() -> st.SearchStrategy[dict[str, Any]]:
    """An image that a model made."""
    return st.fixed_dictionaries(
        {
            "type": st.just("image_generation_call"),
            "status": st.just("completed"),
            "result": st.sampled_from(["", "aGk=", "AAAA"]),
        },
        optional={"output_format": st.sampled_from(["png", "webp"])},
    )


@cache
def usages() -> st.SearchStrategy[Usage]:
    """A count of tokens whose total is a sum."""
    count = st.integers(0, 10**6)
    return st.builds(
        lambda new, cached, out, thought: Usage(
            input_tokens=new + cached,
            input_tokens_details=InputDetails(cached_tokens=cached),
            output_tokens=out + thought,
            output_tokens_details=OutputDetails(reasoning_tokens=thought),
            total_tokens=new + cached + out + thought,
        ),
        count,
        count,
        count,
        count,
    )


@cache
def prose() -> st.SearchStrategy[Delta]:
    """A delta of anything but a call: text most of the time."""
    return st.one_of(
        st.builds(TextGrew, texts()),
        st.builds(TextGrew, texts()),
        st.builds(TextGrew, texts(), st.just(({"token": "a", "logprob": -0.5},))),
        st.builds(RefusalGrew, texts()),
        st.builds(ReasoningGrew, texts()),
        st.builds(SummaryGrew, texts()),
        st.builds(AnnotationAdded, citations()),
        st.builds(ItemPassed, passed_items() | images()),
    )


@cache
def _made() -> st.SearchStrategy[tuple[Kind, str]]:
    """A call that is told whole: of which kind, and what it says."""
    patch = '{"operation":{"type":"update_file","path":"a.py","diff":"@@"}}'
    run = '{"command":["ls"],"env":{"A":"b"}}'
    return st.one_of(
        st.tuples(st.just("custom"), texts()),
        st.tuples(st.just("function"), st.sampled_from(["", "{}", '{"a":1}'])),
        st.sampled_from(
            [
                ("shell", '{"commands":["ls","pwd"],"timeout_ms":9}'),
                ("local_shell", run),
                ("apply_patch", patch),
                ("apply_patch", '{"operation":{"type":"delete_file","path":"a.py"}}'),
                ("tool_search", '{"paths":["a"]}'),
                ("tool_search", "{}"),
            ]
        ),
    )


@st.composite
def _calls(draw: st.DrawFn, first_key: int, *, families: bool) -> list[list[Delta]]:
    """Some calls side by side, each as its own list of deltas, not yet interleaved.

    A call_id may be missing, or taken already: some backends repeat them.
    """
    calls: list[list[Delta]] = []
    for key in range(first_key, first_key + draw(st.integers(1, 3))):
        call_id = draw(st.sampled_from([None, f"theirs_{key}", f"theirs_{key}", "theirs"]))
        if families and draw(st.booleans()):
            kind, said = draw(_made())
            space = draw(st.sampled_from([None, "n"])) if kind in ("function", "custom") else None
            calls.append([CallMade(kind, said, call_id, kind, space)])
            continue
        told: list[Delta] = [CallOpened(key, draw(st.sampled_from(["find", "go"])), call_id)]
        rest = draw(arguments())
        while rest:
            size = draw(st.integers(1, len(rest)))
            told.append(CallGrew(key, rest[:size]))
            rest = rest[size:]
        if draw(st.booleans()):
            told.append(CallClosed(key))
        calls.append(told)
    return calls


@st.composite
def interleaved(draw: st.DrawFn, lists: list[list[Delta]]) -> list[Delta]:
    """The lists merged into one; each keeps its own order."""
    waiting = [list(deltas) for deltas in lists if deltas]
    merged: list[Delta] = []
    while waiting:
        chosen = draw(st.integers(0, len(waiting) - 1))
        merged.append(waiting[chosen].pop(0))
        waiting = [deltas for deltas in waiting if deltas]
    return merged


@st.composite
def deltas(draw: st.DrawFn, *, families: bool = False) -> list[Delta]:
    """What a model said, without an end: prose and groups of calls in turn.

    With `families` they are calls of all families. Prose may fall between the pieces of a
    call's arguments, as it does with some models.
    """
    said: list[Delta] = []
    key = 0
    for _ in range(draw(st.integers(0, 3))):
        said += draw(st.lists(prose(), max_size=4))
        if draw(st.booleans()):
            calls = draw(_calls(key, families=families))
            key += len(calls)
            beside = draw(st.lists(prose(), max_size=2))
            said += draw(interleaved([*calls, beside]))
    counted: list[Delta] = [UsageKnown(draw(usages())), TierUsed("flex")]
    for delta in draw(st.lists(st.sampled_from(counted), max_size=2)):
        said.insert(draw(st.integers(0, len(said))), delta)
    return said


@st.composite
def whole_turns(draw: st.DrawFn, *, families: bool = False) -> list[Delta]:
    """Deltas that end in `Stopped`, for whatever reason."""
    reasons: list[StopReason] = ["stop", "stop", "length", "content_filter"]
    return [*draw(deltas(families=families)), Stopped(draw(st.sampled_from(reasons)))]


def broken_turns(*, families: bool = False) -> st.SearchStrategy[list[Delta]]:
    """Deltas that do not end: the model broke off, maybe in the middle of a call."""
    return deltas(families=families)


def turns(*, families: bool = False) -> st.SearchStrategy[list[Delta]]:
    """Any turn, whole or broken."""
    return st.one_of(whole_turns(families=families), broken_turns(families=families))
