"""A command on a leash: it ends when whoever holds the other end of its stdin is gone.

However the holder ends, by a fault or by force, the system closes its end, and that is the
sign. On the leash comes the id of a process to end as well, one number to a line, the last
one counts, and 0 stands for none: the program that the gateway is there for.
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
    """Run a command of antiphon until it ends, or the leash does."""
    from antiphon.cli import main as command

    threading.Thread(target=_watch, args=(sys.stdin.fileno(),), daemon=True).start()
    command(list(arguments))


def read_ward(leash: int) -> int:
    """Read the leash to its end; return the process to end, or 0."""
    said = b""
    # Not through sys.stdin, whose lock must be free when the interpreter ends.
    while data := os.read(leash, _MAX_BYTES):
        said = (said + data)[-_MAX_BYTES:]
    lines = said.split()
    return int(lines[-1]) if lines else 0


def _watch(leash: int) -> None:
    if ward := read_ward(leash):
        with suppress(ProcessLookupError):
            os.kill(ward, signal.SIGTERM)
    for _ in range(2):  # the second one says that it is not to wait for turns that run
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_HURRY_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
