"""Facet `tool_calls`: which calls of hosted tools may have run, and which approvals were used.

A call that may have effects is started once. Where a turn keeps a log, the log has its intent.
Where it keeps none, a row here has it, with a digest instead of the arguments. The rows go with
their response; those of a response that is not stored are removed when it has ended.

An approval serves one call. Unlike a claim (`claims`) it never gives way: its call may have run
although no response shows it. It is kept as long as the response that asked for it, and, if that
is not stored, as long as responses are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["Intent", "ToolCalls"]


class Intent(msgspec.Struct, frozen=True):
    """A call is about to start. `call` is its id in the response, `digest` that of what it asks."""

    call: str
    kind: str
    digest: bytes


class ToolCalls(Protocol):
    """The journal of hosted calls. `Turns.delete` and `sweep` remove what belongs to a response."""

    async def intend(
        self, owner: str, response_id: str, intents: Sequence[Intent], now: int
    ) -> None:
        """Store that these calls are about to start. Durable on return."""
        ...

    async def find(self, owner: str, response_id: str) -> list[Intent]:
        """Return the calls of this response that may have run, in the order they were stored."""
        ...

    async def forget(self, owner: str, response_id: str) -> None:
        """Remove the calls of a response that is not stored and has ended."""
        ...

    async def claim_approval(self, owner: str, request_id: str, response_id: str, now: int) -> bool:
        """Use an approval for this response, durable on return; return whether it was free.

        The response that has it already may claim it again: it was queued, and did not run.
        """
        ...

    async def approval_holder(self, owner: str, request_id: str) -> str | None:
        """Return the response that has an approval, if one has it."""
        ...

    async def release_approval(self, owner: str, request_id: str, response_id: str) -> None:
        """Make an approval free again that this response has, because its call did not start."""
        ...
