"""Would a bug in the adapter be seen? Each planted one must be.

Every bug is a small change to the source of the adapter, of its ledger of calls or of what
collects the items beneath them, as somebody might make it by mistake. The changed adapter is
told a handful of streams, whole and damaged; what it shows and how it ends has to differ from
what the application was promised. A change that no longer applies fails too, so the list stays
true.
"""

from __future__ import annotations

import inspect
import types
from typing import Any, Final

import pytest

from antiphon.host import adapter as original
from antiphon.host import calls as ledger
from antiphon.host import outcome
from antiphon.host.adapter import AdapterSettings, StreamAdapter
from antiphon.host.data import show_item
from antiphon.host.errors import HostError
from antiphon.protocol.codec import read_event
from antiphon.protocol.machines import accumulator, item_index, partial_items, sequence_marks
from antiphon.wires.host.parts import ResponsePart, TextPart, ThinkingPart, ToolCallPart
from tests.host.streams import (
    CITY,
    Fields,
    added,
    call,
    call_item,
    created,
    done,
    end,
    event,
    message,
    message_item,
    without,
)

_BONN: Final = '{"city":"Bonn"}'
_CALL: Final = ToolCallPart("gw-call_1", "weather", CITY)
_NOTE: Final = {"type": "url_citation", "url": "https://a.example/", "title": "A"}
_PLACE: Final[Fields] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
_THOUGHT: Final[Fields] = {"id": "rs_1", "type": "reasoning", "summary": []}
_SEARCH: Final = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
_SHELL: Final = {"id": "ct_1", "type": "custom_tool_call", "call_id": "c", "name": "sh"}
_ERROR: Final = {"type": "error", "code": "overloaded", "message": "too much", "param": None}
_HALVES: Final = [event("output_text.delta", delta=half, **_PLACE) for half in ("\ud83d", "\ude00")]


def _thinking(name: str, delta: str) -> Fields:
    index = "summary_index" if "summary" in name else "content_index"
    return event(f"{name}.delta", delta=delta, item_id="rs_1", output_index=0, **{index: 0})


def _note(index: int = 0) -> Fields:
    return event("output_text.annotation.added", annotation=_NOTE, annotation_index=index, **_PLACE)


def _nameless(fields: Fields, *lost: str) -> Fields:
    """The event, and the item in it, without some fields that say whose it is."""
    kept = {key: value for key, value in fields.items() if key not in lost}
    if "id" in lost and "item" in kept:
        kept["item"] = {key: value for key, value in kept["item"].items() if key != "id"}
    return kept


_TWIN: Final = call("call_2", "fc_2", 1)
_OTHER: Final = call("call_2", "fc_1", 1, _BONN)
_RESTARTED: Final = [(1, "a"), (2, "b"), (1, "c"), (2, "b")]
_REPEATED: Final = [(1, "a"), (2, "b"), (1, "a"), (2, "b"), (3, "c")]


def _text(*values: str) -> list[ResponsePart]:
    return [TextPart(value) for value in values]


_Expected = tuple[list[ResponsePart], str]

# What is told, the parts that an application must see, and how it must end.
CASES: Final[dict[str, tuple[list[Fields], list[ResponsePart], str]]] = {
    "text": (
        [*message("Hel", "lo"), end(message_item("Hello"))],
        _text("Hel", "lo"),
        "completed",
    ),
    "a lost tail": (
        [*message("Hel", said="Hello"), end(message_item("Hello"))],
        _text("Hel", "lo"),
        "completed",
    ),
    "a lost beginning": (
        [*message("lo", said="Hello"), end(message_item("Hello"))],
        _text("lo"),
        "DamagedText",
    ),
    "a tail that only the end has": (
        [*message("Hel")[:3], end(message_item("New", "msg_0"), message_item("Hello"))],
        _text("Hel", "lo", "New"),
        "completed",
    ),
    "a tail that comes too late": (
        [
            *message("Hel")[:3],
            *message("World", item_id="msg_2", index=1),
            end(message_item("Hello"), message_item("World", "msg_2")),
        ],
        _text("Hel", "World"),
        "DamagedText",
    ),
    "a delta after the end of its text": (
        [*message("Hi"), message("Hi")[2], end()],
        _text("Hi"),
        "completed",
    ),
    "half characters": ([*_HALVES, end()], _text("\U0001f600"), "completed"),
    "a call": ([*call(), end(call_item())], [_CALL], "completed"),
    "a call without arguments done": (
        [*without(call(), "function_call_arguments.done"), *message("Hi", index=1), end()],
        [_CALL, TextPart("Hi")],
        "completed",
    ),
    "a call that only the end has": ([end(call_item())], [_CALL], "completed"),
    "arguments before their item": (
        [*call()[1:4], call()[0], *message("Hi", index=1), end()],
        [_CALL, TextPart("Hi")],
        "completed",
    ),
    "arguments that wait for a better word": (
        [*call(arguments='{"city":')[:4], done(call_item()), end()],
        [_CALL],
        "completed",
    ),
    "malformed arguments": (
        [*call(arguments='{"city":'), *message("Hi", index=1), end()],
        _text("Hi"),
        "MalformedCall",
    ),
    "arguments that are a list": ([*call(arguments="[1]"), end()], [], "MalformedCall"),
    "empty arguments": (
        [done(call_item(arguments="")), end()],
        [ToolCallPart("gw-call_1", "weather", {})],
        "completed",
    ),
    "a call that was only announced": ([call()[0], end()], [], "MalformedCall"),
    "a call announced with arguments that are not its own": (
        [added(call_item(arguments="{}")), *call()[1:], end()],
        [_CALL],
        "completed",
    ),
    "a call confirmed under another id": (
        [*call(), *call(item_id="fc_2", index=1), end()],
        [_CALL],
        "completed",
    ),
    "two calls under one call_id": (
        [*call(), *call(item_id="fc_2", index=1, arguments=_BONN), end()],
        [_CALL],
        "completed",
    ),
    "a call that changes": (
        [*call()[:4], done(call_item(arguments=_BONN)), end(call_item(arguments=_BONN))],
        [_CALL],
        "ChangedCall",
    ),
    "a call that changes and changes back": (
        [*call()[:4], done(call_item(arguments=_BONN)), end(call_item())],
        [_CALL],
        "completed",
    ),
    "calls under new ids at the end": (
        [*call(), *_TWIN, end(call_item("c8", "fc_8"), call_item("c9", "fc_9"))],
        [_CALL, ToolCallPart("gw-call_2", "weather", CITY)],
        "completed",
    ),
    "another call at the end": (
        [*call(), end(call_item("call_2", "fc_2", _BONN))],
        [_CALL, ToolCallPart("gw-call_2", "weather", {"city": "Bonn"})],
        "completed",
    ),
    "a call done under a new call_id": (
        [*call()[:4], done(call_item("call_9")), end(call_item("call_9"))],
        [_CALL],
        "completed",
    ),
    "a call done under a new call_id and without an index": (
        [*call()[:4], _nameless(done(call_item("call_9")), "output_index"), end()],
        [_CALL],
        "completed",
    ),
    "calls named by their call_ids": (
        [
            _nameless(fields, "id", "output_index")
            for pair in zip(call("fc_1")[:4], call("fc_2", "fc_2", 1, _BONN)[:4], strict=True)
            for fields in pair
        ]
        + [end()],
        [
            ToolCallPart("gw-fc_1", "weather", CITY),
            ToolCallPart("gw-fc_2", "weather", {"city": "Bonn"}),
        ],
        "completed",
    ),
    "a call named by its call_id": (
        [_nameless(fields, "id", "output_index") for fields in call("fc_1")]
        + [end(call_item("fc_1"))],
        [ToolCallPart("gw-fc_1", "weather", CITY)],
        "completed",
    ),
    "parallel calls under one item id": (
        [fields for pair in zip(call()[:4], _OTHER[:4], strict=True) for fields in pair] + [end()],
        [_CALL, ToolCallPart("gw-call_2", "weather", {"city": "Bonn"})],
        "completed",
    ),
    "parallel calls that no event names": (
        [
            call()[0],
            *[
                _nameless(fields, "item_id", "output_index")
                for fields in [*_OTHER[:1], *call()[1:]]
            ],
            *[_nameless(fields, "item_id", "output_index") for fields in _OTHER[1:]],
            end(),
        ],
        [_CALL, ToolCallPart("gw-call_2", "weather", {"city": "Bonn"})],
        "completed",
    ),
    "parallel calls that no event names and that are never done": (
        [
            call()[0],
            call("call_2", "fc_2", 1)[0],
            _nameless(call()[3], "item_id", "output_index"),
            end(),
        ],
        [],
        "MalformedCall",
    ),
    "half a character in the arguments": (
        [*call(arguments='{"city":"\\ud83d"}'), end()],
        [ToolCallPart("gw-call_1", "weather", {"city": "\ud83d"})],
        "completed",
    ),
    "reasoning at the place of the message": (
        [
            *message("Hi")[:2],
            *[_thinking("reasoning_summary_text", d) | {"item_id": d} for d in ("a", "b")],
            *message("Hi")[2:],
            end(_THOUGHT | {"summary": [{"text": "ab"}]}, message_item("Hi")),
        ],
        [ThinkingPart("a", "a"), ThinkingPart("b", "a"), TextPart("Hi")],
        "completed",
    ),
    "a thought inside the message": (
        [
            *message("Hi")[:2],
            _thinking("reasoning_text", "hm") | {"item_id": "msg_1"},
            message("Hi")[2],
            end(),
        ],
        [ThinkingPart("hm"), TextPart("Hi")],
        "completed",
    ),
    "a summary of two parts": (
        [
            _thinking("reasoning_summary_text", "a"),
            _thinking("reasoning_summary_text", "b") | {"summary_index": 1},
            end(_THOUGHT | {"summary": [{"text": "a"}, {"text": "bc"}]}),
        ],
        [ThinkingPart("a", "rs_1"), ThinkingPart("\n\nb", "rs_1"), ThinkingPart("c", "rs_1")],
        "completed",
    ),
    "an empty final text before the deltas": (
        [
            message("Hi")[0],
            event("output_text.done", text="", **_PLACE),
            message("Hi")[2],
            end(),
        ],
        _text("Hi"),
        "completed",
    ),
    "deltas that all have one number": (
        [event("output_text.delta", delta=d, sequence_number=0, **_PLACE) for d in "abaa"]
        + [end()],
        _text("a", "b", "a", "a"),
        "completed",
    ),
    "numbers that start again": (
        [event("output_text.delta", delta=d, sequence_number=n, **_PLACE) for n, d in _RESTARTED]
        + [end()],
        _text("a", "b", "c", "b"),
        "completed",
    ),
    "deltas told again under their numbers": (
        [event("output_text.delta", delta=d, sequence_number=n, **_PLACE) for n, d in _REPEATED]
        + [end()],
        _text("a", "b", "c"),
        "completed",
    ),
    "a call that was cut off": (
        [*call()[:3], end(kind="incomplete")],
        [],
        "MalformedCall",
    ),
    "an open call in a failed response": ([*call()[:3], end(kind="failed")], [], "ResponseFailed"),
    "a custom call": (
        [
            done(_SHELL | {"input": "ls", "status": "completed"}),
            done(_SHELL | {"id": "ct_2", "call_id": "d", "input": "r", "status": "incomplete"}, 1),
            end(),
        ],
        [ToolCallPart("gw-c", "sh", {"input": "ls"}, "custom")],
        "MalformedCall",
    ),
    "another item": (
        [added(_SEARCH), done(_SEARCH), end(_SEARCH)],
        [show_item(_SEARCH)],
        "completed",
    ),
    "a citation": (
        [*message("Hi")[:3], _note(), end(message_item("Hi", annotations=[_NOTE]))],
        _text("Hi", " [A](https://a.example/)"),
        "completed",
    ),
    "a citation that only the end has": (
        [*message("Hi")[:3], end(message_item("Hi", annotations=[_NOTE]))],
        _text("Hi", " [A](https://a.example/)"),
        "completed",
    ),
    "thoughts on both channels": (
        [
            added(_THOUGHT),
            _thinking("reasoning", "a"),
            _thinking("reasoning_summary_text", "b"),
            done(_THOUGHT | {"encrypted_content": "x"}),
            end(),
        ],
        [ThinkingPart("a", "rs_1"), ThinkingPart("", "rs_1", {"encrypted_content": "x"})],
        "completed",
    ),
    "an error": ([*message("Hi"), _ERROR, end()], _text("Hi"), "ResponseFailed"),
    "a failure": ([*message("Hi"), end(kind="failed")], _text("Hi"), "ResponseFailed"),
    "no end": (message("Hi"), _text("Hi"), "StreamCut"),
    "two ends": (
        [*message("Hi"), end(), end(call_item())],
        _text("Hi"),
        "completed",
    ),
}

BUGS: Final[dict[str, tuple[str, str]]] = {
    "what the accumulator did not count is shown": (
        "if not self._accumulator.feed(event):\n            return []",
        "self._accumulator.feed(event)",
    ),
    "text is shown again when it is done": (
        "tail = said[len(shown) :]",
        "tail = said",
    ),
    "a lost tail is not shown": (
        "tail = record.take_tail(said)\n        if not",
        'tail = ""\n        if not',
    ),
    "a tail is appended to a text that does not fit": (
        'if not said.startswith(shown):\n            return ""',
        "pass",
    ),
    "damaged text goes unnoticed": ("self._check_text(response)", "pass"),
    "a late tail is put behind other text": (
        "if record is not self._speaker and record.has_spoken:\n            return []",
        "pass",
    ),
    "the tail of the last message comes behind new messages": (
        "if record is self._speaker:\n                #",
        "if False:\n                #",
    ),
    "halves of characters are shown one by one": (
        "whole, self.half = split_half(self.half + delta)",
        "whole = delta",
    ),
    "the prefix is forgotten": ("call_id=self._prefix + call.call_id", "call_id=call.call_id"),
    "a call is told again by every later word": (
        "self._told[key] = _ReportedCall(call.call_id, call.name, _said(item), payload)",
        "pass",
    ),
    "a call is told once per item id": ("if payload in known:\n            return []", "pass"),
    "two calls of one call_id are told": ("if len(known) > 1:", "if False:"),
    "malformed arguments become an empty object": (
        "except (ValueError, RecursionError):\n        return None",
        "except (ValueError, RecursionError):\n        return {}",
    ),
    "arguments of any shape are told": (
        "return value if isinstance(value, dict) else None",
        "return value",
    ),
    "malformed calls are passed over": (
        "if self.malformed:\n            raise self.malformed[0]",
        "pass",
    ),
    "an announced call is run without arguments": (
        "if not draft.has_said():",
        "if False:",
    ),
    "empty arguments are never told": (
        "arguments = _read_empty(item, response)",
        "pass",
    ),
    "calls that were cut off are told": (
        "if not _is_finished(item, response):",
        "if False:",
    ),
    "custom input that was cut off is told": (
        'if text and item.get("status") in _FINISHED else None',
        "if text else None",
    ),
    "item done does not tell calls": (
        "return [*self._calls.hear(draft, item)] if draft.call_id else []",
        "return []",
    ),
    "the end does not tell calls": (
        "parts += self._calls.settle_draft(draft, item, response, has_gap=has_gap)",
        "pass",
    ),
    "arguments before their item are forgotten": (
        "(events.ArgumentsDone, events.OutputItemAdded), self._hear_call",
        "(events.ArgumentsDone,), self._hear_call",
    ),
    "arguments are told while they still grow": (
        'if not is_known or not draft.is_final("arguments"):',
        "if not is_known:",
    ),
    "other items are dropped": ("return [show_item(item)]", "return []"),
    "other items are told at every word": (
        "if record.is_told:\n            return []",
        "pass",
    ),
    "citations are told again at the end": (
        "record.notes[encode_json(event.annotation)] += 1",
        "pass",
    ),
    "citations that only the end has are lost": (
        "self._show_tail(record, spoken_text(item)) + self._show_notes(item, record)",
        "self._show_tail(record, spoken_text(item))",
    ),
    "summary and raw are both shown": ('if shown.voice not in ("", field):', "if False:"),
    "thoughts are shown as text": (
        "return [ThinkingPart(delta, shown.id)] if delta else []",
        "return [TextPart(delta)] if delta else []",
    ),
    "encrypted reasoning comes at every word": (
        "if sealed and not record.is_told:",
        "if sealed:",
    ),
    "a call that changed goes unnoticed": (
        "for key, said in self._changes.items():",
        "for key, said in ():",
    ),
    "a change that was taken back is an error": ("self._changes.pop(key, None)", "pass"),
    "terminal items are matched whatever their call_id": (
        "(lambda face: (face.kind,), Draft.fits)",
        "(lambda face: (face.kind,), lambda draft, item: True)",
    ),
    "no terminal item has to fit": ("Draft.fits)", "lambda draft, item: True)"),
    "calls under new ids are not known by their payload": (
        "payload == other_payload or said_in_call(item).startswith(said_in_call(known))",
        "False",
    ),
    "a call done under a new call_id is another call": (
        "if named is not None and is_final and named.is_renamed(index, item):",
        "if False:",
    ),
    "a call_id in place of an id is not understood": (
        "if called is not None:",
        "if False:",
    ),
    "the index does not tell apart what the id does not": (
        "if there is not None and there.id == event.item_id:",
        "if False:",
    ),
    "arguments that are a guess are told at once": (
        "draft.call_id and not draft.is_guessed",
        "draft.call_id",
    ),
    "arguments that are a guess are told at the end": (
        "if draft.is_guessed:",
        "if False:",
    ),
    "half a character makes arguments malformed": (
        "return json.loads(text, parse_constant=_finite, parse_float=_finite)",
        "raise",
    ),
    "every strange reasoning delta is an item": (
        "there = self._by_place.get((index, kind)) or self._stranger(index)",
        "there = self._stranger(index)",
    ),
    "a thought inside a message is one of its texts": ('return "thought"', "pass"),
    "a thought inside a message is spoken": (
        'content = [part for part in parts_of(item) if part.get("type") != "reasoning_text"]',
        "pass",
    ),
    "the parts of a summary run together": ("delta = SUMMARY_BREAK + delta", "pass"),
    "the parts of a summary run together in the last word": (
        "join_halves(SUMMARY_BREAK.join(",
        'join_halves("".join(',
    ),
    "an empty final text stops the deltas": (
        "self._final = final or self._final",
        "self._final = final",
    ),
    "a number that stands for two things tells a repetition": (
        "self._is_numbered = False",
        "pass",
    ),
    "repetitions are counted": (
        "return self._is_numbered and has_counted and mark != 0 and known == mark",
        "return False",
    ),
    "an error event is swallowed": ("self._error = event", "pass"),
    "a failed response is taken for an answer": (
        'if response.status in ("failed", "cancelled"):',
        "if False:",
    ),
    "a stream that was cut is blamed on the server": (
        "raise StreamCut(partial) from None",
        'raise ResponseFailed(None, "", partial) from None',
    ),
}


def objections(adapter: type[StreamAdapter]) -> list[str]:
    """Return every case in which an adapter does not do what was promised."""
    found = []
    for name, (stream, parts, how) in CASES.items():
        try:
            seen = _play(adapter, [created(), *stream])
        except (AttributeError, TypeError, KeyError, ValueError) as crash:
            found.append(f"{name}: it crashes: {crash!r}")
            continue
        if seen != (parts, how):
            found.append(f"{name}: {seen}")
    return found


def _play(adapter: Any, stream: list[Fields]) -> _Expected:  # Any: the planted class
    machine = adapter(AdapterSettings(shows_thinking=True, call_prefix="gw-"))
    parts: list[ResponsePart] = []
    for number, fields in enumerate(stream):
        parts += machine.feed(read_event({"sequence_number": number} | fields))
    try:
        return parts, machine.finish().status
    except HostError as error:
        return parts, type(error).__name__


def _plant(old: str, new: str) -> type[StreamAdapter]:
    """Return the adapter with this change, made in its own module or in one beneath it."""
    modules = (partial_items, sequence_marks, item_index, accumulator, outcome, ledger, original)
    sources = [inspect.getsource(module) for module in modules]
    assert any(old in source for source in sources), "the bug no longer applies: write it anew"
    own: dict[str, Any] = {}
    for module, source in zip(modules, sources, strict=True):
        planted = types.ModuleType("planted")
        exec(source.replace(old, new), planted.__dict__)
        # What was planted beneath stays, where the source has imported the real thing.
        planted.__dict__.update({name: own[name] for name in planted.__dict__ if name in own})
        own |= {name: planted.__dict__[name] for name in module.__all__}
    adapter: type[StreamAdapter] = own["StreamAdapter"]
    return adapter


def test_the_adapter_as_it_is_raises_no_objection() -> None:
    assert objections(StreamAdapter) == []


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    assert objections(_plant(*BUGS[bug]))
