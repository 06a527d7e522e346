"""Items of a plan as the system blocks and the messages of a Messages request. Pure.

- System items before the first message are system blocks, one for each text. Later ones stay
  where they are: as a `system` message where the model takes it, else as a text of the user.
- Neighbours of one role are one message. All results of a turn come first in the user message
  after it, in the order of their calls.
- Thinking goes back as the bytes that its provider signed, before what followed it. Without them
  it is left out and reported. So are blocks of the provider's servers, item for item.
- Arguments of calls are the model's own bytes. Ids are mapped by `ids`; two calls never share one.

Rendering depends on nothing but the items before, so the blocks of turn n are the first of those
of turn n + 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.plans.toolbox import Toolbox
from antiphon.protocol.call_ids import CallIds
from antiphon.protocol.items import Item, item_type, text_of
from antiphon.protocol.native_state import PAUSED, native_of, note_dropped, state_of
from antiphon.protocol.pieces import encode_long
from antiphon.wires.messages.answer import native_blocks
from antiphon.wires.messages.blocks import WIRE
from antiphon.wires.messages.cache import has_mark
from antiphon.wires.messages.content import Block, ContentWriter, text_block
from antiphon.wires.messages.history import BLOCKS, ERROR_PREFIX, OPAQUE
from antiphon.wires.messages.ids import tool_use_id_of
from antiphon.wires.settled import Own, write_turns
from antiphon.wires.turns import Call, Entry, Said, Turn

__all__ = ["Conversation", "FrozenMessage", "Message", "lacks_thinking", "write_conversation"]

Message = dict[str, Any]
"""A message; Any: its content is a list of blocks, some of them as bytes."""

_SYSTEM: Final = frozenset({"system", "developer"})
_NO_OUTPUT: Final = "(no output was provided for this call)"
_REMINDER: Final = "<system-reminder>\n{}\n</system-reminder>"
_BEGIN: Final = "(the conversation begins with the assistant)"
_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_decode_blocks: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Typed(msgspec.Struct):
    type: str


_decode_typed: Final = msgspec.json.Decoder(_Typed).decode


class Conversation(NamedTuple):
    """What is sent of the items, and a report of what is not."""

    system: list[Block]
    messages: list[Message]
    report: list[str]
    past: Sequence[FrozenMessage] = ()
    """Messages before these, which were written for an earlier request."""


def write_conversation(
    items: Sequence[Item], toolbox: Toolbox, *, account: str, mid_system: bool
) -> Conversation:
    """Return the items as a conversation with a model that is reached through this account."""

    def make(past: _Writer | None) -> _Writer:
        return _Writer(account, mid_system=mid_system) if past is None else past.pause()

    terms = (account, mid_system)
    writer, report = write_turns(items, toolbox, make, write_conversation, terms, _OWN)
    writer.finish()
    notes = [*report, *writer.report()]
    return Conversation(writer.system, writer.messages, notes, writer.past)


def lacks_thinking(messages: Sequence[Message], past: Sequence[FrozenMessage] = ()) -> bool:
    """Return whether the calls that are being answered came without the thinking before them.

    A model that has a budget to think refuses such a request.
    """
    first: str | None = None
    both: Iterable[Message | FrozenMessage] = chain(reversed(messages), reversed(past))
    for message in both:
        role, kinds = _kinds_of(message)
        if role == "user" and "tool_result" not in kinds:
            break
        if role == "assistant":
            first = kinds[0] if kinds else None
    return first is not None and first not in _THINKING


def _find_own(item: Item) -> Item | None:
    """Return an item that holds blocks; a hosted one that carries its blocks as nothing else."""
    if BLOCKS in item:
        blocks = native_blocks(item)
        return None if blocks is None else {"type": BLOCKS, BLOCKS: blocks}
    return item if _is_own(item_type(item)) else None


def _is_own(kind: str) -> bool:
    return kind == PAUSED or kind.startswith(OPAQUE)


_OWN: Final = Own(_find_own, _is_own)


class FrozenMessage(msgspec.Struct, frozen=True):
    """A message that does not change any more: its bytes, its role and the types of its blocks."""

    raw: msgspec.Raw
    role: str
    kinds: tuple[str, ...]


def _kinds_of(message: Message | FrozenMessage) -> tuple[str, Sequence[str]]:
    if isinstance(message, FrozenMessage):
        return message.role, message.kinds
    return message["role"], [_type_of(block) for block in message["content"]]


def _freeze(message: Message) -> FrozenMessage:
    role, kinds = _kinds_of(message)
    return FrozenMessage(msgspec.Raw(encode_long(message)), role, tuple(kinds))


def _is_marked(message: Message) -> bool:
    """Return whether there is a mark of the cache in it, which may have to be removed."""
    return any(map(has_mark, message["content"]))


def _copy(message: Message) -> Message:
    """Return a message whose blocks can be marked, or added to."""
    blocks = [dict(one) if isinstance(one, dict) else one for one in message["content"]]
    return {**message, "content": blocks}


def _type_of(block: Block | msgspec.Raw) -> str:
    return _decode_typed(block).type if isinstance(block, msgspec.Raw) else str(block["type"])


class _Writer:
    """Turns to messages."""

    def __init__(self, account: str, *, mid_system: bool) -> None:
        self.system: list[Block] = []
        self.past: list[FrozenMessage] = []
        self.messages: list[Message] = []
        """Those after the past."""
        self._account = account
        self._mid_system = mid_system
        self._report: list[str] = []
        self._content = ContentWriter(self._report)
        self._ids = CallIds()
        self._foreign: list[int] = []
        self._unsigned: list[int] = []

    def write(self, turns: Iterable[Said | Turn]) -> None:
        for turn in turns:
            if isinstance(turn, Turn):
                self._act(turn)
            else:
                self._say(turn)

    def pause(self) -> _Writer:
        """Return a writer that goes on from here; messages that are settled are bytes there.

        The last ones are not: blocks are added to the last, and the cache may be marked at the
        end of the request before, which is a message of the user.
        """
        made = _Writer(self._account, mid_system=self._mid_system)
        users = [place for place, one in enumerate(self.messages) if one["role"] == "user"]
        done = self.messages[: users[-2]] if len(users) > 1 else []
        frozen = list(takewhile(lambda message: not _is_marked(message), done))
        made.past = [*self.past, *map(_freeze, frozen)]
        made.messages += map(_copy, self.messages[len(frozen) :])
        made.system += map(dict, self.system)
        made._report += self._report
        made._ids = self._ids.fork()
        made._foreign += self._foreign
        made._unsigned += self._unsigned
        return made

    def finish(self) -> None:
        """Keep the rules for the first and the last message."""
        first = self.past[0].role if self.past else self.messages and self.messages[0]["role"]
        if first in ("assistant", []):
            begin = {"role": "user", "content": [text_block(_BEGIN)]}
            if self.past:
                self.past.insert(0, _freeze(begin))
            else:
                self.messages.insert(0, begin)
            self._report.append("input: a user message is put before it, as the API demands")
        last = self.messages[-1]
        block = last["content"][-1]
        if last["role"] == "assistant" and isinstance(block, dict) and block["type"] == "text":
            block["text"] = block["text"].rstrip()

    def report(self) -> list[str]:
        """Return what could not be sent."""
        return [*self._report, *note_dropped(self._foreign), *_note_unsigned(self._unsigned)]

    def _say(self, said: Said) -> None:
        item, where = said.item, f"input[{said.index}]"
        if item.get("type") == "function_call_output":
            blocks = self._content.write(item.get("output"), f"{where}.output")
            label = text_block(f"Output of a tool call ({item['call_id']}):")
            self._add("user", [label, *blocks])
            return
        blocks = self._content.write(item.get("content"), f"{where}.content")
        role = item.get("role")
        if role in _SYSTEM:
            self._add_system(blocks, where, str(role))
        else:
            self._add("user", blocks)

    def _add_system(self, blocks: list[Block], where: str, role: str) -> None:
        if not self.messages:  # some are always open once there was one
            self.system += blocks
        elif self._mid_system:
            self._add("system", blocks)
        else:
            self._report.append(f"{where} ({role} message): sent as a text of the user")
            for block in blocks:
                block["text"] = _REMINDER.format(block.get("text", ""))
            self._add("user", blocks)

    def _act(self, turn: Turn) -> None:
        calls = turn.calls
        if not turn.messages and not calls:
            self._unsigned += [index for index, _ in turn.reasoning]
            return
        written: list[tuple[int, list[Block | msgspec.Raw]]] = []
        written += [(index, self._thought(index, item)) for index, item in turn.reasoning]
        written += [(index, self._message(index, item)) for index, item in turn.messages]
        ids = {call: tool_use_id_of(self._ids.claim(call.id)) for call in calls}
        written += [(call.index, [self._call(call, ids[call])]) for call in calls]
        written.sort(key=lambda entry: entry[0])
        self._add("assistant", [block for _, blocks in written for block in blocks])
        if calls:
            self._add("user", [self._result(call.result, ids[call]) for call in calls])

    def _add(self, role: str, blocks: Sequence[Block | msgspec.Raw]) -> None:
        """Add blocks to the last message if it has the same role, else in a new one."""
        if not blocks:
            return
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": [*blocks]})

    # What an assistant message is made of.

    def _thought(self, index: int, item: Item) -> list[Block | msgspec.Raw]:
        state = native_of(item, WIRE, self._account)
        if state is not None:
            return [msgspec.Raw(state.data)]
        if state_of(item) is not None:
            self._foreign.append(index)
        elif item.get("encrypted_content") or text_of(item.get("content") or item.get("summary")):
            self._unsigned.append(index)
        return []

    def _message(self, index: int, item: Item) -> list[Block | msgspec.Raw]:
        where = f"input[{index}]"
        if item_type(item) == PAUSED:
            return self._paused(item, where)
        blocks = native_blocks(item)
        if blocks is not None:
            return [{**block} for block in blocks]  # a mark of the cache may be set there
        return [*self._content.write(item.get("content"), f"{where}.content")]

    def _paused(self, item: Item, where: str) -> list[Block | msgspec.Raw]:
        state = native_of(item, WIRE, self._account)
        if state is None:
            self._report.append(f"{where} ({PAUSED}): it is not an answer of this provider")
            return []
        return [*_decode_blocks(state.data)]

    def _call(self, call: Call, call_id: str) -> Block:
        return _with_cache(
            call.item,
            {
                "type": "tool_use",
                "id": call_id,
                "name": call.item["name"],
                "input": self._input(call),
            },
        )

    def _input(self, call: Call) -> msgspec.Raw:
        """Return the arguments as they are; what is no JSON object is a text in one."""
        arguments = str(call.item.get("arguments") or "{}")
        if not _is_object(arguments):
            why = "no JSON object; sent as a text in one"
            self._report.append(f"input[{call.index}].arguments: {why}")
            return msgspec.Raw(msgspec.json.encode({"arguments": arguments}))
        return msgspec.Raw(arguments.encode())

    def _result(self, result: Entry | None, call_id: str) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": call_id}
        if result is None:
            return {**block, "content": _NO_OUTPUT}
        index, item = result
        output = item.get("output")
        is_error = item.get("status") == "incomplete"
        content: str | list[Block] = (
            output
            if isinstance(output, str)
            else self._content.write(output, f"input[{index}].output")
        )
        if is_error:
            content = _without_prefix(content)
        if content:
            block["content"] = content
        return _with_cache(item, {**block, "is_error": True} if is_error else block)


def _with_cache(item: Item, block: Block) -> Block:
    cache = item.get("cache_control")
    return block if cache is None else {**block, "cache_control": cache}


def _without_prefix(content: str | list[Block]) -> str | list[Block]:
    """Return the output of a failed call without its prefix: the API has a field for that."""
    if isinstance(content, str):
        return content.removeprefix(ERROR_PREFIX)
    if not content or content[0]["type"] != "text":
        return content
    first = {**content[0], "text": content[0]["text"].removeprefix(ERROR_PREFIX)}
    return [first, *content[1:]] if first["text"].strip() else content[1:]


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _note_unsigned(indexes: Sequence[int]) -> list[str]:
    if not indexes:
        return []
    more = f" (and {len(indexes) - 1} more)" if len(indexes) > 1 else ""
    why = "thinking is taken back only with the signature of this provider"
    return [f"input[{indexes[0]}] (reasoning): {why}{more}"]
