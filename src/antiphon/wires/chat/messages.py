"""Turns as messages of the chat API, and a cache of the messages that cannot change. Pure.

`write_messages` writes all items. `write_thread` returns the same messages and reports for a
thread, but keeps the part that can no longer change as bytes (`wires.settled`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.items import Item, text_of
from antiphon.protocol.long_body import add_pieces
from antiphon.protocol.native_state import note_dropped, state_of
from antiphon.protocol.pieces import encode_each, encode_texts
from antiphon.protocol.thread import Thread
from antiphon.wires.chat.parts import ChatPart, PartWriter, as_part, join_text
from antiphon.wires.chat.profiles import Profile
from antiphon.wires.plain import PlainTexts
from antiphon.wires.settled import write_turns
from antiphon.wires.turns import Call, Entry, Said, Turn

__all__ = ["ChatMessage", "Written", "write_messages", "write_thread"]

# JSON objects in the words of the chat API.
ChatMessage = dict[str, Any]

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_PLAIN: Final = {role: b'{"role":"%b","content":' % role.encode() for role in ("user", "assistant")}
_SYSTEM: Final = frozenset({"system", "developer"})
_NO_OUTPUT: Final = "(no output was provided for this call)"


class Written(NamedTuple):
    """Messages as JSON: the first ones, pieces with those that are settled, and the others."""

    first: list[bytes]
    settled: tuple[bytes, ...]
    rest: list[bytes]


class _Written(NamedTuple):
    """What was written of a conversation so far, and found out on the way."""

    messages: tuple[bytes, ...] = ()
    """In pieces that are put together without anything between them."""
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
) -> tuple[Written, list[str]]:
    """Return the same of a thread as JSON; it then remembers what is settled of it."""
    writer, report = _write(thread, toolbox, profile)
    first, rest = encode_each(writer.first(orders)), encode_each(writer.messages)
    return Written(first, writer.past, rest), [*report, *writer.report()]


def _write(
    items: Sequence[Item], toolbox: Toolbox, profile: Profile
) -> tuple[_MessageWriter, list[str]]:
    def make(past: _Written | None) -> _MessageWriter:
        return _MessageWriter(profile, past or _NOTHING)

    write_plain = _MessageWriter.write_plain
    return write_turns(items, toolbox, make, write_thread, profile, write_plain=write_plain)


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

    def write_plain(self, plain: PlainTexts) -> None:
        """Write plain messages right behind the past."""
        begins = map(_PLAIN.__getitem__, plain.roles)
        parts = zip(begins, encode_texts(plain.texts), repeat(b"}"), strict=False)
        self.past = add_pieces(self.past, [*map(b"".join, parts)])

    def pause(self) -> _Written:
        """Return what was written so far, to go on with; messages are then bytes."""
        return _Written(
            add_pieces(self.past, encode_each(self.messages)),
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
        item = said.item
        if item.get("type") == "function_call_output":
            self._add_output(item, said.index)
            return
        content = self._parts.write(item.get("content"), said.index)
        role = item.get("role")
        if role in _SYSTEM:
            self._add_system(join_text(content, "\n"), said.index, str(role))
        else:
            self.messages.append({"role": "user", "content": content})

    def _add_output(self, item: Item, index: int) -> None:
        """Add a result that belongs to no call."""
        label, output = f"Output of a tool call ({item['call_id']}):", item.get("output")
        content = self._parts.write(output, index, field="output")
        if isinstance(content, list):
            content = [as_part(label), *content]
        elif output and isinstance(output, str | list):
            content = f"{label}\n{content}"
        else:
            content = label
        self.messages.append({"role": "user", "content": content})

    def _act(self, turn: Turn) -> None:
        if len(turn.messages) == 1:  # as most turns with text have
            text = self._text_of(turn.messages[0])
        else:
            text = "\n\n".join(filter(None, map(self._text_of, turn.messages)))
        message: ChatMessage = {"role": "assistant", "content": text}
        calls = turn.calls
        if calls:
            message["content"] = text or None
            message["tool_calls"] = [_chat_call(call, self._report) for call in calls]
        has_thought = self._add_reasoning(turn, message) if turn.reasoning else False
        if turn.messages or calls or has_thought:
            self.messages.append(message)
        if calls:
            self._add_results(calls)

    def _text_of(self, entry: Entry) -> str:
        """Return the text of a message of the assistant."""
        index, item = entry
        content = self._parts.write(item.get("content"), index, "")
        return content if isinstance(content, str) else join_text(content, "")

    def _add_system(self, text: str, index: int, role: str) -> None:
        if not self.past and not self.messages:
            self._system.append(text)
            return
        late = self._profile.late_system_role
        if late == "user":
            self._report.append(f"input[{index}] ({role} message): sent as a user message")
        self.messages.append({"role": late, "content": text})

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
            said = None if call.result is None else call.result[1].get("output")
            if isinstance(said, str):  # as most results are
                self.messages.append({"role": "tool", "tool_call_id": call.id, "content": said})
                continue
            content = self._result_content(call.result)
            text = join_text(content, "\n")
            if isinstance(content, list):
                shown = [part for part in content if part["type"] != "text"]
                images += [as_part(f"Shown by tool call {call.id}:"), *shown]
                text = text or "(see the next message)"
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        if images:
            self.messages.append({"role": "user", "content": images})

    def _result_content(self, result: Entry | None) -> str | list[ChatPart]:
        if result is None:
            return _NO_OUTPUT
        index, item = result
        return self._parts.write(item.get("output"), index, field="output")


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
        _decode_object(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True
