"""Which state of its provider does an item of a plan carry?

Native state is what only the provider that made it can read, such as the signature of a thought.
It comes as a `NativeState` delta and travels sealed: in `encrypted_content` if the caller asked for
that, else, in the stored item only, under `NATIVE`. That key is private: no answer shows it. When
the seal is opened for a plan, the state itself is under the key, a value of this process: JSON
cannot express it, so a caller cannot make one. A wire takes it with `native_of`, and reports what
it had to leave out with `note_foreign`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.protocol.deltas import NativeState
from antiphon.protocol.items import Item

__all__ = [
    "ABANDONED",
    "NATIVE",
    "PAUSED",
    "native_of",
    "note_dropped",
    "note_foreign",
    "paused_item",
    "seal_of",
    "state_of",
    "without_state",
]

NATIVE: Final = "antiphon.native"
"""The private key of an item under which its native state is, sealed while it is stored."""

ABANDONED: Final = "abandoned"
"""What a stored reasoning item has under `NATIVE`, instead of a seal, if it came to nothing.

Its model broke off, and another one began anew: no model gets it back.
"""

PAUSED: Final = "antiphon.paused"
"""The type of an item that is an answer which its provider paused, as far as it came.

It is made by the loop of rounds, last in a plan, and on no wire.
"""

_DROPPED: Final = "the state of another provider or account is not sent"


def state_of(item: Item) -> NativeState | None:
    """Return the native state that the item carries, of any wire and account."""
    state = item.get(NATIVE)
    return state if isinstance(state, NativeState) else None


def seal_of(item: Item) -> str | None:
    """Return the sealed text of a reasoning item, wherever it is; None without one."""
    found = item.get("encrypted_content") or item.get(NATIVE)
    return found if isinstance(found, str) and found else None


def native_of(item: Item, wire: str, account: str) -> NativeState | None:
    """Return the native state of the item, or None if it has none of this wire and account."""
    state = state_of(item)
    if state is None or state.wire != wire or state.account != account:
        return None
    return state


def paused_item(state: NativeState) -> Item:
    """Return the item that makes a provider go on with an answer that it paused."""
    return {"type": PAUSED, NATIVE: state}


def without_state(item: Item) -> Item:
    """Return the item as anybody may see it; the same item if it has no native state."""
    return {key: item[key] for key in item if key != NATIVE} if NATIVE in item else item


def note_foreign(items: Sequence[Item], wire: str, account: str) -> list[str]:
    """Return the report of native states that a request of this wire and account leaves out."""
    return note_dropped(
        [
            place
            for place, item in enumerate(items)
            if state_of(item) is not None and native_of(item, wire, account) is None
        ]
    )


def note_dropped(places: Sequence[int]) -> list[str]:
    """Return one note for the native states of the items at these places, none without places."""
    if not places:
        return []
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return [f"input[{places[0]}] (reasoning): {_DROPPED}{more}"]
