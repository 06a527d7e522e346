"""What does SIGHUP ask for? A reload, unless the terminal was closed.

A process that was started in a terminal gets the same signal when that terminal is closed. Then
it has to end, as it would without a handler. Under `nohup`, where the signal was ignored at the
start, it goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["HANGUP", "Terminal", "hangups"]

HANGUP: Final = getattr(signal, "SIGHUP", None)
"""The signal; None on Windows, which has none."""


class Terminal:
    """The terminal that this process was started in, if there was one."""

    def __init__(self) -> None:
        self._was_there = _has_terminal()
        self._is_ignored = HANGUP is not None and signal.getsignal(HANGUP) == signal.SIG_IGN

    @property
    def was_closed(self) -> bool:
        """Whether it was closed, and the process has to end with it."""
        return self._was_there and not self._is_ignored and not _has_terminal()

    @property
    def is_kept_out(self) -> bool:
        """Whether it was closed, and the process goes on without it."""
        return self._was_there and self._is_ignored and not _has_terminal()


@asynccontextmanager
async def hangups(reload: Callable[[], None]) -> AsyncIterator[None]:
    """Call `reload` for each SIGHUP that asks for one, inside this context."""
    if HANGUP is None:
        yield
        return
    terminal, loop = Terminal(), asyncio.get_running_loop()

    def note() -> None:
        if terminal.was_closed:
            os.kill(os.getpid(), signal.SIGTERM)
        elif not terminal.is_kept_out:
            reload()

    loop.add_signal_handler(HANGUP, note)
    try:
        yield
    finally:
        loop.remove_signal_handler(HANGUP)
        signal.signal(HANGUP, signal.SIG_IGN)  # the process ends now, in its own time


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
