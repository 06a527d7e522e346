"""How many steps does Python take? The same on every machine, however busy.

A step is one bytecode instruction, in whatever module: a deep copy counts all that it does.
`Calls` counts the functions that are called or resumed instead, `Blocks` what the steps took from
the allocator of small objects (up to 512 bytes). Nobody counts what C code does inside, nor the
machinery of waiting (event loop, locks, queues), because how often that wakes up depends on who
is faster, nor these tests.
"""

from __future__ import annotations

import asyncio
import queue
import selectors
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from inspect import getfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, ClassVar, Final

__all__ = ["Blocks", "Calls", "Steps"]

_WAITING: Final = (
    *(str(Path(getfile(package)).parent) for package in (asyncio, futures)),
    *map(getfile, (selectors, threading, queue)),
    *(str(Path(__file__).with_name(name)) for name in ("test_cost.py", "partner.py")),
)
_Trace = Callable[[FrameType, str, Any], Any]


class Steps:
    """Counts the steps of a thread, and of those that it starts.

    From Python 3.13 on, a function that was never counted before is counted without its first few.
    """

    unit: ClassVar[str] = "steps"

    def __init__(self) -> None:
        self.is_paused = False
        """While this is so, functions that are called are not counted, and cost little time."""
        self._by_code: Counter[CodeType] = Counter()

    @property
    def total(self) -> int:
        """How many steps were taken so far."""
        return self._by_code.total()

    def by_file(self) -> Counter[str]:
        """Return the steps of each file, for whoever looks for the reason."""
        files: Counter[str] = Counter()
        for code, steps in self._by_code.items():
            files[code.co_filename] += steps
        return files

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count while this is open; threads that were there before are not counted."""
        here, elsewhere = sys.gettrace(), threading.gettrace()
        # Python 3.12 shows steps only if somebody has asked for some before.
        sys._getframe().f_trace_opcodes = True
        threading.settrace(self._enter)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(here)
            threading.settrace(elsewhere)

    def _enter(self, frame: FrameType, event: str, arg: object) -> _Trace | None:
        """Begin to count in a function that is called, or goes on."""
        if not self._is_counted(frame):
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _is_counted(self, frame: FrameType) -> bool:
        return not self.is_paused and not frame.f_code.co_filename.startswith(_WAITING)

    def _step(self, frame: FrameType, event: str, arg: object) -> _Trace:
        if event == "opcode":
            self._by_code[frame.f_code] += 1
        return self._step


class Calls(Steps):
    """Counts the functions that are called, and those that go on after they waited."""

    unit = "calls"

    def _enter(self, frame: FrameType, event: str, arg: object) -> None:
        if self._is_counted(frame):
            self._by_code[frame.f_code] += 1


class Blocks(Steps):
    """Counts the blocks of memory that each step has taken, less those that it gave back.

    What a step takes and gives back again, such as the pieces of a text that C code joins, is not
    seen. A step that gives back more than it takes counts as none.
    """

    unit = "blocks"

    def __init__(self) -> None:
        super().__init__()
        self._last = threading.local()

    def _enter(self, frame: FrameType, event: str, arg: object) -> _Trace | None:
        trace = super()._enter(frame, event, arg)
        # What was taken since the last step was not taken by a step, unless that made this call.
        if trace is None or frame.f_back is None or frame.f_back.f_trace is None:
            self._last.blocks = sys.getallocatedblocks()
        return trace

    def _step(self, frame: FrameType, event: str, arg: object) -> _Trace:
        if event in ("opcode", "return"):
            blocks = sys.getallocatedblocks()
            taken = blocks - self._last.blocks
            self._last.blocks = blocks
            if taken > 0:
                self._by_code[frame.f_code] += taken
        return self._step
