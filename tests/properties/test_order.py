"""The order of a history: what the caller put where, and what chat models need.

`written_before` is a second, simple implementation of the case without a gap: there the bytes
that a model is sent must never change, because servers keep them in their prefix caches.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from antiphon.plans.plan import NO_TOOLS
from antiphon.protocol.items import Item
from antiphon.wires.chat.messages import write_messages
from antiphon.wires.chat.profiles import GENERIC

_KINDS: Final = ("user", "assistant", "call", "call", "output", "output", "developer")

Message = dict[str, Any]


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    """A conversation in any order. Every text is there once; ids are few, so that they meet."""
    items: list[Item] = [{"type": "message", "role": "user", "content": "start"}]
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(_KINDS))
        call_id = draw(st.sampled_from("abc"))
        if kind == "call":
            call = {"call_id": call_id, "name": "f", "arguments": "{}"}
            items.append({"type": "function_call", **call})
        elif kind == "output":
            output = {"call_id": call_id, "output": f"result {number}."}
            items.append({"type": "function_call_output", **output})
        else:
            items.append({"type": "message", "role": kind, "content": f"text {number}."})
    return items


def written(items: list[Item]) -> list[Message]:
    return write_messages(items, NO_TOOLS, GENERIC, ())[0]


class _Turn:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[str] = []
        self.results: dict[int, str] = {}


def written_before(items: list[Item]) -> list[Message] | None:
    """Return the messages if every result has no message between itself and its call."""
    turns: list[_Turn | Message] = []
    is_open = False
    calls: dict[str, list[tuple[_Turn, int]]] = {}
    for item in items:
        kind, role = item["type"], item.get("role")
        if kind == "message" and role != "assistant":
            turns.append({"role": "system" if role == "developer" else role, **_content(item)})
            is_open = False
            continue
        if kind == "function_call_output":
            known = calls.get(item["call_id"], [])
            open_calls = [place for place in known if place[1] not in place[0].results]
            if not known:
                return None
            turn, place = (open_calls or known)[-1]
            later = turns[turns.index(turn) + 1 :]
            if any(isinstance(one, dict) or one.texts for one in later):
                return None
            turn.results[place] = item["output"]
            is_open = False
            continue
        if not is_open:
            turns.append(_Turn())
            is_open = True
        turn = turns[-1]  # type: ignore[assignment]  # it is the one that is open
        if kind == "message":
            turn.texts.append(item["content"])
            continue
        known = calls.setdefault(item["call_id"], [])
        if known and known[-1][1] not in known[-1][0].results:
            if not turn.texts and not turn.calls:
                turns.pop()  # nothing was said: the call is a repetition
                is_open = False
            continue
        turn.calls.append(item["call_id"])
        known.append((turn, len(turn.calls) - 1))
    return [message for turn in turns for message in _messages(turn)]


def _content(item: Item) -> Message:
    return {"content": item["content"]}


def _messages(turn: _Turn | Message) -> list[Message]:
    if isinstance(turn, dict):
        return [turn]
    text = "\n\n".join(turn.texts)
    if not turn.calls:
        return [{"role": "assistant", "content": text}]
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in turn.calls]
    said: Message = {"role": "assistant", "content": text or None, "tool_calls": calls}
    blank = "(no output was provided for this call)"
    tools = [
        {"role": "tool", "tool_call_id": call_id, "content": turn.results.get(place, blank)}
        for place, call_id in enumerate(turn.calls)
    ]
    return [said, *tools]


@settings(max_examples=500, deadline=None)
@given(conversations())
def test_without_a_message_between_call_and_result_the_bytes_are_those_of_before(
    items: list[Item],
) -> None:
    before = written_before(items)
    event("has a gap" if before is None else "has no gap")
    if before is not None:
        assert msgspec.json.encode(written(items)) == msgspec.json.encode(before)


@settings(max_examples=500, deadline=None)
@given(conversations())
def test_messages_and_results_reach_the_model_in_the_callers_order(items: list[Item]) -> None:
    """Only results with no message between them may change places."""
    texts = [
        str(message["content"]) for message in written(items) if message["role"] != "assistant"
    ]
    places = {
        item.get("content") or item["output"]: index
        for index, item in enumerate(items)
        if item.get("role") != "assistant" and item["type"] != "function_call"
    }
    shown = [place for text in texts for word, place in places.items() if text.endswith(word)]
    messages = [i for i, item in enumerate(items) if item["type"] == "message"]
    callers = [i for i in messages if items[i]["role"] != "assistant"]
    assert [place for place in shown if place in callers] == callers
    for at, place in enumerate(shown):
        for later in shown[at + 1 :]:
            assert place < later or not any(later < i < place for i in callers)


@settings(max_examples=500, deadline=None)
@given(conversations())
def test_every_call_is_followed_by_its_results_and_no_assistant_speaks_twice(
    items: list[Item],
) -> None:
    due: list[str] = []
    last = ""
    for message in written(items):
        if message["role"] == "tool":
            assert message["tool_call_id"] == due.pop(0)
        else:
            assert not due
            assert (last, message["role"]) != ("assistant", "assistant")
            due = [call["id"] for call in message.get("tool_calls", ())]
            assert len(due) == len(set(due))
        last = message["role"]
    assert not due
