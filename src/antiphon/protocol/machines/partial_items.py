"""Items that come into being: what the accumulator knows of each, and how it is put together.

A draft holds what was announced, what was streamed and what a done event held, apart, so that
each can be weighed against the others. Nothing here judges; it joins.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.protocol.halves import join_halves
from antiphon.protocol.items import Item, Part

__all__ = [
    "STREAMED",
    "STREAMING",
    "Draft",
    "GrowingText",
    "PartDraft",
    "TextChannel",
    "call_key",
    "call_payload",
    "copy_json",
    "encode_json",
    "fold_calls",
    "match_drafts",
    "merge",
    "read_json",
    "said_in_call",
    "string_of",
    "substance",
]

_MAX_PIECES: Final = 1024

copy_json: Final[Callable[[Any], Any]] = msgspec.to_builtins


class TextChannel(NamedTuple):
    """Where a streamed text belongs: a field of an item, and a kind of part if it has parts."""

    field: str
    item: str
    part: str
    text: str
    place: str


# The fields a known item can stream, and what it holds before anything was streamed.
_FIELDS: Final[dict[str, frozenset[str]]] = {
    "message": frozenset({"content"}),
    "reasoning": frozenset({"content", "summary"}),
    "function_call": frozenset({"arguments"}),
    "custom_tool_call": frozenset({"input"}),
    "code_interpreter_call": frozenset({"code"}),
    "mcp_call": frozenset({"arguments"}),
}
_ZERO: Final[dict[str, Item]] = {
    "message": {"role": "assistant", "content": [], "status": "in_progress"},
    "reasoning": {"summary": []},
    "function_call": {"call_id": "", "name": "", "arguments": "", "status": "in_progress"},
    "custom_tool_call": {"call_id": "", "name": "", "input": "", "status": "in_progress"},
    "code_interpreter_call": {"code": "", "status": "in_progress"},
    "mcp_call": {"arguments": "", "status": "in_progress"},
}
STREAMING: Final = frozenset(_FIELDS)
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_GROWING: Final = ("content", "summary", "arguments", "input", "code")
# Items that a server runs itself, and that have a status.
_HOSTED: Final = frozenset(
    {
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
    }
)
_OVER: Final = ("completed", "failed")
STREAMED: Final = (*_GROWING, "name", "call_id")
_KEPT: Final = ("type", "role", "encrypted_content", *STREAMED)


class GrowingText:
    """A text that grows until its final form is known."""

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._pieces: list[str] = []
        self._final: str | None = None

    @property
    def value(self) -> str:
        """The text so far. Surrogates that came in two halves are put together."""
        if self._final:
            return self._final
        return join_halves("".join(self._joined) + "".join(self._pieces))

    @property
    def is_final(self) -> bool:
        """Return whether the final form is known."""
        return self._final is not None

    def grow(self, piece: str) -> bool:
        """Add a piece; return whether it was still wanted."""
        if self._final is not None:
            return False
        self._pieces.append(piece)
        if len(self._pieces) >= _MAX_PIECES:
            # A million small strings weigh ten times what their text does.
            self._joined.append("".join(self._pieces))
            self._pieces.clear()
        return True

    def close(self, final: str) -> bool:
        """Set the final form; return whether it agrees with what was known, if anything was.

        An empty text adds nothing: what was known stays, and may still grow.
        """
        known = self.value
        self._final = final or self._final
        return not known or known == final


class PartDraft:
    """A part as far as it was streamed."""

    def __init__(self, index: int, channel: TextChannel) -> None:
        self.index = index
        self.added: Part = {}
        self.done: Part = {}
        self.text = GrowingText()
        self.annotations: dict[int, dict[str, Any]] = {}
        self.logprobs: list[dict[str, Any]] = []
        self._channel = channel

    def part(self) -> Part:
        """Return the part as JSON, a fresh one."""
        field = self._channel.text
        part: Part = copy_json(self.done or self.added) or {"type": self._channel.part, field: ""}
        streamed = self.text.value
        if streamed and not self.done.get(field):
            part[field] = streamed
        if part.get("type") == "output_text":
            notes = [self.annotations[index] for index in sorted(self.annotations)]
            part["annotations"] = part.get("annotations") or copy_json(notes)
            if self.logprobs:
                part["logprobs"] = part.get("logprobs") or copy_json(self.logprobs)
        return part


class Draft:
    """An item as far as it was received: announced, streamed, done, or some of these."""

    def __init__(self, kind: str, index: int) -> None:
        self.kind = kind
        self.index = index
        self.id = ""
        self.call_id = ""
        self.name = ""
        self.added: Item = {}
        self.done: Item = {}
        self.is_confirmed = False
        """Whether a done event or the terminal response held it whole."""
        self.is_guessed = False
        """Whether some of it may belong to another item: its events did not show that."""
        self.sealed: frozenset[str] = frozenset()
        """The fields that cannot grow, because the done item holds them."""
        self._texts: dict[str, GrowingText] = {}
        self._parts: dict[tuple[str, str, int], PartDraft] = {}
        self._latest: dict[tuple[str, str], int] = {}
        self._end: str | None = None

    def can_stream(self, field: str) -> bool:
        """Return whether such an item has such a field; unknown items may have any."""
        return field in _FIELDS.get(self.kind, (field,))

    def fits(self, item: Item) -> bool:
        """Return whether this may be the same item: same type, no other call_id."""
        kind, call_id = string_of(item, "type"), string_of(item, "call_id")
        is_same_call = not call_id or not self.call_id or call_id == self.call_id
        return is_same_call and (kind or self.kind) == self.kind

    def is_same_call(self, item: Item) -> bool:
        """Return whether the item may be this call under other ids: it has all that came."""
        if self.kind not in _CALLS or string_of(item, "type") != self.kind:
            return False
        known = self.item()
        (name, payload), (other_name, other_payload) = call_payload(known), call_payload(item)
        if name and other_name and name != other_name:
            return False
        return payload == other_payload or said_in_call(item).startswith(said_in_call(known))

    def is_told_in(self, index: int, item: Item) -> bool:
        """Return whether a done item with another id, and maybe no place, is this draft's item."""
        if self.fits(item) and self.is_begin_of(item):
            return index >= 0 or self.has_said()
        return self.has_said() and self.is_same_call(item)

    def is_renamed(self, index: int, item: Item) -> bool:
        """Return whether an item with this draft's id and another call_id is this draft's item."""
        is_near = index == self.index or (self.has_said() and not self.done)
        return is_near and self.is_same_call(item)

    def is_told_again(self, index: int, item: Item, *, is_final: bool) -> bool:
        """Return whether an item with this draft's call_id and another id is this draft's item.

        An item that opens beside an announced one is another: its payload decides what it is.
        """
        if not is_final:
            return not self.added
        if self.done:
            return call_payload(self.done) == call_payload(item)
        return index == self.index or self.is_begin_of(item)

    def is_begin_of(self, item: Item) -> bool:
        """Return whether all that was streamed stands in the item too."""
        streamed = self.streamed()
        return all(
            substance(item.get(field)).startswith(substance(streamed.get(field)))
            for field in _GROWING
        )

    def has_said(self) -> bool:
        """Return whether anything but the announcement has arrived."""
        return any(text.value for text in self._texts.values()) or bool(self._parts)

    @property
    def part_count(self) -> int:
        """How many parts were opened so far."""
        return len(self._parts)

    def is_final(self, field: str) -> bool:
        """Return whether the final form of a field without parts was streamed, and is not empty."""
        text = self._texts.get(field)
        return text is not None and text.is_final and bool(text.value)

    def text(self, field: str) -> GrowingText:
        """Return the growing text of a field that has no parts."""
        return self._texts.setdefault(field, GrowingText())

    def part(self, channel: TextChannel, index: int, *, is_new: bool = False) -> PartDraft:
        """Return the part at this index, opening it if need be; the latest if there is none."""
        family = self._family(channel)
        if index < 0:
            index = self._latest.get((channel.field, family), -1) + is_new
            index = max(index, 0)
        self._latest[channel.field, family] = index
        key = (channel.field, family, index)
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = PartDraft(index, channel)
        return part

    def latest_part(self, field: str) -> int:
        """Return the index of the part of this field that an event was last about."""
        return self._latest.get((field, "text"), -1)

    def close(self, told: Item) -> None:
        """Take the item of its done event."""
        self.is_confirmed = True
        self.done = merge(self.done, told) if self.done else told
        self.sealed = frozenset(field for field in _GROWING if substance(self.done.get(field)))

    def advance(self, stage: str) -> None:
        """Note the stage that a hosted item has reached. A preview is no stage of its own."""
        if self.kind in _HOSTED and stage != "partial_image":
            self.added["status"] = stage

    def end(self, status: str) -> None:
        """Let an item that was never done end with this status."""
        stage = self.added.get("status")
        if self.kind == "image_generation_call":
            # It is never incomplete, and one without its item was never received.
            self._end = "failed"
        elif self.kind in _HOSTED:
            self._end = stage if stage in _OVER else "incomplete"
        else:
            self._end = status

    def item(self) -> Item:
        """Return the item as JSON, a fresh one."""
        if self.done:
            # What may be another call's must not make one that was cut off look whole.
            is_cut = self.is_guessed and self.done.get("status") == "incomplete"
            item = merge(copy_json(self.done), {} if is_cut else self.streamed())
        else:
            item = self.streamed()
            if self._end is not None and "status" in item:
                item["status"] = self._end
        if self.id:
            item["id"] = self.id
        if "call_id" in item:
            item["call_id"] = item["call_id"] or self.id
        return item

    def streamed(self) -> Item:
        """Return the item as announced and streamed, without what its done event holds."""
        base: Item = {"type": self.kind} | _ZERO.get(self.kind, {}) | self.added
        item: Item = copy_json(base)
        for field, text in self._texts.items():
            item[field] = text.value or item.get(field, "")
        for field in ("summary", "content"):
            parts = self._parts_of(field)
            if parts:
                item[field] = parts
        if self.name:
            item["name"] = item.get("name") or self.name
        return item

    def _family(self, channel: TextChannel) -> str:
        # Open Responses' own example puts output_text parts into reasoning: one family. But a
        # thought inside a message is no part of its text.
        if channel.part == "reasoning_text" and self.kind == "message":
            return "thought"
        return "refusal" if channel.part == "refusal" else "text"

    def _parts_of(self, field: str) -> list[Part]:
        parts = [part for key, part in self._parts.items() if key[0] == field]
        return [part.part() for part in sorted(parts, key=lambda part: part.index)]


class _Face(NamedTuple):
    """What a draft and an item are compared by."""

    kind: str
    call_id: str
    id: str
    item: Callable[[], Item]

    @property
    def payload(self) -> tuple[str, ...]:
        """What a call asks for; nothing for any other item."""
        if self.kind not in _CALLS:
            return ("",)
        name, said = call_payload(self.item())
        return self.kind, name, f"={said}"


def match_drafts(items: list[Item], drafts: list[Draft]) -> dict[int, Draft]:
    """Return which draft each item was: by call and id, by call, by id, by type and order.

    Some servers give a call a new id and a new call_id in the terminal response: what the id
    does not decide, the payload does, and then how it begins.
    """
    partners: dict[int, Draft] = {}
    for key_of, may_be in _MATCHING:
        taken = {id(draft) for draft in partners.values()}
        queues: dict[tuple[str, ...], deque[Draft]] = {}
        for draft in drafts:
            if id(draft) not in taken:
                key = key_of(_Face(draft.kind, draft.call_id, draft.id, draft.item))
                queues.setdefault(key, deque()).append(draft)
        if not queues or len(partners) == len(items):
            break
        for place, item in enumerate(items):
            if place in partners:
                continue
            key = key_of(_face(item))
            queue = queues.get(key)
            if all(key) and queue and may_be(queue[0], item):
                partners[place] = queue.popleft()
    return partners


def _face(item: Item) -> _Face:
    kind, call_id, item_id = (string_of(item, field) for field in ("type", "call_id", "id"))
    return _Face(kind, call_id, item_id, lambda: item)


_Key = Callable[[_Face], tuple[str, ...]]

# By what they are paired, and what must be true of a pair.
_MATCHING: Final[tuple[tuple[_Key, Callable[[Draft, Item], bool]], ...]] = (
    (lambda face: (face.kind, face.call_id, face.id), Draft.fits),
    (lambda face: (face.kind, face.call_id), Draft.fits),
    (lambda face: (face.id,), Draft.fits),
    (lambda face: face.payload, Draft.is_same_call),
    (lambda face: (face.id,), Draft.is_same_call),
    (lambda face: (face.kind if face.kind in _CALLS else "",), Draft.is_same_call),
    (lambda face: (face.kind,), Draft.fits),
)


def fold_calls(drafts: list[Draft]) -> list[Draft]:
    """Return the drafts without those that repeat a call: same call_id, same payload.

    A draft that has no payload yet adds nothing either.
    """
    groups: dict[tuple[str, str], list[Draft]] = {}
    for draft in drafts:
        if draft.call_id:
            groups.setdefault((draft.kind, draft.call_id), []).append(draft)
    repeats: set[int] = set()
    for group in groups.values():
        if len(group) > 1:
            repeats |= _repeats(group)
    return [draft for draft in drafts if id(draft) not in repeats]


def _repeats(group: list[Draft]) -> set[int]:
    payloads = [call_payload(draft.item()) for draft in group]
    has_payload = any(said for _, said in payloads)
    seen: set[tuple[str, str]] = set()
    repeats = set()
    for draft, payload in zip(group, payloads, strict=True):
        if payload in seen or (has_payload and not payload[1]):
            repeats.add(id(draft))
        seen.add(payload)
    return repeats


def merge(told: Item, weaker: Item) -> Item:
    """Return the item, with what it leaves out or leaves empty from the weaker one."""
    left_out = {
        field: weaker[field]
        for field in _KEPT
        if (weaker.get(field) and not told.get(field)) or _says_more(weaker, told, field)
    }
    return told | left_out


def _says_more(weaker: Item, told: Item, field: str) -> bool:
    return bool(substance(weaker.get(field))) and not substance(told.get(field))


def substance(value: object) -> str:
    """Return the text of a field: the string, or the text of its parts."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    return "".join(
        string_of(part, "text") + string_of(part, "refusal")
        for part in value
        if isinstance(part, dict)
    )


def string_of(fields: dict[str, Any], key: str) -> str:
    """Return a field that should hold a string, or "" if it does not."""
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def call_key(item: Item) -> tuple[str, str] | None:
    """Return what makes a call the same call. Its output has the same call_id, another type."""
    call_id = string_of(item, "call_id")
    return (string_of(item, "type"), call_id) if call_id else None


def call_payload(item: Item) -> tuple[str, str]:
    """Return what makes two calls under one call_id different: name, and arguments or input.

    Arguments that are the same JSON in other words are the same arguments.
    """
    return string_of(item, "name"), _canonical(said_in_call(item))


def said_in_call(item: Item) -> str:
    """Return the arguments or the input of a call, as they came."""
    return substance(item.get("arguments")) or substance(item.get("input"))


def _canonical(text: str) -> str:
    """Return JSON in its one form; other text, such as JSON cut short, as it is."""
    try:
        return encode_json(read_json(text)).decode()
    except (ValueError, RecursionError):
        return text


def encode_json(value: Any) -> bytes:  # Any: JSON of open shape
    """Return the value as JSON in its one form: equal values give equal bytes."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except UnicodeEncodeError:
        # Half an emoji: the one thing that JSON can hold and UTF-8 cannot.
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def read_json(text: str) -> Any:  # Any: JSON of open shape
    """Return the value of JSON. Raise ValueError if it is invalid, RecursionError if too deep."""
    try:
        return msgspec.json.decode(text)
    except ValueError:
        # Half a character, as an escape: JSON allows it, msgspec does not.
        return json.loads(text, parse_constant=_finite, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number
