"""Would a bug in the log, the telling or the rebuilding be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to the module's own source. The changed
module handles a handful of streams; the stream itself, the referee or the accumulator objects.
"""

from __future__ import annotations

import types
from typing import Any, Final

import pytest

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallOpened,
    Degraded,
    Delta,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    SummaryGrew,
    TextGrew,
    TierUsed,
    UsageKnown,
)
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import Event, OutputTextDelta, ReasoningTextDelta, ResponseQueued
from antiphon.protocol.items import Item
from antiphon.protocol.machines import log, rebuild, replay
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Response, Usage
from tests.building import COUNTED, STOP, build, counting_mint
from tests.properties.planting import plant
from tests.properties.test_planted_bugs import BUILDER

_NOTE: Final = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
_GONE: Final = Failure("server_restarted", "the server was restarted")
_LOGPROBS: Final = ({"token": "a", "logprob": -0.5},)

TURNS: Final[list[list[Delta]]] = [
    [Degraded("x"), TierUsed("flex"), TextGrew("1"), TextGrew("2"), TextGrew("3"), STOP],
    [UsageKnown(Usage(total_tokens=99)), TextGrew("x"), STOP],
    [
        TextGrew("one ", _LOGPROBS),
        TextGrew("two"),
        AnnotationAdded(_NOTE),
        AnnotationAdded(_NOTE),
        STOP,
    ],
    [ReasoningGrew("a"), ReasoningGrew("b"), TextGrew("c"), RefusalGrew("d"), TextGrew("e"), STOP],
    [SummaryGrew("s"), SummaryGrew("t"), ReasoningGrew("r"), SummaryGrew("u"), STOP],
    [
        TextGrew("x"),
        CallOpened(0, "f", "call_f"),
        CallOpened(1, "g", "call_g"),
        CallGrew(0, '{"a":'),
        CallGrew(1, "{"),
        CallGrew(1, "}"),
        CallGrew(0, "1}"),
        ItemPassed({"type": "acme:search", "hits": [1]}),
        TextGrew("y"),
        COUNTED,
        STOP,
    ],
    [TextGrew("cut"), COUNTED, Stopped("length")],
    [TextGrew("broken "), CallOpened(0, "f", "call_f"), CallGrew(0, '{"a"')],
]

LOG_BUGS: Final[dict[str, tuple[str, str]]] = {
    "a run goes on over a gap": ("or event.sequence_number != due", ""),
    "a run goes on in another place": ("place != common or", "not run or"),
    "a run goes on with another kind": ('attrgetter("__class__", *(', "attrgetter(*("),
    "the first number of a run is lost": (
        "enumerate(run.pieces, run.first)",
        "enumerate(run.pieces)",
    ),
    "logprobs are lost": ("if notes.count([]) != len(notes):", "if False:"),
    "the last run is lost": (
        "    if run:\n        records += _run_records(run)\n    return",
        "    return",
    ),
    "the run before another event is lost": (
        "records += _run_records(run)\n                run, common = [], None\n",
        "run, common = [], None\n",
    ),
    "every event has the output": ("if state.name in _ENDS else []", ""),
    "no event has the output": ("if state.name in _ENDS else []", "if False else []"),
    "the status is that of the stored response": (
        "output=output, **changes",
        "output=output, **(changes | {'status': response.status})",
    ),
    "usage is that of the stored response": (
        "output=output, **changes",
        "output=output, **(changes | {'usage': response.usage})",
    ),
    "notes are those of the stored response": (
        "output=output, **changes",
        "output=output, **(changes | {'antiphon': response.antiphon})",
    ),
    "summary deltas are read as reasoning": (
        'SummaryTextDelta: "summary"',
        'SummaryTextDelta: "reasoning"',
    ),
}
REPLAY_BUGS: Final[dict[str, tuple[str, str]]] = {
    "the delta is missing": (
        'if text:\n        steps.append((f"{events}.delta"',
        'if False:\n        steps.append((f"{events}.delta"',
    ),
    "annotations are not told": ('part.get("annotations") or ()', "()"),
    "annotations are all told at 0": ('"annotation_index": index', '"annotation_index": 0'),
    "a part opens with its text": ("copy_json(part | empty)", "copy_json(part)"),
    "an item opens with its content": ("if not _has_known_shape(item):", "if True:"),
    "sealed content is told at once": (', "encrypted_content"}', "}"),
    "the failure has no error event": ("if end is ResponseFailed and", "if False and"),
    "the first event has the end's usage": (
        "        usage=None,\n        antiphon",
        "        antiphon",
    ),
    "every part is the first": ("{form.index_field: part_index}", "{form.index_field: 0}"),
    "the arguments are not told": ("steps = _call_steps(item)", "steps = []"),
    "summaries are not told": ('("summary", "content")', '("content",)'),
    "logprobs are not told": ('part.get("logprobs") or []', "[]"),
    "an item opens as it is done": (
        "return copy_json(_opening(item)), steps",
        "return item, steps",
    ),
}
REBUILD_BUGS: Final[dict[str, tuple[str, str]]] = {
    "it counts from the start": ("        self._out.sequence += 1", "        pass"),
    "the index starts again": (
        "index, item = self._out.next_index(), event.item",
        "index, item = 0, event.item",
    ),
    "what was said is forgotten": ("part.growing.add(event.delta)", "pass"),
    "arguments are forgotten": ("call.growing.add(event.delta)", "pass"),
    "arguments go to another call": (
        "call = self._open.get(event.output_index)",
        "call = next(iter(self._open.values()), None)",
    ),
    "logprobs are forgotten": ("part.logprobs.extend(", "list("),
    "annotations are forgotten": (
        "part.annotations.append(copy_json(event.annotation))",
        "pass",
    ),
    "done items are forgotten": ("self._out.output.append(copy_json(event.item))", "pass"),
    "a done item stays open": ("            self._prose.open = None", "            pass"),
    "a done call stays open": (
        "if self._open.pop(index, None) is None and",
        "if index not in self._open and",
    ),
    "a text is told whole twice": (
        "self._prose.end_part(prose, part, part.growing.text())",
        "pass",
    ),
    "arguments are told whole twice": (
        "self._mend_call(last.output_index, last.arguments)",
        "pass",
    ),
    "a passed item is never done": ("self._open[str(index)] = OpenItem(", "OpenItem("),
    "the queue is forgotten": ('if last.response.status == "queued":', "if False:"),
    "an error is told twice": ("self._told_failure = Failure(", "Failure("),
    "a closed part is forgotten": (
        "_compare(event.part, prose.end_part(part, part.growing.text()))",
        "prose.part = None",
    ),
    "a done item is sealed again": (
        "self._out.output.append(copy_json(event.item))",
        "sealed = {'encrypted_content': self._prose._seal({}, None)}\n"
        "        self._out.output.append(copy_json(event.item) | (sealed\n"
        "            if event.item['type'] == 'reasoning' else {}))",
    ),
}


def _seal(item: Item, state: NativeState | None) -> str:
    return f"sealed {item.get('id')}"


def _streams() -> list[list[Event]]:
    """Streams that end, break, wait in the queue and are cancelled."""
    streams = [build(turn, seal=_seal) for turn in TURNS]
    builder = ResponseBuilder(_begun(), counting_mint(), seal=_seal)
    queued = builder.start(is_queued=True) + builder.go_on() + builder.feed(TextGrew("x"))
    return [*streams, queued + builder.cancel()]


def _beside_each_other() -> list[Event]:
    """Deltas of two kinds in one place, as they may stand in a damaged log."""
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0, "delta": "x"}
    return [
        ReasoningTextDelta(sequence_number=0, **place),
        OutputTextDelta(sequence_number=1, **place),
    ]


def _begun() -> Response:
    return Response(id="resp_1", model="m", usage=COUNTED.usage)


def _objections_to_log(module: Any) -> list[str]:
    beside = _beside_each_other()
    found = _differs(beside, module.unpack_events(module.pack_events(beside), _begun()))
    for events in _streams():
        response = events[-1].response  # type: ignore[union-attr] # the terminal event
        found += _differs(events, module.unpack_events(module.pack_events(events), response))
        # A batch may lack events that another one holds.
        some = [event for event in events if event.sequence_number != 5]
        found += _differs(some, module.unpack_events(module.pack_events(some), response))
    return found


def _differs(events: list[Event], told: list[Event]) -> list[str]:
    return [] if told == events else ["the log is not what was told"]


def _objections_to_replay(module: Any) -> list[str]:
    found = []
    for events in _streams():
        response = events[-1].response  # type: ignore[union-attr] # the terminal event
        told = module.replay_response(response)
        found += [violation.message for violation in judge_stream(told)]
        found += _accumulate(told)
        if set(map(type, told)) != set(map(type, events)) - {ResponseQueued}:
            found.append("the events are of other types")
        if told[0].response.usage is not None:
            found.append("the beginning knows the usage")
        added = [event.item for event in told if type(event).__name__ == "OutputItemAdded"]
        found += ["sealed too early" for item in added if "encrypted_content" in item]
        if _logprobs(told) != _logprobs(events):
            found.append("logprobs are missing")
    return found


def _logprobs(events: list[Event]) -> list[object]:
    return [note for event in events for note in getattr(event, "logprobs", None) or ()]


def _objections_to_rebuild(module: Any) -> list[str]:
    found = []
    for events in _streams():
        for cut in range(1, len(events)):
            told = events[:cut]
            for end in ("fail", "cancel"):
                builder = module.rebuild(_begun(), told, counting_mint(), seal=_seal)
                rest = builder.fail(_GONE) if end == "fail" else builder.cancel()
                found += [violation.message for violation in judge_stream(told + rest)]
                found += _accumulate(told + rest)
    return found


def _accumulate(events: list[Event]) -> list[str]:
    accumulator = ResponseAccumulator()
    for event in events:
        accumulator.feed(event)
    same = accumulator.finish() == events[-1].response  # type: ignore[union-attr] # the end
    return accumulator.deviations + ([] if same else ["the accumulated response differs"])


_JUDGES: Final[dict[types.ModuleType, Any]] = {
    log: _objections_to_log,
    replay: _objections_to_replay,
    rebuild: _objections_to_rebuild,
}
_BUGS: Final = {log: LOG_BUGS, replay: REPLAY_BUGS, rebuild: REBUILD_BUGS}


# The modules that each of them is made of, in the order of their imports.
_PLANTED: Final[dict[types.ModuleType, tuple[types.ModuleType, ...]]] = {
    log: (log,),
    replay: (*BUILDER, replay),
    rebuild: (rebuild,),
}


@pytest.mark.parametrize("module", _JUDGES, ids=lambda module: module.__name__)
def test_the_module_as_it_is_raises_no_objection(module: types.ModuleType) -> None:
    assert _JUDGES[module](module) == []


@pytest.mark.parametrize(
    ("module", "bug"), [(module, bug) for module, bugs in _BUGS.items() for bug in bugs]
)
def test_a_planted_bug_is_caught(module: types.ModuleType, bug: str) -> None:
    try:
        found = _JUDGES[module](plant(_PLANTED[module], *_BUGS[module][bug]))
    except (KeyError, IndexError, AttributeError, TypeError, AntiphonError) as crash:
        found = [f"it crashes: {crash!r}"]
    assert found
