"""Would a bug in the builder be seen? Each planted one must be.

Every bug is a small change to the builder's own source, as somebody might make it by mistake.
The changed builder plays a handful of turns; the referee, or the round trip through bytes and
accumulator, has to object. A change that no longer applies fails too, so the list stays true.
"""

from __future__ import annotations

from typing import Final

import pytest

from antiphon.protocol.codec import decode_event, encode_sse, response_object
from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallGrew,
    CallMade,
    CallOpened,
    Delta,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    SummaryGrew,
    TextGrew,
)
from antiphon.protocol.events import (
    Event,
    OutputTextDelta,
    ResponseCompleted,
    ResponseFailed,
    ResponseIncomplete,
)
from antiphon.protocol.families import FAMILIES, call_family, is_call, payload_of
from antiphon.protocol.items import Item
from antiphon.protocol.machines import builder as original
from antiphon.protocol.machines import (
    call_writer,
    event_writer,
    hosted_items,
    open_items,
    prose_writer,
    whole_items,
)
from antiphon.protocol.machines.accumulator import ResponseAccumulator
from antiphon.protocol.machines.referee import judge_stream
from antiphon.protocol.sse import SseDecoder
from tests.building import COUNTED, STOP, Builder, build
from tests.properties.planting import plant

BUILDER: Final = (
    open_items,
    hosted_items,
    whole_items,
    event_writer,
    prose_writer,
    call_writer,
    original,
)

_NOTE: Final = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}

TURNS: Final[list[list[Delta]]] = [
    [TextGrew("one "), TextGrew("two"), AnnotationAdded(_NOTE), COUNTED, STOP],
    [ReasoningGrew("a"), ReasoningGrew("b"), TextGrew("c"), RefusalGrew("d"), COUNTED, STOP],
    [SummaryGrew("s"), TextGrew("t"), ReasoningGrew("r"), TextGrew("u"), COUNTED, STOP],
    [
        TextGrew("x"),
        CallOpened(0, "f", "call_f"),
        CallOpened(1, "g", "call_g"),
        CallGrew(0, '{"a":'),
        CallGrew(1, "{"),
        CallGrew(0, "1}"),
        CallGrew(1, "}"),
        TextGrew("y"),
        COUNTED,
        STOP,
    ],
    [
        TextGrew("x"),
        CallOpened(0, "f", "call_f"),
        CallGrew(0, "{"),
        CallMade("c", "text", "call_c", "custom", "n"),
        CallMade("shell", '{"commands":["ls"]}', "call_s", "shell"),
        CallMade("d", "", "call_d", "custom"),
        CallGrew(0, "}"),
        TextGrew("y"),
        CallMade("c", "12", "call_e", "custom"),
        COUNTED,
        STOP,
    ],
    [TextGrew("cut"), COUNTED, Stopped("length")],
    [TextGrew("broken "), CallOpened(0, "f", "call_f"), CallGrew(0, '{"a"')],
]

BUGS: Final[dict[str, tuple[str, str]]] = {
    "wrong index: every item at 0": ("return self.indexes - 1", "return 0"),
    "wrong index: one too high": ("return self.indexes - 1", "return self.indexes"),
    "content_index goes on in the next item": (
        "OpenPart(kind, len(siblings), self.id",
        "OpenPart(kind, len(siblings) + self.index, self.id",
    ),
    "done without added": (
        'self._out.add_item(prose.index, prose.item("in_progress"))',
        "pass",
    ),
    "a call is done without having been added": (
        "self._out.add_item(call.index, call.opening(said))",
        "pass",
    ),
    "the added item is the one that changes later": (
        'base: Item = {"id": self.id, "type": self.kind, "status": status}',
        'base = self.__dict__.setdefault("alias", {})\n'
        '        base.update({"id": self.id, "type": self.kind, "status": status})\n'
        '        base.update(role="assistant", content=self.content)\n'
        "        return base",
    ),
    "the first response shares its output with the last": (
        "output = copy_json(self.output) if self.output else []",
        "output = self.output",
    ),
    "calls close in the wrong order": (
        "for key in list(self._open):",
        "for key in reversed(list(self._open)):",
    ),
    "a message opens beside open calls": (
        "if self._open and not self._end_whole_calls():",
        "if False:",
    ),
    "text is dropped from the whole": ("part.growing.add(text)\n        logprobs", "logprobs"),
    "text is told twice": (
        "part.growing.add(text)\n        logprobs",
        "part.growing.add(text * 2)\n        logprobs",
    ),
    "arguments are dropped": ("call.growing.add(text)", "pass"),
    "the items are missing from the final output": ("self.output.append(item)", "pass"),
    "the message is missing from the final output": (
        "self._out.end_item(prose.index, item)",
        "from antiphon.protocol.events import OutputItemDone\n"
        "        self._out.emit(OutputItemDone(\n"
        "            sequence_number=self._out.sequence, output_index=prose.index, item=item\n"
        "        ))",
    ),
    "the id changes between added and done": (
        "self._out.end_item(call.index, call.item(status, said))",
        'self._out.end_item(call.index, call.item(status, said) | {"id": self._mint("fc")})',
    ),
    "the call id changes between added and done": (
        "self._out.end_item(call.index, call.item(status, said))",
        'self._out.end_item(call.index, call.item(status, said) | {"call_id": "call_other"})',
    ),
    "deltas speak of another item": ("item_id=prose.id,", 'item_id="msg_other",'),
    "an item is told twice": (
        "self.output.append(item)",
        "self.output.extend([item] * 2)",
    ),
    "a call is done twice": (
        "self._out.end_item(call.index, call.item(status, said))",
        "[self._out.end_item(call.index, call.item(status, said)) for _ in range(2)]",
    ),
    "two calls share an id": (
        'call_id = self.ids.claim((wished or self._mint("call"))[:MAX_CALL_ID])',
        'call_id = wished or self._mint("call")',
    ),
    "interleaved calls mix their arguments": (
        "call = self._open.get(delta.key)\n        if not isinstance(call, OpenCall):\n"
        "            if delta.arg",
        "call = next(iter(self._open.values()), None)\n"
        "        if not isinstance(call, OpenCall):\n            if delta.arg",
    ),
    "output_text.done is never sent": (
        "self._out.emit(part.form.text_done(sequence_number=self._out.sequence, **fields))",
        "pass",
    ),
    "arguments.done is never sent": (
        "self._out.emit(ArgumentsDone(arguments=said, name=call.name, **place))",
        "pass",
    ),
    "a sequence number is used twice": (
        "self.events.append(event)\n        self.sequence += 1",
        "self.events.append(event)\n        self.sequence += not isinstance(event, OutputItemDone)",
    ),
    "length is reported as completed": (
        "reason = _WHY_INCOMPLETE.get(self.stop)\n        if reason is None:",
        'reason = _WHY_INCOMPLETE.get(self.stop) or ""\n        if True:',
    ),
    "a failure is told without its error event": (
        'self._out.announce(self._response, ResponseFailed, "failed")',
        "return self._out.take()",
    ),
    "usage is missing from the end": (
        "response, status=status, output=output",
        "response, status=status, output=output, usage=None",
    ),
    "the end comes twice": (
        'self._out.announce(self._response, ResponseCompleted, "completed")',
        '[self._out.announce(self._response, ResponseCompleted, "completed") for _ in "12"]',
    ),
    "a reasoning item is closed as a message": (
        'base["summary"] = copy_json(self.parts["summary"])',
        'base["type"] = "message"; base["summary"] = copy_json(self.parts["summary"])',
    ),
    "the input of a custom call is never grown": (
        "self._out.emit(CustomInputDelta(delta=text, **place))",
        "pass",
    ),
    "the input of a custom call is never told whole": (
        "self._out.emit(CustomInputDone(input=said, **place))",
        "pass",
    ),
    "a call that is made overtakes the one before it": (
        "self._end_call(CallClosed(-self._made))",
        'self._close_open(-self._made, "completed")',
    ),
    "a call that is made stands in the text": (
        "self._prose.close()\n        self._made += 1\n        call",
        "self._made += 1\n        call",
    ),
    "a namespace is lost": ("delta.name, delta.kind, delta.namespace", "delta.name, delta.kind"),
    "a call is of the wrong kind": (
        "delta.name, delta.kind, delta.namespace",
        'delta.name, "custom", delta.namespace',
    ),
    "what a shell is to do is lost": (
        "return payload_of(self.kind, said) or copy_json(FAMILIES[self.kind].empty)",
        "return copy_json(FAMILIES[self.kind].empty)",
    ),
    "annotations are lost": ("part.annotations.append(copy_json(annotation))", "pass"),
}


def objections(builder: Builder) -> list[str]:
    """Return everything that referee and round trip have against a builder."""
    found: list[str] = []
    twice: list[Delta] = [CallOpened(0, "f", "c"), CallOpened(1, "f", "c"), COUNTED, STOP]
    for turn in [*TURNS, twice]:
        events = build(turn, builder=builder)
        found += [f"{violation.rule}: {violation.message}" for violation in judge_stream(events)]
        found += _round_trip(events)
        found += _compare(turn, events)
    return found


def _compare(turn: list[Delta], events: list[Event]) -> list[str]:
    """Hold what the events say against what the model meant."""
    meant = "".join(delta.text for delta in turn if isinstance(delta, TextGrew))
    said = "".join(event.delta for event in events if isinstance(event, OutputTextDelta))
    found = [] if said == meant else ["the text is not what the model said"]
    last = events[-1]
    if isinstance(last, ResponseCompleted):
        meant_calls = [_meant(turn, d) for d in turn if isinstance(d, CallOpened | CallMade)]
        told = [_told(item) for item in last.response.output if is_call(item)]
        found += [] if told == meant_calls else [f"the calls are {told}, not {meant_calls}"]
    return found


def _meant(turn: list[Delta], call: CallOpened | CallMade) -> tuple[object, ...]:
    if isinstance(call, CallMade):
        said: object = call.said
    else:
        grown = [d.arguments for d in turn if isinstance(d, CallGrew) and d.key == call.key]
        said = "".join(grown) or "{}"
    if call.kind == "shell":
        said = payload_of("shell", str(said))
    return FAMILIES[call.kind].call, call.namespace, said


def _told(item: Item) -> tuple[object, ...]:
    family = call_family(item)
    assert family is not None
    return item["type"], item.get("namespace"), item[family.payload]


def _round_trip(events: list[Event]) -> list[str]:
    accumulator = ResponseAccumulator()
    decoder = SseDecoder()
    for frame in decoder.feed(b"".join(encode_sse(event) for event in events)):
        accumulator.feed(decode_event(frame.data))
    last = events[-1]
    if not isinstance(last, ResponseCompleted | ResponseFailed | ResponseIncomplete):
        return ["no terminal event"]
    same = response_object(accumulator.finish()) == response_object(last.response)
    return accumulator.deviations + ([] if same else ["the accumulated response differs"])


def _plant(old: str, new: str) -> Builder:
    """Return the builder with this change, made in one of its modules."""
    builder: Builder = plant(BUILDER, old, new).ResponseBuilder
    return builder


def test_the_builder_as_it_is_raises_no_objection() -> None:
    assert objections(original.ResponseBuilder) == []


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    try:
        found = objections(_plant(*BUGS[bug]))
    except (KeyError, IndexError, AttributeError) as crash:
        found = [f"it crashes: {crash!r}"]
    assert found
