"""Reload all workers, or none: the parent reads the file once, then the workers vote.

    IDLE -> read the file, ask all -> VOTING -> all could: apply ──────────> SETTLING -> IDLE
                 └── it is wrong ────────┴──── one could not: discard ─────────┘

Each worker reads the file again and must find what the parent has found. A worker that ends is
not waited for: the one that takes its place starts with the settings of the parent, and only
when the vote is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

from antiphon.gateway.errors import BadSettings
from antiphon.gateway.notify import ServiceManager
from antiphon.gateway.reload_requests import REFUSED
from antiphon.gateway.worker_line import Line, Message

__all__ = ["ReloadVote", "SharedSettings"]

_log = logging.getLogger(__name__)
_VOTE_SECONDS: Final = 60.0


class SharedSettings(Protocol):
    """The settings that new workers start with."""

    def read(self) -> str:
        """Read and check them again; return their digest. Raise BadSettings."""

    def adopt(self) -> str:
        """Use what was read last from now on; return a sentence about it."""


class ReloadVote:
    """The reloads of one parent, one after the other. `lines` returns those of living workers."""

    def __init__(
        self,
        settings: SharedSettings,
        manager: ServiceManager,
        lines: Callable[[], Mapping[int, Line]],
    ) -> None:
        self._settings = settings
        self._manager = manager
        self._lines = lines
        self._phase: Literal["idle", "voting", "settling"] = "idle"
        self._missing: set[int] = set()
        self._is_asked = False
        self.deadline = float("inf")
        """When those that have not answered are waited for no longer."""

    @property
    def is_voting(self) -> bool:
        """Whether it is not decided which settings a new worker starts with."""
        return self._phase == "voting"

    def ask(self) -> None:
        """Reload now, or again after the reload that is under way."""
        if self._phase != "idle":
            self._is_asked = True
            return
        self._manager.reloading()
        try:
            digest = self._settings.read()
        except BadSettings as error:
            self._refuse(str(error))
            return
        self._phase = "voting"
        self._send(Message("prepare", digest))

    def note(self, index: int, message: Message) -> None:
        """Take the answer of a worker."""
        if index not in self._missing:
            return  # it answers to a reload that is over
        match self._phase, message.kind:
            case "voting", "refused":
                self._refuse(message.text)
            case ("voting", "prepared") | ("settling", "done"):
                self.lose(index)

    def lose(self, index: int) -> None:
        """Wait for this worker no longer: it has answered, or has ended."""
        self._missing.discard(index)
        if self._missing or self._phase == "idle":
            return
        if self._phase == "voting":
            self._apply()
        else:
            self._end()

    def expire(self) -> None:
        """Give up if an answer is too late."""
        if time.monotonic() < self.deadline:
            return
        late = ", ".join(map(str, sorted(self._missing)))
        if self._phase == "voting":
            self._refuse(f"worker {late} did not answer in {_VOTE_SECONDS:.0f} s")
        else:
            _log.error("worker %s did not report that the reload is over", late)
            self._end()

    def _apply(self) -> None:
        done = self._settings.adopt()
        self._manager.describe(done)
        self._phase = "settling"
        self._send(Message("apply"))

    def _refuse(self, reason: str) -> None:
        _log.error(REFUSED, reason)
        self._manager.describe(REFUSED % reason)
        self._phase = "settling"
        self._send(Message("discard"))

    def _send(self, message: Message) -> None:
        self.deadline = time.monotonic() + _VOTE_SECONDS
        lines = self._lines()
        self._missing = set(lines)
        for line in lines.values():
            line.send(message)
        if not lines:  # all are about to be replaced
            self._missing = {-1}
            self.lose(-1)

    def _end(self) -> None:
        self._phase, self._missing, self.deadline = "idle", set(), float("inf")
        self._manager.ready()
        if self._is_asked:
            self._is_asked = False
            self.ask()
