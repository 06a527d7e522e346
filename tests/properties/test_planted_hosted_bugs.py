"""Would a bug in how hosted and foreign items are handled be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to a module's own source. The bugs are in
the builder, the accumulator, the referee, the log and the rebuilding; for each of them another
machine, or the list of bad streams, has to object.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final

import pytest

from antiphon.protocol.codec import decode_event, encode_event, read_event
from antiphon.protocol.deltas import (
    CallGrew,
    CallOpened,
    Delta,
    ItemClosed,
    ItemOpened,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    TextGrew,
)
from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.events import Event, OutputItemDone, PartialImage, event_type
from antiphon.protocol.items import Item
from antiphon.protocol.machines import (
    accumulator,
    grammar,
    item_index,
    judged_shell,
    log,
    partial_items,
    rebuild,
    referee,
)
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.response import Failure, Response
from tests.building import COUNTED, STOP, build, counting_mint
from tests.properties.planting import plant
from tests.properties.test_planted_bugs import BUILDER
from tests.protocol.machines.test_hosted_items import (
    CODE,
    IMAGE,
    INVALID,
    MCP,
    SEQUENCES,
    WEB,
    final,
    hosted,
    stage,
)
from tests.protocol.machines.test_referee import BROKEN, GOOD

_GONE: Final = Failure("server_restarted", "the server was restarted")
_PREVIEW: Final = stage("image_generation_call.partial_image", partial_image_b64="AA")
_FAILED: Final = SEQUENCES["failed mcp call"][0]
_PASSED: Final[list[list[Delta]]] = [[ItemPassed(item)] for item, _ in SEQUENCES.values()]
_TURNS: Final[list[list[Delta]]] = [
    *(hosted(item) for item, _ in SEQUENCES.values()),
    *_PASSED,
    hosted(CODE, stage("code_interpreter_call_code.delta", delta="pri"), TextGrew("after")),
    hosted(MCP, stage("mcp_call_arguments.delta", delta='{"a'), stage("mcp_call.in_progress")),
    hosted(IMAGE, _PREVIEW, _PREVIEW),
    hosted(WEB, stage("acme:looked", hits=[1])),
    [ItemOpened("a", WEB), ItemOpened("b", MCP), ItemClosed("b", MCP), ItemClosed("a", WEB)],
    [TextGrew("a"), *hosted(WEB)],
    [ItemOpened("k", MCP), stage("mcp_call.completed"), ItemClosed("k", _FAILED)],
    [CallOpened(0, "f", "c"), CallGrew(0, "{}"), *hosted(MCP)],
    [ReasoningGrew("a"), NativeState("w", b"s"), ReasoningGrew("b"), NativeState("w", b"t")],
    [TextGrew("a"), NativeState("w", b"s", "previous"), TextGrew("b")],
]

BUILDER_BUGS: Final[dict[str, tuple[str, str]]] = {
    "a stage is left out": ("self._reached += 1", "self._reached += 2"),
    "a stage is repeated": ("while self._reached < count:", "for _ in range(count):"),
    "the text is not final before the next stage": ("if self._reached == 1:", "if False:"),
    "the text is never final": ("steps += self._finish_text()\n", "pass\n"),
    "the rest of the text is lost": (
        "steps += self._grow_by(self._rest_of(final[form.text]))",
        "pass",
    ),
    "the text is not kept": ("self._growing.add(text)\n", "pass\n"),
    "results are shown at the opening": (
        "if name not in form.late}",
        "if True}",
    ),
    "code is shown at the opening": ('opening={"code": "", "outputs": None}', "opening={}"),
    "an item opens with its last status": ('{"status": _RUNNING} if form', "{} if form"),
    "a failed call is completed": ('failed="failed",\n    ),\n    "mcp_list', '),\n    "mcp_list'),
    "a failure has no event": ("if status == form.failed and", "if False and"),
    "an unfinished item is completed": (
        '"failed" if self._has_failed else "incomplete"',
        '"completed"',
    ),
    "an unfinished image has no result": (
        '{"status": "failed", "result": ""}',
        '{"status": "failed"}',
    ),
    "an unfinished list has no error": ('item["error"] = _UNFINISHED', "pass"),
    "an end that is none is taken": ("status not in form.ends", "False"),
    "another text than was streamed is taken": ("or not is_told:", "or False:"),
    "a request may change": ("if self.kind in _UNCHANGED and", "if False and"),
    "the event of another type is taken": ("if event in EVENT_CLASSES:", "if False:"),
    "previews are all the first": ("self._previews += 1\n        return", "return"),
    "fields of an unknown event are lost": ("[(event, copy_json(fields))]", "[(event, {})]"),
    "the last stage comes early": (
        "steps = [] if is_last else self._reach",
        "steps = self._reach",
    ),
    "an item overtakes the one before it": ("self._end_first()", "self._end_calls()"),
    "an item is never done": ("self._out.end_item(item.index, final)", "pass"),
    "an item that was never closed is completed": ("self._require_closed()", "pass"),
    "prose stands beside an open item": (
        "self._prose.close()\n        item = OpenItem",
        "item = OpenItem",
    ),
    "the calls of a round stay open": (
        "item.is_whole = True\n        self._end_first",
        "pass\n        self._end_first",
    ),
    "a key stands for calls of two rounds": ("key = -self._made", "pass"),
    "the prose of two rounds is joined": ("self._held.append(None)", "pass"),
    "an item gets another id at its end": ('"id": self.id}', '"id": "other"}'),
    "a shell opens with its commands": (
        'opening["action"] = _with_commands(opening, [])',
        "pass",
    ),
    "the commands of a shell are not shown": ("enumerate(self._commands)", "enumerate(())"),
    "all commands of a shell are the first": (
        'place = {"command_index": index}\n            steps.append((f"{_COMMAND}.added"',
        'place = {"command_index": 0}\n            steps.append((f"{_COMMAND}.added"',
    ),
    "what a shell printed is not shown": ("steps += _printed(final)", "pass"),
    "errors of a shell are not shown": (
        'for stream in ("stdout", "stderr"):',
        'for stream in ("stdout",):',
    ),
    "a shell that was cut has no commands": (
        'item["action"] = _with_commands(item, self._commands)',
        "pass",
    ),
    "state does not end its thought": (
        "self.close(state=state)\n",
        "pass\n",
    ),
    "state is lost": (
        "item |= self._seal_item(item, state)",
        "item |= self._seal_item(item, None)",
    ),
    "state alone is lost": ("if item.id in self.states:", "if False:"),
}
ACCUMULATOR_BUGS: Final[dict[str, tuple[str, str]]] = {
    "stages are not known": ("get_args(StageEvent)", "()"),
    "a stage counts for an item of another type": ("or draft.kind != kind", ""),
    "a stage changes nothing": ('self.added["status"] = stage', "pass"),
    "a preview is a stage": (' and stage != "partial_image"', ""),
    "a list of tools gets a status": ("if self.kind in _HOSTED and stage", "if stage"),
    "an item that was never done ends as the response": (
        'self._end = stage if stage in _OVER else "incomplete"',
        "self._end = status",
    ),
    "an image that was never received is completed": (
        'self._end = "failed"',
        "self._end = status",
    ),
    "code is put nowhere": ("get_args(TextDelta | CallDelta)", "get_args(TextDelta)"),
    "code goes to the arguments": (
        'TextChannel("code", "code_interpreter_call"',
        'TextChannel("arguments", "mcp_call"',
    ),
    "the final code is not compared": ("get_args(TextDone | CallDone)", "get_args(TextDone)"),
    "an empty end takes the code away": ('"input", "code")', '"input")'),
}
REFEREE_BUGS: Final[dict[str, tuple[str, str]]] = {
    "stages are not judged": ("get_args(StageEvent)", "()"),
    "any order will do": ("STAGES[kind][stage] == item.stage", "True"),
    "a stage stays": ("            item.stage = stage\n", "            pass\n"),
    "text may come at any time": (
        'is_due = item.kind not in HOSTED_TEXTS or item.stage == "in_progress"',
        "is_due = True",
    ),
    "previews may have any index": (
        'self._require(index == due, "preview',
        'self._require(True, "preview',
    ),
    "any end will do": ("self._check_hosted(item, event.item)", "pass"),
    "a completed item needs no stage": (
        '"completed": item.stage == "completed"',
        '"completed": True',
    ),
    "a failure needs no event": ("not can_fail or item.stage", "True or item.stage"),
    "a failed item may be incomplete": (
        '.get(str(status), item.stage != "failed")',
        ".get(str(status), True)",
    ),
    "a list with an error needs no event": (
        '"lost": item.stage in',
        '"lost": True or item.stage in',
    ),
    "a request may change": ("self._require(told == item.added,", "self._require(True,"),
    "a status in between is an end": (
        'elif kind in STAGES and kind != "mcp_list_tools":',
        "elif False:",
    ),
    "an item may open with its output": ('"output": None, "error": None}', "}"),
    "reasoning may open sealed": (', "encrypted_content": None}', "}"),
    "code may change at the end": ('("arguments", "input", "code")', '("arguments", "input")'),
    "a shell may end as anything": ("why = item.shell.judge_end(told)", 'why = ""'),
    "a shell may open with commands": (
        "self._require(not commands_of(item),",
        "self._require(True,",
    ),
    "a shell may end with other commands": (
        "is_equal = commands == self._commands",
        "is_equal = True",
    ),
    "a shell may end with another output": (
        'is_equal = told.get("output") == self._outputs',
        "is_equal = True",
    ),
    "commands may have any index": ("if index != len(done):", "if False:"),
    "a command may differ from its deltas": ("if told == grown else", "if True else"),
    "an output may differ from its deltas": ("if told == printed else", "if True else"),
    "commands may come in any order": ('if is_open == (step == "added"):', "if False:"),
    "events of a shell may be in any item": (
        "if (kind, family) not in",
        "if False and (kind, family) not in",
    ),
    "unknown events may name any item": ("UnknownEvent: Referee._check_stranger,", ""),
    "arguments of a call are those of an MCP call": (
        'Voice("arguments", "mcp_call"',
        'Voice("arguments", "arguments"',
    ),
}
LOG_BUGS: Final[dict[str, tuple[str, str]]] = {
    "code is read as arguments": ('CodeDelta: "code"', 'CodeDelta: "mcp_arguments"'),
    "arguments of an MCP call are those of a call": (
        'McpArgumentsDelta: "mcp_arguments"',
        'McpArgumentsDelta: "arguments"',
    ),
    "fields of unknown events are lost": (
        "_UnknownRecord(event.type, event.fields)",
        "_UnknownRecord(event.type, {})",
    ),
}
REBUILD_BUGS: Final[dict[str, tuple[str, str]]] = {
    "progress is forgotten": ("item.recall(event_type(event), fields)", "pass"),
    "an item is forgotten": ("self._open[str(index)] = OpenItem(", "OpenItem("),
    "a done item stays open": ("self._open.pop(str(index), None) is None", "True"),
    "code is forgotten": ("| CodeDelta | CodeDone |", "|"),
    "unknown events are refused": ("McpArgumentsDone | UnknownEvent", "McpArgumentsDone"),
    "arguments are forgotten": ("| McpArgumentsDelta | McpArgumentsDone |", "|"),
}
RECALL_BUGS: Final[dict[str, tuple[str, str]]] = {
    "the text is final too early": ('self._is_text_done = stage == "done"', "pass"),
    "the text starts again": ('self._growing.add(fields.get("delta", ""))', "pass"),
    "a failure is forgotten": ("self._has_failed = True", "pass"),
    "what a shell printed is forgotten": ('self._outputs += fields.get("output") or ()', "pass"),
    "commands are forgotten": ('self._commands.append(str(fields.get("command")))', "pass"),
    "the stages start again": ("self._reached = form.stages.index(stage) + 1", "pass"),
}


def _seal(item: Item, state: NativeState | None) -> str:
    return f"{state.data!r}" if state else ""


def _streams(builder: Any = ResponseBuilder) -> list[list[Event]]:
    return [build([*turn, COUNTED, STOP], seal=_seal, builder=builder) for turn in _TURNS]


def _objections_to_builder(module: Any) -> list[str]:
    found: list[str] = []
    for turn, events in zip(_TURNS, _streams(module.ResponseBuilder), strict=True):
        found += [violation.message for violation in judge_stream(events)]
        found += _accumulate(ResponseAccumulator, events)
        found += _compare_meaning(turn, events)
    builder = module.ResponseBuilder(Response(id="r", usage=COUNTED.usage), counting_mint())
    two = builder.start()
    call = [CallOpened(0, "f"), CallGrew(0, "{")]
    two += builder.feed_all([ItemOpened("k", WEB), *call, TextGrew("a")]) + builder.next_round()
    two += builder.feed_all([TextGrew("b"), *call]) + builder.next_round()
    two += builder.feed(ItemClosed("k", WEB))
    found += [] if len(builder.output) >= 4 else ["what a round wrote stays open"]
    two += builder.feed(STOP) + builder.finish(7)
    found += [violation.message for violation in judge_stream(two)]
    found += [] if len(final(two).output) == 5 else ["two rounds are not told apart"]
    for turn in INVALID.values():
        events = build([*turn, COUNTED, STOP], builder=module.ResponseBuilder)
        found += [violation.message for violation in judge_stream(events)]
        found += [] if final(events).error else ["what is invalid was taken"]
    for item, _ in SEQUENCES.values():
        events = build([ItemOpened("k", item)], builder=module.ResponseBuilder)
        found += [violation.message for violation in judge_stream(events)]
        early = [event for event in events if event_type(event).endswith("completed")]
        found += [f"{event_type(event)} of an item without an end" for event in early]
    return found


def _compare_meaning(turn: list[Delta], events: list[Event]) -> list[str]:
    """Hold what the stream says against what was reported."""
    ends = [delta.item for delta in turn if isinstance(delta, ItemClosed | ItemPassed)]
    ends.sort(key=lambda item: item["type"])
    told = [event.item for event in events if isinstance(event, OutputItemDone)]
    own = ("message", "reasoning", "function_call")
    others = [{**item, "id": None} for item in told if item["type"] not in own]
    others.sort(key=lambda item: item["type"])
    found = [] if others == [{**item, "id": None} for item in ends] else ["an end is not as told"]
    previews = sum(isinstance(event, PartialImage) for event in events)
    found += [] if previews == turn.count(_PREVIEW) else ["previews are missing"]
    strange = [event for event in events if event_type(event) == "response.acme:looked"]
    is_kept = all(event.fields["hits"] == [1] for event in strange)  # type: ignore[union-attr] # unknown
    found += [] if is_kept else ["an unknown event lost its fields"]
    meant = [repr(delta.data) for delta in turn if isinstance(delta, NativeState)]
    sealed = [item["encrypted_content"] for item in told if "encrypted_content" in item]
    return found + ([] if sealed == meant else ["state is lost"])


def _objections_to_accumulator(module: Any) -> list[str]:
    found: list[str] = _compare_damaged(module.ResponseAccumulator)
    for events in _streams():
        found += _accumulate(module.ResponseAccumulator, events)
        # Without its end, an item is what its events said.
        cut: list[Event] = [event for event in events if not isinstance(event, OutputItemDone)]
        found += _compare_ends(module.ResponseAccumulator, cut)
        found += _compare_progress(module.ResponseAccumulator, events)
    return found


def _compare_ends(machine: Callable[[], Any], events: list[Event]) -> list[str]:
    collected, expected = machine(), ResponseAccumulator()
    last = events[-1]
    empty = Response(id="resp_1", status="completed", output=[], usage=COUNTED.usage)
    for each in (collected, expected):
        each.feed_all([*events[:-1], type(last)(sequence_number=len(events), response=empty)])  # type: ignore[call-arg] # a terminal event
    same = collected.finish() == expected.finish()
    return [] if same else ["an item that was never done ends in another way"]


def _compare_progress(machine: Callable[[], Any], events: list[Event]) -> list[str]:
    """Hold the response after each event against what the original says."""
    collected, expected = machine(), ResponseAccumulator()
    for event in events:
        collected.feed(event)
        expected.feed(event)
        if collected.response != expected.response:
            return [f"after {event_type(event)} the response is another"]
    return []


def _compare_damaged(machine: Callable[[], Any]) -> list[str]:
    """Hold what becomes of a damaged stream against what the original makes of it."""
    found = []
    place = {"item_id": "m", "output_index": 0}
    for item, texts in ((CODE, "code_interpreter_call_code"), (MCP, "mcp_call_arguments")):
        field = texts.rpartition("_")[2]
        added = {"item": {**item, "id": "m", field: "", "status": "in_progress"}}
        damaged: list[dict[str, Any]] = [
            {"type": "response.created", "response": {"id": "resp_1"}},
            {"type": "response.output_item.added", "output_index": 0, **added},
            {"type": "response.web_search_call.searching", **place},
            {"type": f"response.{texts}.delta", "delta": "pri", **place},
            {"type": f"response.{texts}.done", field: "print", **place},
            {"type": "response.output_item.done", "output_index": 0, **added},
            {"type": "response.completed", "response": {"id": "resp_1", "status": "completed"}},
        ]
        collected, expected = machine(), ResponseAccumulator()
        for number, fields in enumerate(damaged):
            event = read_event({"sequence_number": number, **fields})
            found += [] if collected.feed(event) == expected.feed(event) else ["it counts"]
        same = collected.finish() == expected.finish()
        found += [] if same else ["a damaged item is put together in another way"]
        found += [] if collected.deviations == expected.deviations else ["damage is not noted"]
    return found


def _objections_to_referee(module: Any) -> list[str]:
    found = [str(found) for events in GOOD.values() for found in module.judge_stream(events)]
    for rule, events in BROKEN:
        rules = {violation.rule for violation in module.judge_stream(events)}
        found += [] if rules == {rule} else [f"{rule} is not seen, or not alone"]
    return found


def _objections_to_log(module: Any) -> list[str]:
    found = []
    for events in _streams():
        told = module.unpack_events(module.pack_events(events), final(events))
        found += [] if told == events else ["the log is not what was told"]
    return found


def _objections_to_rebuild(module: Any) -> list[str]:
    found: list[str] = []
    for events in _streams():
        for cut in range(1, len(events)):
            begun = Response(id="resp_1", usage=COUNTED.usage)
            builder = module.rebuild(begun, events[:cut], counting_mint(), seal=_seal)
            whole = events[:cut] + builder.fail(_GONE)
            found += [violation.message for violation in judge_stream(whole)]
            found += _accumulate(ResponseAccumulator, whole)
    return found


def _accumulate(machine: Callable[[], Any], events: list[Event]) -> list[str]:
    collected = machine()
    for event in events:
        collected.feed(decode_event(encode_event(event)))
    same = collected.finish() == final(events)
    return [*collected.deviations, *([] if same else ["the accumulated response differs"])]


_Case = tuple[tuple[types.ModuleType, ...], Callable[[Any], list[str]], dict[str, tuple[str, str]]]
_CASES: Final[dict[str, _Case]] = {
    "builder": (BUILDER, _objections_to_builder, BUILDER_BUGS),
    "accumulator": (
        (partial_items, item_index, accumulator),
        _objections_to_accumulator,
        ACCUMULATOR_BUGS,
    ),
    "referee": ((grammar, judged_shell, referee), _objections_to_referee, REFEREE_BUGS),
    "log": ((log,), _objections_to_log, LOG_BUGS),
    "rebuild": ((rebuild,), _objections_to_rebuild, REBUILD_BUGS),
    "recalled items": ((*BUILDER, rebuild), _objections_to_rebuild, RECALL_BUGS),
}


@pytest.mark.parametrize("case", _CASES)
def test_the_machine_as_it_is_raises_no_objection(case: str) -> None:
    modules, judge, _ = _CASES[case]
    assert judge(modules[-1]) == []


@pytest.mark.parametrize(
    ("case", "bug"), [(case, bug) for case in _CASES for bug in _CASES[case][2]]
)
def test_a_planted_bug_is_caught(case: str, bug: str) -> None:
    modules, judge, bugs = _CASES[case]
    try:
        found = judge(plant(modules, *bugs[bug]))
    except (
        LookupError,
        AttributeError,
        TypeError,
        ValueError,
        AssertionError,
        AntiphonError,
    ) as crash:
        assert "no longer applies" not in str(crash), bug
        found = [f"it crashes: {crash!r}"]
    assert found
