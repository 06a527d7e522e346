"""Runs a command of antiphon and stops it when its parent process has ended.

The command's stdin is a pipe from the parent. However the parent ends, the system closes the
pipe, and that is the signal to stop. On the pipe the parent sends the id of the client process,
one number per line. The last one counts, and 0 means none. That process is ended as well.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

__all__ = ["main", "read_ward"]

_HURRY_SECONDS: Final = 3.0
_MAX_BYTES: Final = 64


def main(arguments: Sequence[str]) -> None:
    """Run a command of antiphon until it ends, or the pipe does."""
    from antiphon.cli import main as command

    threading.Thread(target=_watch, args=(sys.stdin.fileno(),), daemon=True).start()
    command(list(arguments))


def read_ward(pipe: int) -> int:
    """Read the pipe to its end; return the process to end, or 0."""
    data = b""
    # Not through sys.stdin, whose lock must be free when the interpreter ends.
    while piece := os.read(pipe, _MAX_BYTES):
        data = (data + piece)[-_MAX_BYTES:]
    lines = data.split()
    return int(lines[-1]) if lines else 0


def _watch(pipe: int) -> None:
    if ward := read_ward(pipe):
        with suppress(ProcessLookupError):
            os.kill(ward, signal.SIGTERM)
    for _ in range(2):  # the second one stops the waiting for running turns
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_HURRY_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
