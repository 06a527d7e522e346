"""Hypothesis strategies: what a model may do, as lists of deltas.

The lists are what a backend may say by its contract: a key is opened before it grows, and
opened once. What models really do is in them: calls side by side, text after a call whose
arguments are complete or not, no end.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Literal

from hypothesis import strategies as st

from antiphon.protocol.deltas import (
    AnnotationAdded,
    Begins,
    CallClosed,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ItemClosed,
    ItemOpened,
    ItemPassed,
    ItemProgressed,
    NativeState,
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
    "hosted_items",
    "interleaved",
    "passed_items",
    "prose",
    "texts",
    "turns",
    "usages",
    "whole_turns",
]


@cache
def begins() -> st.SearchStrategy[Begins | None]:
    """Whether a text begins a part or an item of its own."""
    return st.sampled_from([None, "part", "item"])


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


_Hosted = tuple[list[ItemProgressed], dict[str, Any]]


@cache
def hosted_items() -> st.SearchStrategy[_Hosted]:
    """A hosted or foreign item, whole, and what its source may report before."""
    return st.one_of(
        _searches("web_search_call", {"action": {"type": "search", "query": "q"}}, {}),
        _searches("file_search_call", {"queries": ["q"]}, {"results": [{"text": "found"}]}),
        _hosted_texts("code_interpreter_call", "code", {"container_id": "c"}, {"outputs": []}),
        _hosted_texts(
            "mcp_call", "arguments", {"server_label": "s", "name": "n"}, {"output": "done"}
        ),
        _previews(),
        st.sampled_from([_LISTED, _UNLISTED, _REQUEST, _FOREIGN]),
    )


_LISTED: _Hosted = (
    [ItemProgressed("", "response.mcp_list_tools.in_progress")],
    {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "n", "input_schema": {}}]},
)
_UNLISTED: _Hosted = (
    [ItemProgressed("", "response.mcp_list_tools.failed")],
    {"type": "mcp_list_tools", "server_label": "s", "tools": [], "error": "no such server"},
)
_REQUEST: _Hosted = (
    [],
    {"type": "mcp_approval_request", "server_label": "s", "name": "n", "arguments": "{}"},
)
_FOREIGN: _Hosted = (
    [ItemProgressed("", "acme:search.looked", {"hits": [1, {"two": 2}]})],
    {"type": "acme:search", "status": "completed", "hits": [1]},
)


def _stages(kind: str, *names: str) -> list[ItemProgressed]:
    return [ItemProgressed("", f"response.{kind}.{name}") for name in names]


@st.composite
def _searches(draw: st.DrawFn, kind: str, asked: dict[str, Any], found: dict[str, Any]) -> _Hosted:
    steps = draw(
        st.sampled_from([[], ["in_progress"], ["searching"], ["in_progress", "searching"]])
    )
    status = draw(st.sampled_from(["completed", "completed", "failed", "incomplete"]))
    return _stages(kind, *steps), {"type": kind, "status": status, **asked, **found}


@st.composite
def _hosted_texts(
    draw: st.DrawFn, kind: str, field: str, asked: dict[str, Any], found: dict[str, Any]
) -> _Hosted:
    text, events = draw(texts()), f"response.{kind}_{field}"
    cut = draw(st.integers(0, len(text)))
    steps = [
        *_stages(kind, *draw(st.sampled_from([[], ["in_progress"]]))),
        *[ItemProgressed("", f"{events}.delta", {"delta": text[:cut]})] * draw(st.integers(0, 1)),
    ]
    if draw(st.booleans()):
        steps.append(ItemProgressed("", f"{events}.done", {field: text}))
    status = draw(st.sampled_from(["completed", "completed", "failed", "incomplete"]))
    return steps, {"type": kind, "status": status, field: text, **asked, **found}


@st.composite
def _previews(draw: st.DrawFn) -> _Hosted:
    kind = "image_generation_call"
    shown = ItemProgressed("", f"response.{kind}.partial_image", {"partial_image_b64": "aGk="})
    steps = [*_stages(kind, "in_progress"), *[shown] * draw(st.integers(0, 2))]
    done = draw(st.sampled_from([("completed", "aGk="), ("failed", "")]))
    return steps, {"type": kind, "status": done[0], "result": done[1]}


@st.composite
def _hosted(draw: st.DrawFn, key: str) -> list[Delta]:
    """A hosted item from its opening to its end, which some sources never report."""
    steps, item = draw(hosted_items())
    told: list[Delta] = [
        ItemOpened(key, item),
        *(ItemProgressed(key, step.event, step.fields) for step in steps),
    ]
    return [*told, ItemClosed(key, item)] if draw(st.integers(0, 5)) else told


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
    attached: st.SearchStrategy[Literal["next", "previous"] | None]
    attached = st.sampled_from([None, "next", "previous"])
    return st.one_of(
        st.builds(TextGrew, texts()),
        st.builds(TextGrew, texts()),
        st.builds(TextGrew, texts(), st.just(({"token": "a", "logprob": -0.5},))),
        st.builds(RefusalGrew, texts()),
        st.builds(TextGrew, texts(), st.just(()), begins(), st.sampled_from([None, "commentary"])),
        st.builds(ReasoningGrew, texts(), begins()),
        st.builds(SummaryGrew, texts(), begins()),
        st.builds(AnnotationAdded, citations()),
        st.builds(ItemPassed, passed_items() | images() | hosted_items().map(lambda one: one[1])),
        st.builds(NativeState, st.just("chat"), st.binary(max_size=3), attached),
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

    With `families` they are calls of all families, and hosted items. Prose may fall between the
    pieces of a call's arguments, as it does with some models.
    """
    said: list[Delta] = []
    key = 0
    for _ in range(draw(st.integers(0, 3))):
        said += draw(st.lists(prose(), max_size=4))
        if draw(st.booleans()):
            calls = draw(_calls(key, families=families))
            key += len(calls)
            if families and draw(st.booleans()):
                calls += [draw(_hosted(f"{key}{name}")) for name in "ab"]
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
