"""Turns as messages of the chat API, and a cache of the messages that cannot change. Pure.

`write_messages` writes all items. `write_thread` returns the same messages and reports for a
thread, but keeps the part that can no longer change as bytes (`wires.settled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.native_state import note_dropped, state_of
from antiphon.protocol.pieces import encode_long
from antiphon.protocol.thread import Thread
from antiphon.wires.chat.parts import ChatPart, PartWriter, join_text, together
from antiphon.wires.chat.profiles import Profile
from antiphon.wires.settled import write_turns
from antiphon.wires.turns import Call, Entry, Said, Turn

__all__ = ["ChatMessage", "write_messages", "write_thread"]

# JSON objects in the words of the chat API.
ChatMessage = dict[str, Any]

_SYSTEM: Final = frozenset({"system", "developer"})
_NO_OUTPUT: Final = "(no output was provided for this call)"


class _Written(NamedTuple):
    """What was written of a conversation so far, and found out on the way."""

    messages: tuple[bytes, ...] = ()
    system: tuple[str, ...] = ()
    report: tuple[str, ...] = ()
    unused_reasoning: tuple[int, ...] = ()
    sealed_reasoning: tuple[int, ...] = ()
    dropped_states: tuple[int, ...] = ()


_NOTHING: Final = _Written()


def write_messages(
    items: Sequence[Item], toolbox: Toolbox, profile: Profile, orders: Sequence[str]
) -> tuple[list[ChatMessage], list[str]]:
    """Return the items as messages, `orders` first, and a report of what could not be sent."""
    writer, report = _write(tuple(items), toolbox, profile)
    return [*writer.first(orders), *writer.messages], [*report, *writer.report()]


def write_thread(
    thread: Thread, toolbox: Toolbox, profile: Profile, orders: Sequence[str]
) -> tuple[list[bytes], list[str]]:
    """Return the same of a thread, each as JSON; it then remembers what is settled of it."""
    writer, report = _write(thread, toolbox, profile)
    first, rest = map(encode_long, writer.first(orders)), map(encode_long, writer.messages)
    return [*first, *writer.past, *rest], [*report, *writer.report()]


def _write(
    items: Sequence[Item], toolbox: Toolbox, profile: Profile
) -> tuple[_MessageWriter, list[str]]:
    def make(past: _Written | None) -> _MessageWriter:
        return _MessageWriter(profile, past or _NOTHING)

    return write_turns(items, toolbox, make, write_thread, profile)


class _MessageWriter:
    """Turns to messages. System text that comes first is gathered into one message."""

    def __init__(self, profile: Profile, past: _Written = _NOTHING) -> None:
        self._profile = profile
        self._report = [*past.report]
        self._parts = PartWriter(profile, self._report)
        self._system = [*past.system]
        self.past = past.messages
        self.messages: list[ChatMessage] = []
        """Those that come behind the past."""
        self._unused_reasoning = [*past.unused_reasoning]
        self._sealed_reasoning = [*past.sealed_reasoning]
        self._dropped_states = [*past.dropped_states]

    def write(self, turns: Iterable[Said | Turn]) -> None:
        for turn in turns:
            if isinstance(turn, Turn):
                self._act(turn)
            else:
                self._say(turn)

    def pause(self) -> _Written:
        """Return what was written so far, to go on with; messages are then bytes."""
        return _Written(
            (*self.past, *map(encode_long, self.messages)),
            tuple(self._system),
            tuple(self._report),
            tuple(self._unused_reasoning),
            tuple(self._sealed_reasoning),
            tuple(self._dropped_states),
        )

    def first(self, orders: Sequence[str]) -> list[ChatMessage]:
        """Return the first messages: the instructions, and system items before the first turn."""
        given = [*orders, *self._system]
        if not given:
            return []
        texts = ["\n\n".join(given)] if self._profile.merges_system else given
        role = self._profile.system_role
        return [{"role": role, "content": text} for text in texts if text]

    def report(self) -> list[str]:
        """Return what could not be sent."""
        return [
            *self._report,
            *_told(self._unused_reasoning, "this model does not take it back"),
            *_told(self._sealed_reasoning, "encrypted_content of another server"),
            *note_dropped(self._dropped_states),
        ]

    def _say(self, said: Said) -> None:
        item, where = said.item, f"input[{said.index}]"
        if item.get("type") == "function_call_output":
            parts = self._parts.write(item.get("output"), f"{where}.output")
            label = {"type": "text", "text": f"Output of a tool call ({item['call_id']}):"}
            self._add_user([label, *parts])
            return
        parts = self._parts.write(item.get("content"), f"{where}.content")
        role = item.get("role")
        if role in _SYSTEM:
            self._add_system(join_text(parts, "\n"), where, str(role))
        else:
            self._add_user(parts)

    def _act(self, turn: Turn) -> None:
        texts = [
            join_text(self._parts.write(item.get("content"), f"input[{index}].content"), "")
            for index, item in turn.messages
        ]
        text = "\n\n".join(text for text in texts if text)
        message: ChatMessage = {"role": "assistant", "content": text}
        calls = turn.calls
        if calls:
            message["content"] = text or None
            message["tool_calls"] = [_chat_call(call, self._report) for call in calls]
        has_thought = self._add_reasoning(turn, message)
        if not turn.messages and not calls and not has_thought:
            return
        self.messages.append(message)
        self._add_results(calls)

    def _add_system(self, text: str, where: str, role: str) -> None:
        if not self.past and not self.messages:
            self._system.append(text)
            return
        late = self._profile.late_system_role
        if late == "user":
            self._report.append(f"{where} ({role} message): sent as a user message")
        self.messages.append({"role": late, "content": text})

    def _add_user(self, parts: list[ChatPart]) -> None:
        self.messages.append({"role": "user", "content": together(parts)})

    def _add_reasoning(self, turn: Turn, message: ChatMessage) -> bool:
        """Add the reasoning of a turn where the server takes it; return whether there is any."""
        field = self._profile.reasoning_replay
        thoughts = []
        for index, item in turn.reasoning:
            thought = text_of(item.get("content")) or text_of(item.get("summary"))
            if state_of(item) is not None:
                self._dropped_states.append(index)
            if not thought and item.get("encrypted_content"):
                self._sealed_reasoning.append(index)
            elif thought and field == "none":
                self._unused_reasoning.append(index)
            elif thought:
                thoughts.append(thought)
        if thoughts:
            message[field] = "\n\n".join(thoughts)
        return bool(thoughts)

    def _add_results(self, calls: list[Call]) -> None:
        """Add the results right behind the calls, and their images in a user message after."""
        images: list[ChatPart] = []
        for call in calls:
            parts = self._result_parts(call.result)
            shown = [part for part in parts if part["type"] != "text"]
            text = join_text(parts, "\n")
            if shown:
                images += [{"type": "text", "text": f"Shown by tool call {call.id}:"}, *shown]
                text = text or "(see the next message)"
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if images:
            self.messages.append({"role": "user", "content": images})

    def _result_parts(self, result: Entry | None) -> list[ChatPart]:
        if result is None:
            return [{"type": "text", "text": _NO_OUTPUT}]
        index, item = result
        return self._parts.write(item.get("output"), f"input[{index}].output")


def _told(indexes: Sequence[int], why: str) -> list[str]:
    """Return how reasoning at these places is reported, if there is any."""
    if not indexes:
        return []
    more = f" (and {len(indexes) - 1} more)" if len(indexes) > 1 else ""
    return [f"input[{indexes[0]}] (reasoning): {why}{more}"]


def _chat_call(call: Call, report: list[str]) -> dict[str, Any]:
    """Return a call of an earlier turn. Servers parse the arguments, and refuse what is no object.

    A call without arguments is one with none; one that was cut short is quoted.
    """
    arguments = call.item.get("arguments") or "{}"
    if not _is_object(arguments):
        report.append(f"input[{call.index}].arguments: no JSON object; sent as a text in one")
        arguments = msgspec.json.encode({"arguments": arguments}).decode()
    function = {"name": call.item["name"], "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True
