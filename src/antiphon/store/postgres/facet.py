"""What do the facets of one store in PostgreSQL share?"""

from __future__ import annotations

from antiphon.store.postgres.bell import Bell
from antiphon.store.postgres.database import Database
from antiphon.store.postgres.flusher import Flusher
from antiphon.store.postgres.node import Node
from antiphon.store.waiting import Waiters

__all__ = ["Facet"]


class Facet:
    """The connections, the lease and the waiting callers of one store."""

    def __init__(self, url: str, patience: float) -> None:
        self._database = Database(url, patience)
        self._waiters = Waiters()
        self._node = Node(self._database, self._waiters, patience)
        self._bell = Bell(self._database, self._waiters)
        self._flusher = Flusher(self._database, self._node.renew, self._bell.ring, patience)
        self.pulse = self._flusher.pulse
        self._is_closed = False
