"""The whole store: all facets, and what concerns them together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from antiphon.store.base.audit import Audit
from antiphon.store.base.blobs import Blobs
from antiphon.store.base.claims import Claims
from antiphon.store.base.containers import Containers
from antiphon.store.base.conversations import Conversations
from antiphon.store.base.files import Files
from antiphon.store.base.history import Histories
from antiphon.store.base.keys import Keys
from antiphon.store.base.ledger import Ledger
from antiphon.store.base.log import Logs
from antiphon.store.base.native_states import NativeStates
from antiphon.store.base.notices import Notices
from antiphon.store.base.projects import Projects
from antiphon.store.base.rounds import Rounds
from antiphon.store.base.skills import Skills
from antiphon.store.base.tool_calls import ToolCalls
from antiphon.store.base.trees import Trees
from antiphon.store.base.turns import Turns
from antiphon.store.base.vector_stores import VectorStores
from antiphon.store.base.writers import Writers
from antiphon.store.pulse import Pulse

__all__ = ["Store", "sweep_in_steps"]


class Store(Turns, Logs, Histories, Writers, Keys, Protocol):
    """The place where everything durable is kept."""

    @property
    def conversations(self) -> Conversations:
        """Lists of items that grow."""
        ...

    @property
    def claims(self) -> Claims:
        """The requests that were made already."""
        ...

    @property
    def notices(self) -> Notices:
        """The endpoints that must still be informed."""
        ...

    @property
    def native_states(self) -> NativeStates:
        """What providers must get back with the calls of callers that cannot keep it."""
        ...

    @property
    def tool_calls(self) -> ToolCalls:
        """Which calls of hosted tools may have run, and which approvals were used."""
        ...

    @property
    def ledger(self) -> Ledger:
        """What every call of an upstream cost, and how much may be spent."""
        ...

    @property
    def rounds(self) -> Rounds:
        """What upstreams were sent, as far as that is kept."""
        ...

    @property
    def trees(self) -> Trees:
        """Which responses continue which."""
        ...

    @property
    def blobs(self) -> Blobs:
        """The contents of files."""
        ...

    @property
    def files(self) -> Files:
        """What callers have uploaded. Its `sweep` removes what has expired in all four facets."""
        ...

    @property
    def containers(self) -> Containers:
        """The places where code runs."""
        ...

    @property
    def skills(self) -> Skills:
        """Instructions and programs for the hosted shell."""
        ...

    @property
    def vector_stores(self) -> VectorStores:
        """Files made searchable. `files.sweep` empties those that have expired."""
        ...

    @property
    def projects(self) -> Projects:
        """Those who own data."""
        ...

    @property
    def audit(self) -> Audit:
        """Who changed what in the administration."""
        ...

    @property
    def pulse(self) -> Pulse:
        """How its commits went; a store that makes none has counted none."""
        ...

    async def sweep(self, before: int, claims_before: int) -> int:
        """Remove responses created before one time, and claims before the other.

        Return the number of responses. Conversations stay until they are deleted.
        """
        ...

    async def ping(self) -> None:
        """Return if the store can be read and written now."""
        ...

    async def close(self) -> None:
        """Write what is queued, and close files and threads."""
        ...


async def sweep_in_steps(
    sweep: Callable[[int, int], Awaitable[int]], before: int, limit: int
) -> int:
    """Remove what is older than `before`, at most `limit` rows at a time; return how many.

    Others write between the steps.
    """
    removed = found = await sweep(before, limit)
    while found == limit:
        found = await sweep(before, limit)
        removed += found
    return removed
