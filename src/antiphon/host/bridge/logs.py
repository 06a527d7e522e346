"""How does the log get to the asker? As `log` messages, while it reads them.

The log of antiphon holds ids, names and figures, no text of a conversation. The key is removed
in any case. When the asker does not read, lines are dropped and counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Literal

from antiphon.wires.host.messages import Log

__all__ = ["LogHandler", "LogLevel"]

LogLevel = Literal["debug", "info", "warning", "error"]
_ROOT: Final = logging.getLogger("antiphon")
_installed: Final[list[LogHandler]] = []
"""The handlers of all bridges of this process; usually one."""
_before: Final[list[int]] = []
"""The level that the logger had before the first of them."""


class LogHandler(logging.Handler):
    """Passes the lines of antiphon's log to `send`, until it is removed."""

    def __init__(
        self,
        level: LogLevel,
        send: Callable[[Log], object],
        is_full: Callable[[], bool],
        redact: Callable[[str], str],
    ) -> None:
        super().__init__(level.upper())
        self._send = send
        self._is_full = is_full
        self._redact = redact
        self._dropped = 0

    def install(self) -> None:
        """Begin. The logger lets through what this handler wants."""
        if not _installed:
            _before[:] = [_ROOT.level]
        _installed.append(self)
        _ROOT.setLevel(min(one.level for one in _installed))
        _ROOT.propagate = False  # stderr would get every line a second time
        _ROOT.addHandler(self)

    def remove(self) -> None:
        """End. The last one leaves the logger as it was."""
        _ROOT.removeHandler(self)
        _installed.remove(self)
        if not _installed:
            _ROOT.setLevel(*_before)
            _ROOT.propagate = True

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line."""
        if self._is_full():
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            self._send(Log(level="warning", message=f"{dropped} lines of the log were dropped"))
        message = self._redact(record.getMessage())
        self._send(Log(level=_level_of(record), message=f"{record.name}: {message}"))


def _level_of(record: logging.LogRecord) -> LogLevel:
    if record.levelno >= logging.ERROR:
        return "error"
    if record.levelno >= logging.WARNING:
        return "warning"
    return "info" if record.levelno >= logging.INFO else "debug"
