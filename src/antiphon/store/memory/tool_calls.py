"""Facet `tool_calls` in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from antiphon.store.base.tool_calls import Intent

__all__ = ["MemoryToolCalls"]


class _Approval(NamedTuple):
    response_id: str
    asked_by: str | None
    created_at: int


class MemoryToolCalls:
    """See `ToolCalls` for what the methods do.

    `asked_by` finds the response with an item, `is_stored` whether there is a response.
    """

    def __init__(
        self,
        check_open: Callable[[], None],
        asked_by: Callable[[str, str], str | None],
        is_stored: Callable[[str, str], bool],
    ) -> None:
        self._check_open = check_open
        self._asked_by = asked_by
        self._is_stored = is_stored
        self._intents: dict[tuple[str, str], tuple[int, dict[str, Intent]]] = {}
        self._approvals: dict[tuple[str, str], _Approval] = {}

    async def intend(
        self, owner: str, response_id: str, intents: Sequence[Intent], now: int
    ) -> None:
        self._check_open()
        _, known = self._intents.setdefault((owner, response_id), (now, {}))
        known |= {intent.call: intent for intent in intents}

    async def find(self, owner: str, response_id: str) -> list[Intent]:
        self._check_open()
        _, known = self._intents.get((owner, response_id), (0, {}))
        return list(known.values())

    async def forget(self, owner: str, response_id: str) -> None:
        self._check_open()
        self._intents.pop((owner, response_id), None)

    async def claim_approval(self, owner: str, request_id: str, response_id: str, now: int) -> bool:
        self._check_open()
        wanted = _Approval(response_id, self._asked_by(owner, request_id), now)
        found = self._approvals.setdefault((owner, request_id), wanted)
        return found.response_id == response_id

    async def approval_holder(self, owner: str, request_id: str) -> str | None:
        self._check_open()
        found = self._approvals.get((owner, request_id))
        return None if found is None else found.response_id

    async def release_approval(self, owner: str, request_id: str, response_id: str) -> None:
        self._check_open()
        found = self._approvals.get((owner, request_id))
        if found is not None and found.response_id == response_id:
            del self._approvals[owner, request_id]

    def forget_response(self, owner: str, response_id: str) -> None:
        """Remove what belongs to a response that is removed."""
        self._intents.pop((owner, response_id), None)
        used = [key for key, one in self._approvals.items() if one.asked_by == response_id]
        for key in used:
            if key[0] == owner:
                del self._approvals[key]

    def sweep(self, before: int) -> None:
        """Remove what is older, and belongs to no response."""
        old = [key for key, (at, _) in self._intents.items() if at < before]
        for key in old:
            if not self._is_stored(*key):
                del self._intents[key]
        for name, one in list(self._approvals.items()):
            if one.asked_by is None and one.created_at < before:
                del self._approvals[name]

    def count_of(self, owner: str) -> dict[str, int]:
        """Return how many rows an owner has, by table."""
        calls = (len(known) for (name, _), (_, known) in self._intents.items() if name == owner)
        approvals = sum(name == owner for name, _ in self._approvals)
        return {"tool_calls": sum(calls), "approvals": approvals}

    def forget_owner(self, owner: str) -> None:
        """Remove all rows of an owner."""
        for key in [key for key in self._intents if key[0] == owner]:
            del self._intents[key]
        for key in [key for key in self._approvals if key[0] == owner]:
            del self._approvals[key]

    def clear(self) -> None:
        """Remove everything."""
        self._intents.clear()
        self._approvals.clear()
