"""A service manager, as far as a gateway can see one: a socket that takes its reports."""

from __future__ import annotations

import select
import socket
from pathlib import Path

from tests.cli.processes import WATCHDOG_SECONDS

__all__ = ["Manager"]


class Manager:
    """The socket of a service manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(str(path))
        self._sock.settimeout(WATCHDOG_SECONDS)

    def next(self) -> str:
        """Wait for a message."""
        return self._sock.recv(4096).decode()

    def until(self, wanted: str) -> list[str]:
        """Return the messages up to the one that is wanted."""
        seen = [self.next()]
        while not seen[-1].startswith(wanted):
            seen.append(self.next())
        return seen

    def pending(self) -> list[str]:
        """Return the messages that have arrived and were not read yet."""
        seen = []
        while select.select([self._sock], [], [], 0)[0]:
            seen.append(self.next())
        return seen

    def close(self) -> None:
        """Listen no longer."""
        self._sock.close()
