"""Host messages in, Responses items and instructions out.

Rules, in the order in which a reader asks for them:

- A message is split where a call, a result or a thought stands: these are items of their own.
  The order of the parts is kept. Empty texts, empty data and empty messages are dropped.
- User and system text is `input_text`, assistant text `output_text`. Neighbouring texts of the
  assistant are joined, because a host that keeps what it was sent holds one part per delta.
- System messages before anything else become `instructions`, blank lines between them; a later
  one stays in its place as a `system` message, for its place may matter.
- Data goes as text, image or file, as `content` says. Only user messages can hold images and
  files, so those of an assistant or system message move to a user message of their own, right
  behind what was said before. It waits while calls have no result yet, for some servers want
  a result directly behind its call; the next message ends the waiting.
- A call is never rendered as text; that of a custom tool is a `custom_tool_call`, and its result
  too (a server that has none gets functions). A result is one string, its texts joined by
  newlines; if it holds images or files it is a list of parts, or (`tool_images="message"`) the
  string with the rest in a user message behind it. A result without content is `""`, not the
  `"{}"` of early translators: a model reads that as an empty object which the tool gave. The
  protocol has no flag for a failed tool, so its text goes as it is; with no text at all it is
  `"Error"`.
- A thought goes back only if the server can know it again: encrypted, or with its id if the
  server keeps what it thought. Parts of one id are one `reasoning` item, where the first of them
  stood. Any other thought is left out: a server would take it for something the assistant said.
- An item that the adapter showed as data, because no part stands for it, is that item again. But
  what the server itself ran belongs to the thought before it: a server that finds the id of one
  refuses it without the other. Directly behind a thought that goes back, and of a model that
  does not reason, it goes as it came; otherwise a search goes without its id, and of the others,
  which need theirs, the answer has to speak.
- A link that the adapter put behind a text is no part of the answer and left out. It is known by
  its form: a text of its own that is exactly ` [title](address)`, in a message that has spoken.
- A message's `name` is left out: items have no place for it.

Nothing here checks sizes or tool limits; the client does.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, assert_never

import msgspec

from antiphon.client.history import HOSTED
from antiphon.host.content import translate_content
from antiphon.host.data import ITEM_MIME, show_annotation
from antiphon.protocol.codec import decode_json
from antiphon.protocol.items import Item
from antiphon.protocol.items import Part as WirePart
from antiphon.wires.host.parts import (
    DataPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UrlPart,
    check_messages,
)

__all__ = [
    "TranslateSettings",
    "Translation",
    "translate_messages",
]

_log: Final = logging.getLogger("antiphon.host")

# What a server runs by itself, at the end of a thought.
_HOSTED: Final = HOSTED - {"mcp_list_tools"}
_LINK: Final = re.compile(r" \[(.+)\]\((https?://[^()]+)\)", re.IGNORECASE | re.DOTALL)
_ESCAPE: Final = re.compile(r"\\([\\\[\]])")


class TranslateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to translate; the defaults are for a server that takes all of Open Responses.

    `call_prefix` is what the adapter put before call ids; it is taken off again.
    `tool_images` says where the images of tool results go: with the result, or in a user
    message behind it, for servers that take only strings. `keeps_reasoning` False leaves all
    thoughts out, for a model that did not think them. `is_stored` False says that the server
    kept none of its answers (`store=False`), so that only encrypted thoughts go back.
    `may_reason` False says that the model never thinks. `custom_calls` False turns calls of
    custom tools into those of functions. `inline_links` False says that the adapter put no links
    into the text. `system_prompt` goes before the system messages.
    """

    call_prefix: str = ""
    tool_images: Literal["content", "message"] = "content"
    keeps_reasoning: bool = True
    is_stored: bool = True
    may_reason: bool = True
    custom_calls: bool = True
    inline_links: bool = True
    system_prompt: str = ""


_DEFAULTS: Final = TranslateSettings()


class Translation(msgspec.Struct, frozen=True):
    """What to send: the input, and the instructions if there are any."""

    items: list[Item]
    instructions: str | None


def translate_messages(
    messages: Sequence[Message], settings: TranslateSettings = _DEFAULTS
) -> Translation:
    """Return the messages as items and instructions. The rules stand at the top of this module.

    Raise UnsupportedContent for data that is of no media type and no marker.
    """
    check_messages(messages)
    writer = _MessageTranslator(settings, _sealed_ids(messages))
    for message in messages:
        writer.write(message)
    return writer.finish()


class _MessageTranslator:
    """Writes one conversation.

    `_content` belongs to the message that is open. `_moved` is what its own message could not
    hold. `_waiting` are the calls that have no result yet, `_custom` those of custom tools.
    """

    def __init__(self, settings: TranslateSettings, sealed_ids: frozenset[str]) -> None:
        self._settings = settings
        self._sealed_ids = sealed_ids
        self._items: list[Item] = []
        self._instructions: list[str] = [settings.system_prompt]
        self._role = Role.USER
        self._is_leading = True
        self._content: list[WirePart] = []
        self._moved: list[WirePart] = []
        self._has_spoken = False
        self._waiting: set[str] = set()
        self._custom: set[str] = set()
        self._thoughts: dict[str, _OpenThought] = {}
        self._loose = _OpenThought()

    def write(self, message: Message) -> None:
        """Write a message, as several items where it cannot be one."""
        self._role = message.role
        self._has_spoken = False
        is_first = not self._items and not self._moved
        self._is_leading = message.role is Role.SYSTEM and is_first
        if self._is_leading:
            self._instructions.append("")
        for part in message.content:
            self._write_part(part)
        self._loose = _OpenThought()
        self._close_message()

    def finish(self) -> Translation:
        """Return what was written."""
        self._close_moved()
        for thought in self._thoughts.values():
            thought.complete()
        instructions = "\n\n".join(text for text in self._instructions if text)
        return Translation(self._items, instructions or None)

    def _write_part(self, part: Part) -> None:
        if isinstance(part, ThinkingPart):
            self._think(part)
            return
        self._loose = _OpenThought()
        match part:
            case TextPart():
                is_answer = self._role is Role.ASSISTANT and self._has_spoken
                if not (is_answer and self._settings.inline_links and _is_link(part)):
                    self._say(part.value)
            case DataPart() | UrlPart():
                self._show(part)
            case ToolCallPart():
                self._call(part)
            case ToolResultPart():
                self._answer(part)
            case _:
                assert_never(part)

    def _say(self, text: str) -> None:
        if self._is_leading:
            self._instructions[-1] += text
        elif text:
            self._has_spoken = True
            self._content.append({"type": "input_text", "text": text})

    def _show(self, part: DataPart | UrlPart) -> None:
        item = _read_item(part) if isinstance(part, DataPart) else None
        if item is not None:
            self._replay(item)
            return
        shown = translate_content(part)
        if shown is None:
            return
        if shown["type"] == "input_text":
            self._say(shown["text"])
        elif self._role is Role.USER:
            self._content.append(shown)
        else:
            self._close_message()
            self._moved.append(shown)

    def _replay(self, item: Item) -> None:
        """Add an item of the server's own, as far as it can stand without its thought."""
        kind = item["type"]
        if kind in _HOSTED and self._settings.may_reason and not self._is_behind_thought():
            if kind != "web_search_call":
                _log.debug("a %s is not sent without the thought before it", kind)
                return
            item = {name: value for name, value in item.items() if name != "id"}
        self._append(item)

    def _is_behind_thought(self) -> bool:
        is_open = bool(self._content or self._moved)
        return not is_open and bool(self._items) and self._items[-1]["type"] == "reasoning"

    def _call(self, part: ToolCallPart) -> None:
        call_id = self._plain_id(part.call_id)
        call: Item = {"type": "function_call", "call_id": call_id, "name": part.name}
        if part.kind == "custom" and self._settings.custom_calls:
            self._custom.add(call_id)
            text = part.input.get("input")
            call["type"] = "custom_tool_call"
            call["input"] = text if isinstance(text, str) else _to_json(part.input)
        else:
            call["arguments"] = _to_json(part.input)
        self._append(call)
        self._waiting.add(call_id)

    def _answer(self, part: ToolResultPart) -> None:
        call_id = self._plain_id(part.call_id)
        self._waiting.discard(call_id)
        self._close_message()
        output = self._output(part)
        kind = "custom_tool_call_output" if call_id in self._custom else "function_call_output"
        self._items.append({"type": kind, "call_id": call_id, "output": output})

    def _output(self, part: ToolResultPart) -> str | list[WirePart]:
        """Return the output of a result. What cannot go with it is put aside."""
        shown = [translate_content(content) for content in part.content]
        parts = [content for content in shown if content is not None]
        if not parts:
            return "Error" if part.is_error else ""
        others = [content for content in parts if content["type"] != "input_text"]
        if others and self._settings.tool_images == "content":
            return parts
        self._moved += others
        return "\n".join(content["text"] for content in parts if content["type"] == "input_text")

    def _think(self, part: ThinkingPart) -> None:
        if not self._settings.keeps_reasoning:
            return
        if not part.id:
            self._loose.add(part)
            if self._loose.is_sealed:
                self._append(self._loose.complete())
                self._loose = _OpenThought()
            return
        self._loose = _OpenThought()
        if not self._settings.is_stored and part.id not in self._sealed_ids:
            return
        thought = self._thoughts.get(part.id)
        if thought is None:
            thought = self._thoughts[part.id] = _OpenThought(part.id)
            self._append(thought.item)
        thought.add(part)

    def _append(self, item: Item) -> None:
        """Add a call or a thought, with which the model begins something new."""
        self._close_message()
        if not self._waiting:
            self._close_moved()
        self._items.append(item)

    def _close_message(self) -> None:
        if not self._content:
            return
        self._close_moved()
        content = self._content
        if self._role is Role.ASSISTANT:
            text = "".join(part["text"] for part in content)
            content = [{"type": "output_text", "text": text, "annotations": []}]
        self._items.append({"type": "message", "role": self._role.value, "content": content})
        self._content = []

    def _close_moved(self) -> None:
        if self._moved:
            self._items.append({"type": "message", "role": "user", "content": self._moved})
            self._moved = []

    def _plain_id(self, call_id: str) -> str:
        return call_id.removeprefix(self._settings.call_prefix)


class _OpenThought:
    """A reasoning item in the making: the pieces of its text come one by one."""

    def __init__(self, item_id: str | None = None) -> None:
        self.item: Item = {"type": "reasoning", "summary": []}
        if item_id is not None:
            self.item["id"] = item_id
        self._texts: list[str] = []

    @property
    def is_sealed(self) -> bool:
        return "encrypted_content" in self.item

    def add(self, part: ThinkingPart) -> None:
        self._texts.append(part.value)
        if sealed := _seal_of(part):
            self.item["encrypted_content"] = sealed

    def complete(self) -> Item:
        text = "".join(self._texts)
        if text:
            self.item["summary"] = [{"type": "summary_text", "text": text}]
        return self.item


def _sealed_ids(messages: Sequence[Message]) -> frozenset[str]:
    """Return the ids of thoughts that some part holds encrypted."""
    thoughts = (
        part
        for message in messages
        for part in message.content
        if isinstance(part, ThinkingPart) and _seal_of(part)
    )
    return frozenset(part.id for part in thoughts if part.id)


def _seal_of(part: ThinkingPart) -> str:
    sealed = part.metadata.get("encrypted_content")
    return sealed if isinstance(sealed, str) else ""


def _read_item(part: DataPart) -> Item | None:
    """Return the item that the adapter showed as data, or None for any other data."""
    if part.mime != ITEM_MIME:
        return None
    item = decode_json(part.data)
    return item if isinstance(item, dict) and isinstance(item.get("type"), str) else None


def _is_link(part: TextPart) -> bool:
    """Return whether a text is exactly what the adapter makes of a note with an address."""
    found = _LINK.fullmatch(part.value)
    if found is None:
        return False
    words, address = _ESCAPE.sub(r"\1", found[1]), found[2]
    # A note without a title shows its address instead, as it was before it was made safe.
    notes = ({"title": words, "url": address}, {"url": words})
    links = [show_annotation({"type": "url_citation", **note}, "inline") for note in notes]
    return [part] in links


def _to_json(value: Mapping[str, Any]) -> str:
    """Return a call's input as the JSON it was; a mapping of any kind is an object."""
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=dict
    )
