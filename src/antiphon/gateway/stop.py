"""Signals that stop a gateway: the first asks it to stop, the second not to wait for turns."""

from __future__ import annotations

import asyncio
import signal

__all__ = ["StopSignals"]


class StopSignals:
    """SIGTERM and SIGINT as events of the running loop, from the moment it is created."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.asked_twice = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, self._note)
            except NotImplementedError:  # Windows: the loop takes no signals
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._note))

    def _note(self) -> None:
        if self.asked.is_set():
            self.asked_twice.set()
        self.asked.set()
