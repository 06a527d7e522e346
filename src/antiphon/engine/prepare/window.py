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
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

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
_CARED_FOR: Final = frozenset({"reasoning", "compaction", TRIGGER})
"""What is not always shown as it is."""
_SEALED: Final = 1
"""To be opened by itself."""
_MEMORY: Final = 2
"""To be shown instead of what came before it."""
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
        if _CARED_FOR.isdisjoint(items.types):
            return items, []
        care = items.fold(_care_for, 0, _note_care)
        if care < _MEMORY:
            return _uncover_thread(items, owner, sealer) if care else (items, [])
    elif not any(_care_for(item) for item in items):
        return list(items), []
    opener = _Opener(owner, sealer)
    start, shown = opener.recall(items)
    shown += opener.uncover(items, start, len(items))
    return shown, opener.notes()


class _Uncovered(NamedTuple):
    """The items of a thread before `place`, opened by `sealer` for `owner`."""

    owner: str
    sealer: Sealer | None
    place: int = 0
    shown: Thread = Thread()
    foreign: tuple[int, ...] = ()


def _uncover_thread(
    items: Thread, owner: str, sealer: Sealer | None
) -> tuple[Sequence[Item], list[str]]:
    """Open the reasoning of a thread, which remembers what it holds."""
    known: _Uncovered | None = items.recall(_uncover_thread)
    if known is None or known.owner != owner or known.sealer is not sealer:
        known = _Uncovered(owner, sealer)
    opener = _Opener(owner, sealer, known.foreign)
    if known.place < items.lasting:
        new = opener.uncover(items, known.place, items.lasting)
        shown = known.shown.grow(new, items.weight - known.shown.weight)
        known = _Uncovered(owner, sealer, items.lasting, shown, opener.foreign)
        items.learn(_uncover_thread, known)
    tail = opener.uncover(items, items.lasting, len(items))
    return known.shown.with_tail(tail), opener.notes()


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

    def __init__(self, owner: str, sealer: Sealer | None, foreign: Iterable[int] = ()) -> None:
        self._owner = owner
        self._sealer = sealer
        self._closed: list[int] = []
        self._foreign: list[int] = [*foreign]

    @property
    def foreign(self) -> tuple[int, ...]:
        """Where reasoning stands that did not open."""
        return tuple(self._foreign)

    def recall(self, items: Sequence[Item]) -> tuple[int, list[Item]]:
        """Return where the items begin that are shown as they are, and what comes before."""
        places = [at for at, item in enumerate(items) if item.get("type") == "compaction"]
        for index in reversed(places):
            memory = self._open(items[index].get("encrypted_content"), "compaction", Memory)
            if memory is not None:
                return index + 1, remember(_with_states(memory), items[:index])
            self._closed.append(index)
        return 0, []

    def uncover(self, items: Sequence[Item], start: int, end: int) -> list[Item]:
        """Return the items between these places, with their reasoning opened."""
        shown: list[Item] = []
        for index in range(start, end):
            item = items[index]
            kind = item.get("type")
            if kind == "reasoning" and seal_of(item):
                shown += self._think(index, item)
            elif kind not in ("compaction", TRIGGER):
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
        readable = item.copy()
        readable.pop("encrypted_content", None)
        readable.pop(NATIVE, None)
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


def _care_for(item: Item) -> int:
    """Return 0 if an item is shown as it is, and which care it needs otherwise."""
    kind = item_type(item)
    if kind == "reasoning":
        return _SEALED if seal_of(item) else 0
    return _MEMORY if kind in ("compaction", TRIGGER) else 0


def _note_care(most: int, _: int, item: Item) -> int:
    return max(most, _care_for(item))


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
