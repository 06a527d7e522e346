"""Would a bug of the chat door be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to the source of a module. A few turns are
written by the changed encoder and held against their responses by OpenAI's accumulator.
"""

from __future__ import annotations

from typing import Any, Final

import openai
import pytest

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
    SummaryGrew,
    TextGrew,
)
from antiphon.protocol.events import Event
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.response import Response
from antiphon.wires.chat import completion, encode
from tests.building import COUNTED, build, counting_mint
from tests.properties.planting import plant
from tests.properties.test_chat_door import check_stream, sealed
from tests.properties.test_chat_door import encode as encode_all

_NOTE: Final = {
    "type": "url_citation",
    "url": "u",
    "title": "t",
    "start_index": 0,
    "end_index": 1,
}
_IMAGE: Final = {"type": "image_generation_call", "status": "completed", "result": "QQ=="}
_MIXED: Final[list[Delta]] = [
    ReasoningGrew("one"),
    SummaryGrew("two"),
    TextGrew("a"),
    TextGrew("b"),
    AnnotationAdded(_NOTE),
    CallOpened(0, "f", call_id="c0"),
    CallOpened(1, "g", call_id="c1"),
    CallGrew(0, "{"),
    CallGrew(1, '{"x":'),
    CallGrew(0, "}"),
    CallGrew(1, "1}"),
    CallClosed(0),
    CallClosed(1),
    CallMade("run", "ls", kind="custom"),
    ReasoningGrew("three"),
    TextGrew("c"),
    AnnotationAdded(_NOTE),
    AnnotationAdded(_NOTE),
    ItemPassed(_IMAGE),
    ItemPassed(_IMAGE),
    RefusalGrew("no"),
    ItemPassed(_IMAGE),
    RefusalGrew("never"),
    TextGrew("d"),
]


def _cancelled() -> list[Event]:
    builder = ResponseBuilder(Response(id="resp_1", usage=COUNTED.usage), counting_mint())
    return [*builder.start(), *builder.feed(TextGrew("a")), *builder.cancel()]


STREAMS: Final[list[list[Event]]] = [
    build([*_MIXED, Stopped("stop")], seal=sealed),
    build([*_MIXED, Stopped("length")], seal=sealed),
    build([TextGrew("a"), Stopped("content_filter")]),
    build([TextGrew("a"), Stopped("stop")]),
    build([TextGrew("a")]),
    _cancelled(),
]
BUGS: Final = [
    ("BETWEEN + text if self._has_text else text", "text"),
    ("BETWEEN + text if self._has_refusal else text", "text"),
    ("BETWEEN + text if self._has_thought else text", "text"),
    ("event.output_index == self._text_index", "True"),
    ("place != self._thought", "self._thought is None"),
    ("item, index = event.item, len(self._calls)", "item, index = event.item, 0"),
    ("self._calls.get(event.output_index)", "next(iter(self._calls.values()), None)"),
    ('kind, field = "custom", "input"', 'kind, field = "custom", "arguments"'),
    ('DONE if self._is_done else b""', "DONE"),
    ('DONE if self._is_done else b""', 'b""'),
    ('response.status == "cancelled"', "False"),
    ("return self._fail(event.response)", 'return b""'),
    ("self._detail_count += 1", "pass"),
    ("self._note_count += 1", "pass"),
    ("self._image_count += 1", "pass"),
    ("self._places.end_message()", "pass"),
    ("self._places.begin_message()", "pass"),
    ("self._places.end_part(event.text)", "pass"),
    (
        'return self._frame({**last, "usage": None}) + self._frame(usage)',
        "return self._frame(last)",
    ),
    ("elif is_sealed(item):", "elif False:"),
    ("AnnotationEvent: ChatEncoder._write_note,", ""),
    ("RefusalDelta: ChatEncoder._write_refusal,", ""),
    ("SummaryTextDelta: ChatEncoder._write_reasoning,", ""),
    ("CustomInputDelta: ChatEncoder._grow_call,", ""),
    ("if not has_calls:", "if True:"),
    ('"content_filter" if is_filter else "length"', '"length"'),
    ("fields[name] += offset", "pass"),
]


def check(make: Any) -> None:
    for events in STREAMS:
        check_stream(events, encode_all(events, [3, 5], make, has_usage=True), [7, 99])


def test_without_a_bug_all_streams_are_right() -> None:
    check(encode.ChatEncoder)


@pytest.mark.parametrize(("old", "new"), BUGS)
def test_a_bug_of_the_encoder_is_seen(old: str, new: str) -> None:
    broken = plant([completion, encode], old, new)

    with pytest.raises((AssertionError, pytest.fail.Exception, openai.APIError, LookupError)):
        check(broken.ChatEncoder)
