"""Facet `native_states` in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from antiphon.store.base.native_states import MAX_STATE_BYTES, MAX_STATES

__all__ = ["MemoryNativeStates"]


class _Kept(NamedTuple):
    response_id: str
    created_at: int
    body: bytes


class MemoryNativeStates:
    """See `NativeStates` for what the methods do."""

    def __init__(self, check_open: Callable[[], None]) -> None:
        self._check_open = check_open
        self._states: dict[str, dict[str, _Kept]] = {}
        """By owner and call id, the oldest first."""

    async def keep(
        self, owner: str, response_id: str, states: Mapping[str, bytes], now: int
    ) -> None:
        self._check_open()
        kept = self._states.setdefault(owner, {})
        for call_id, body in states.items():
            kept.pop(call_id, None)
            kept[call_id] = _Kept(response_id, now, body)
        size = sum(len(state.body) for state in kept.values())
        while len(kept) > MAX_STATES or size > MAX_STATE_BYTES:
            size -= len(kept.pop(next(iter(kept))).body)

    async def find(self, owner: str, call_ids: Sequence[str], since: int) -> dict[str, bytes]:
        self._check_open()
        kept = self._states.get(owner, {})
        found = {call_id: kept[call_id] for call_id in call_ids if call_id in kept}
        return {name: state.body for name, state in found.items() if state.created_at >= since}

    async def expire(self, before: int) -> None:
        self._check_open()
        self._leave(lambda state: state.created_at >= before, list(self._states))

    def forget_response(self, owner: str, response_id: str) -> None:
        """Remove the states of the calls of this response."""
        if owner in self._states:
            self._leave(lambda state: state.response_id != response_id, [owner])

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        return {"native_states": len(self._states.get(owner, ()))}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        self._states.pop(owner, None)

    def clear(self) -> None:
        """Remove everything."""
        self._states.clear()

    def _leave(self, stays: Callable[[_Kept], bool], owners: Sequence[str]) -> None:
        for owner in owners:
            rest = {name: kept for name, kept in self._states[owner].items() if stays(kept)}
            if rest:
                self._states[owner] = rest
            else:
                del self._states[owner]
