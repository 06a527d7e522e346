"""What does systemd learn about this process? The protocol of sd_notify, without a library.

With `Type=notify` or `notify-reload` the service manager names a datagram socket in
NOTIFY_SOCKET. A start is reported when connections are answered, a stop and a reload when they
begin, and with `WatchdogSec` a sign of life twice per interval. Without that variable nothing is
sent. A manager that does not listen is no reason to stop serving, so a lost datagram is logged.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping

__all__ = ["ServiceManager"]

_log = logging.getLogger(__name__)


class ServiceManager:
    """The manager that started this process, if there is one. Only the first process talks to it.

    The variables are taken out of the environment: programs that we start are not the service.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        interval, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        is_watched = bool(self._address) and interval.isdecimal() and pid in ("", str(os.getpid()))
        self.watchdog_seconds: float | None = int(interval) / 1e6 if is_watched else None
        """The manager ends a process that shows no sign of life for this long."""

    def ready(self) -> None:
        """Report that requests are answered, after a start or a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that a reload has begun; `ready` reports its end."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that no new turns are taken."""
        self._send("STOPPING=1")

    def beat(self) -> None:
        """Show a sign of life."""
        self._send("WATCHDOG=1")

    def describe(self, status: str) -> None:
        """Set the line that `systemctl status` shows."""
        self._send(f"STATUS={' '.join(status.split())}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # A leading @ stands for the abstract namespace of Linux.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.connect(address)
                sock.sendall(message.encode())
        except OSError as error:
            _log.warning("the service manager was not told %s: %s", message.split("=")[0], error)
