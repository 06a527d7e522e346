"""Would a bug of the Messages door be seen? Each planted one must be.

As in `test_planted_bugs`, every bug is a small change to the source of a module. A few turns are
written by the changed encoder and held against their responses by Anthropic's accumulator, or
read by the changed reader and held against what they were made of.
"""

from __future__ import annotations

from typing import Any, Final

import anthropic
import pytest

from antiphon.protocol.deltas import (
    AnnotationAdded,
    CallClosed,
    CallGrew,
    CallOpened,
    Delta,
    ItemPassed,
    NativeState,
    ReasoningGrew,
    RefusalGrew,
    Stopped,
    TextGrew,
)
from antiphon.protocol.events import Event, ResponseCompleted, ResponseIncomplete
from antiphon.protocol.machines.builder import ResponseBuilder
from antiphon.protocol.response import Response
from antiphon.wires.messages import encode as module
from antiphon.wires.messages import history, ids
from antiphon.wires.messages.ask import Thinking
from tests.building import COUNTED, counting_mint
from tests.properties.planting import plant
from tests.properties.test_messages import check_frames, check_message, events_of
from tests.wires.messages.judge import OMITTED, SHOWN, encode

_NOTE: Final = {"type": "url_citation", "url": "u", "title": "t"}
_BLOCK: Final = {"type": "anthropic:server_tool_use", "id": "s1", "name": "n", "input": {}}
_MIXED: Final[list[Delta]] = [
    ReasoningGrew("one"),
    NativeState("chat", b"x"),
    NativeState("chat", b"y"),
    ReasoningGrew("two"),
    TextGrew("a"),
    TextGrew("b"),
    RefusalGrew("no"),
    TextGrew("c"),
    AnnotationAdded(_NOTE),
    ItemPassed(_BLOCK),
    CallOpened(0, "f", "c:0"),
    CallOpened(1, "g", "c:1"),
    CallOpened(2, "h", "c:2"),
    CallGrew(2, '{"z":'),
    CallGrew(0, "{"),
    CallGrew(1, '{"x":'),
    CallGrew(0, "}"),
    CallGrew(1, "1}"),
    CallClosed(0),
    CallGrew(2, "1}"),
]
_CUT: Final[list[Delta]] = [TextGrew("a"), CallOpened(0, "f", "c"), CallGrew(0, '{"a')]


def _cancelled() -> list[Event]:
    builder = ResponseBuilder(Response(id="resp_1", usage=COUNTED.usage), counting_mint())
    return [*builder.start(), *builder.feed(TextGrew("a")), *builder.cancel()]


STREAMS: Final[list[list[Event]]] = [
    events_of([*_MIXED, Stopped("stop")]),
    events_of([*_MIXED, TextGrew("end"), Stopped("length")]),
    events_of([*_CUT, Stopped("length")]),
    events_of([TextGrew("a"), Stopped("content_filter")]),
    events_of(_CUT),
    events_of([TextGrew("a")]),
    _cancelled(),
]
BUGS: Final = [
    ('self._kind == "text" and not self._is_new_part', 'self._kind == "text"'),
    ('if event.response.status == "cancelled":', "if False:"),
    ("self._ready += self._out", "pass"),
    ("if place != self._item:", "if False:"),
    ("self._item = min(self._waiting)", "self._item = max(self._waiting)"),
    ("if self._waiting:\n", "if False:\n"),
    ("self._is_new_part = True", "pass"),
    ("self._is_new_part = self._has_thought = False", "pass"),
    ('if item.get("status") == "incomplete" and', "if False and"),
    ("if sealed and self._thinking.is_shown:", "if sealed:"),
    ("for block in native_blocks(item) or ():", "for block in ():"),
    ("        self._stop()\n        self._item = None", "        self._item = None"),
    ("        self._stop()\n        self._item = None", "        self._stop()"),
    ("if self._is_new_part or self._kind", "if self._kind"),
    ("if citation is not None:", "if False:"),
    ("if not self._thinking.is_shown:", "if False:"),
    ("if self._thinking.is_omitted:", "if False:"),
    ("if not self._has_thought:", "if False:"),
    ("self._index += 1", "pass"),
    ("tool_use_id_of(str(item", "(str(item"),
    ('"usage": usage_of(response.usage)', '"usage": usage_of(None)'),
    ('"stop_reason": stop_reason_of(response)', '"stop_reason": "end_turn"'),
    ('"input_json_delta", "partial_json"', '"input_json_delta", "json"'),
    ("ErrorEvent: MessagesEncoder._note_error,", "ErrorEvent: MessagesEncoder._fail,"),
    ("    ResponseIncomplete: MessagesEncoder._finish,", ""),
    ("self._out.append(PING)", "pass"),
]


def check(make: Any) -> None:
    for events in STREAMS:
        for thinking in (SHOWN, OMITTED, Thinking()):
            data = encode(events, thinking, batch=3, make=make)
            last = events[-1]
            assert isinstance(last, ResponseCompleted | ResponseIncomplete) or b"error" in data
            has_ended = last.response.status in ("completed", "incomplete")  # type: ignore[union-attr]  # a terminal event
            check_frames(data, has_failed=not has_ended)
            if has_ended:
                check_message(events, thinking, data, [7, 99])
            else:
                assert data.count(b"content_block_stop\n") == _CLOSED[len(events)]


_CLOSED: Final = {len(STREAMS[4]): 1, len(STREAMS[5]): 0, len(STREAMS[6]): 0}
"""How many blocks were whole when a stream broke."""


def test_without_a_bug_all_streams_are_right() -> None:
    check(module.MessagesEncoder)


@pytest.mark.parametrize(("old", "new"), BUGS)
def test_a_bug_of_the_encoder_is_seen(old: str, new: str) -> None:
    broken = plant([module], old, new)

    with pytest.raises(
        (AssertionError, anthropic.AnthropicError, LookupError, TypeError, AttributeError)
    ):
        check(broken.MessagesEncoder)


IDS: Final = ["call_1", "functions.Bash:0", "a-b", "m_x", "m_toolu_a", "toolu_a", "-2d", "ü", "m_-"]
SENT: Final = ["toolu_a", "toolu_a-b", "toolu_-zz", "call_1", "m_a", "toolu_m_a", "toolu_m_call"]
ID_BUGS: Final = [
    ("return foreign", "return call_id"),
    ("and _own_call_id(foreign) is None", ""),
    ('b"--" if byte == b"-" else', 'b"-" if byte == b"-" else'),
    ("if call_id and tool_use_id_of(call_id) == tool_use_id else None", ""),
    ("return _FOREIGN + tool_use_id if own is None else own", "return own or tool_use_id"),
]


def check_ids(planted: Any) -> None:
    assert [planted.call_id_of(planted.tool_use_id_of(one)) for one in IDS] == IDS
    assert [planted.tool_use_id_of(planted.call_id_of(one)) for one in SENT] == SENT


def test_without_a_bug_all_ids_come_back() -> None:
    check_ids(ids)


@pytest.mark.parametrize(("old", "new"), ID_BUGS)
def test_a_bug_of_the_ids_is_seen(old: str, new: str) -> None:
    with pytest.raises((AssertionError, TypeError, ValueError, RecursionError)):
        check_ids(plant([ids], old, new))


READ_BUGS: Final = [
    ("if not _is_billing(block)", ""),
    ("if parts:\n            items.append(_message(role, parts))\n            parts = []", "pass"),
    ("if texts:\n            items.append", "if False:\n            items.append"),
    ('if block.get("is_error"):', "if False:"),
    ('case "user" | "system" as role:', 'case "user" | "system":\n                role = "user"'),
    ("if not isinstance(sealed, str) or not sealed:", "if not isinstance(sealed, str):"),
    ('call_id_of(text_in(block, param, "tool_use_id"))', 'text_in(block, param, "tool_use_id")'),
]
_TALK: Final = [
    {"role": "user", "content": "hi"},
    {"role": "system", "content": "note"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "x", "signature": ""},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "b"},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "c", "is_error": True},
            {"type": "text", "text": "d"},
        ],
    },
]


def _read(planted: Any) -> list[Any]:
    billing = {"type": "text", "text": "x-anthropic-billing-header: 1"}
    return [*planted.read_system([billing]), *planted.read_messages(_TALK)]


@pytest.mark.parametrize(("old", "new"), READ_BUGS)
def test_a_bug_of_the_reader_is_seen(old: str, new: str) -> None:
    assert _read(plant([history], old, new)) != _read(history)
