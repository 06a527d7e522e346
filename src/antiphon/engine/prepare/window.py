"""What of a context is the model shown? Sealed items are opened, and what they replace goes.

The last compaction item that opens stands for what came before it:

    system and developer messages, and user messages it does not know, as they are;
    the messages it kept, its summary as a user message, then the items it kept behind that;
    whatever follows it.

Sealed reasoning gets its content back, and the native state that was sealed with it: this is on
the item under `NATIVE`, for the wire that can use it. A stored item that its caller sees without
a seal has the seal under the same key. What cannot be opened is left out and named
in the notes, and nothing else is left out because of it. Nothing here asks a model.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from antiphon.engine.prepare.seal import HOW_TO, Sealer
from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item, as_given, item_type, text_of
from antiphon.protocol.native_state import ABANDONED, NATIVE, seal_of, state_of, without_state
from antiphon.protocol.thread import Thread

__all__ = [
    "TRIGGER",
    "Memory",
    "digest_of",
    "is_standing",
    "is_user_message",
    "open_context",
    "reasoning_seal",
    "remember",
    "seal_memory",
]

_T = TypeVar("_T")

TRIGGER: Final = "compaction_trigger"

_HEADING: Final = (
    "[Notes I wrote for myself when the earlier conversation was compacted. They stand for all "
    "that is not shown any more. Go on from here; do not mention them.]\n\n"
)
_DIGEST_BYTES: Final = 12
_SYSTEM: Final = frozenset({"system", "developer"})
# Items that set the scene for any reader.
_SCENE: Final = frozenset({"additional_tools", "configuration_update"})
_CANNOT_OPEN: Final = "it was not sealed here for this owner, so what it stands for is left out"
_FOREIGN_REASONING: Final = "encrypted_content of another server or owner"


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction item seals.

    `before` are user messages it kept word for word, `behind` items that follow the summary.
    `covered` are the digests of user messages that must not be shown beside it. `states` are the
    native states of `behind`, by place, while it is sealed: JSON has no place for them in an item.
    """

    summary: str
    before: list[Item] = []
    behind: list[Item] = []
    covered: list[str] = []
    states: dict[int, NativeState] = {}


class _Thought(msgspec.Struct, frozen=True, omit_defaults=True):
    """What sealed reasoning holds. Fields that later versions add are passed over."""

    content: list[dict[str, Any]] = []
    summary: list[dict[str, Any]] = []
    native: NativeState | None = None


def seal_memory(memory: Memory, owner: str, sealer: Sealer) -> Item:
    """Return the compaction item that holds this; it has no id yet."""
    states = {place: state for place, item in enumerate(memory.behind) if (state := state_of(item))}
    behind = [without_state(item) for item in memory.behind]
    written = msgspec.structs.replace(memory, behind=behind, states=states)
    sealed = sealer.seal(owner, "compaction", msgspec.json.encode(written))
    return {"type": "compaction", "encrypted_content": sealed}


def reasoning_seal(sealer: Sealer, owner: str) -> Callable[[Item, NativeState | None], str]:
    """Return the function that gives a reasoning item its `encrypted_content`."""

    def seal(item: Item, state: NativeState | None) -> str:
        thought = _Thought(item.get("content") or [], item.get("summary") or [], state)
        return sealer.seal(owner, "reasoning", msgspec.json.encode(thought))

    return seal


def open_context(
    items: Sequence[Item], owner: str, sealer: Sealer | None
) -> tuple[Sequence[Item], list[str]]:
    """Return what the model is shown of these items, and notes on what could not be opened."""
    if isinstance(items, Thread):
        if not items.fold(_needs_care, False, _note_care):
            return items, []
    elif not any(_needs_care(item) for item in items):
        return list(items), []
    opener = _Opener(owner, sealer)
    start, shown = opener.recall(items)
    shown += opener.uncover(items, start)
    return shown, opener.notes()


def remember(memory: Memory, earlier: Sequence[Item]) -> list[Item]:
    """Return what is shown instead of `earlier`."""
    covered = frozenset(memory.covered)
    # What stands before another compaction item was that one's affair.
    others = [index for index, item in enumerate(earlier) if item_type(item) == "compaction"]
    since = others[-1] if others else -1
    stay = [
        item
        for index, item in enumerate(earlier)
        if is_standing(item)
        or (index > since and is_user_message(item) and digest_of(item) not in covered)
    ]
    return [*stay, *memory.before, _summary_message(memory.summary), *memory.behind]


def is_user_message(item: Item) -> bool:
    """Return whether this is a user message. Our own notes are not."""
    if item_type(item) != "message" or item.get("role") != "user":
        return False
    return not text_of(item.get("content")).startswith(_HEADING)


def is_standing(item: Item) -> bool:
    """Return whether the item sets the scene and outlives every compaction."""
    kind = item_type(item)
    return kind in _SCENE or (kind == "message" and item.get("role") in _SYSTEM)


def digest_of(message: Item) -> str:
    """Return what a message is known by, however its text is written down."""
    content = as_given(message).get("content")
    parts = content if isinstance(content, list) else []
    others = [part for part in parts if text_of([part]) == ""]
    said = msgspec.json.encode([text_of(content), others], order="deterministic")
    digest = hashlib.sha256(said).digest()[:_DIGEST_BYTES]
    return base64.urlsafe_b64encode(digest).decode()


class _Opener:
    """Opens what one owner is shown, and remembers what does not open."""

    def __init__(self, owner: str, sealer: Sealer | None) -> None:
        self._owner = owner
        self._sealer = sealer
        self._closed: list[int] = []
        self._foreign: list[int] = []

    def recall(self, items: Sequence[Item]) -> tuple[int, list[Item]]:
        """Return where the items begin that are shown as they are, and what comes before."""
        for index in range(len(items) - 1, -1, -1):
            if item_type(items[index]) != "compaction":
                continue
            memory = self._open(items[index].get("encrypted_content"), "compaction", Memory)
            if memory is not None:
                return index + 1, remember(_with_states(memory), items[:index])
            self._closed.append(index)
        return 0, []

    def uncover(self, items: Sequence[Item], start: int) -> list[Item]:
        """Return the items from `start` on, with their reasoning opened."""
        shown: list[Item] = []
        for index in range(start, len(items)):
            item = items[index]
            match item_type(item):
                case "compaction" | "compaction_trigger":
                    continue
                case "reasoning" if seal_of(item):
                    shown += self._think(index, item)
                case _:
                    shown.append(item)
        return shown

    def notes(self) -> list[str]:
        why = _CANNOT_OPEN if self._sealer else f"{_CANNOT_OPEN} ({HOW_TO})"
        found = [f"input[{index}] (compaction): {why}" for index in reversed(self._closed)]
        if self._foreign:
            more = f" (and {len(self._foreign) - 1} more)" if len(self._foreign) > 1 else ""
            found.append(f"input[{self._foreign[0]}] (reasoning): {_FOREIGN_REASONING}{more}")
        return found

    def _think(self, index: int, item: Item) -> list[Item]:
        """Return the reasoning item as it can be read, or nothing if it cannot or must not.

        It is opened also if its text is there: native state is only in the seal.
        """
        if item.get(NATIVE) == ABANDONED:
            return []
        readable = {key: item[key] for key in item if key not in ("encrypted_content", NATIVE)}
        thought = self._open(seal_of(item), "reasoning", _Thought)
        if thought is not None and thought.native is not None:
            readable[NATIVE] = thought.native
        if text_of(item.get("content")):
            return [readable]
        if thought is None:
            self._foreign.append(index)
            return [readable] if text_of(item.get("summary")) else []
        readable["content"] = thought.content or None
        readable["summary"] = item.get("summary") or thought.summary
        return [readable]

    def _open(self, text: object, kind: str, shape: type[_T]) -> _T | None:
        if self._sealer is None or not isinstance(text, str):
            return None
        data = self._sealer.open(self._owner, kind, text)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=shape)
        except msgspec.MsgspecError:  # sealed by another version, in a form we do not know
            return None


def _needs_care(item: Item) -> bool:
    kind = item_type(item)
    return kind in ("compaction", TRIGGER) or (kind == "reasoning" and bool(seal_of(item)))


def _note_care(is_needed: bool, _: int, item: Item) -> bool:
    return is_needed or _needs_care(item)


def _with_states(memory: Memory) -> Memory:
    """Return an opened memory with the native states on the items that they belong to."""
    behind = list(memory.behind)
    for place, state in memory.states.items():
        if place < len(behind):
            behind[place] = {**behind[place], NATIVE: state}
    return msgspec.structs.replace(memory, behind=behind, states={})


def _summary_message(summary: str) -> Item:
    # A user message: a template may have no room for another system message here, and takes
    # an assistant message at the end for one to be continued.
    content = [{"type": "input_text", "text": _HEADING + summary}]
    return {"type": "message", "role": "user", "content": content}
