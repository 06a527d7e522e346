"""Facet `native_states`: what a provider must get back with a call of an earlier answer.

A caller of some doors sends back the calls of an answer, but not the state that came before them.
So it is kept here by owner and call id, as bytes that mean nothing to the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

__all__ = ["MAX_STATES", "MAX_STATE_BYTES", "STATE_SECONDS", "NativeStates", "key_of_call"]

STATE_SECONDS: Final = 7 * 86_400
"""How long a state is of use."""

MAX_STATES: Final = 2_000
"""How many calls of one owner are remembered; the oldest are removed first."""
MAX_STATE_BYTES: Final = 64 * 1024 * 1024
"""How many bytes they may take together."""


def key_of_call(call_id: str) -> bytes:
    """Return what a call is found by: ids of models may be long, and hold any character."""
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest()


class NativeStates(Protocol):
    """The states by owner and call id. `Turns.delete` of the response removes them too."""

    async def keep(
        self, owner: str, response_id: str, states: Mapping[str, bytes], now: int
    ) -> None:
        """Store the states of calls of this response, by call id, in place of older ones.

        Durable on return. Beyond the room of the owner, the oldest are removed.
        """
        ...

    async def find(self, owner: str, call_ids: Sequence[str], since: int) -> dict[str, bytes]:
        """Return the states of these calls that were stored at this time or later, by call id."""
        ...

    async def expire(self, before: int) -> None:
        """Remove the states of all owners that were stored before this time."""
        ...
