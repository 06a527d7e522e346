"""Where the workers of one gateway leave their counts for each other.

Each worker keeps a file in a directory that all of them share, and writes its counts there once a
second and before it answers a scrape. The worker that is scraped adds them up, so two scrapes
agree whichever worker answers. A worker that replaces a dead one continues its counters.

The directory is temporary. A parent that is killed cannot remove it, so the next gateway does. A
lock file shows whether it is in use: parent and workers share the lock, which ends with them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["Counts", "MetricsBoard", "add_up", "board_directory"]

_PREFIX: Final = "antiphon-metrics-"
_LOCK: Final = "in-use"


@contextmanager
def board_directory() -> Iterator[Path]:
    """Create the directory for workers that are forked inside this context; remove it on exit."""
    _remove_unused()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name, (Path(name) / "new").open("w") as new:
        _lock(new.fileno())
        # Under its name it is locked from the first moment on.
        Path(new.name).rename(Path(name) / _LOCK)
        yield Path(name)


def _remove_unused() -> None:
    """Remove the directories of gateways that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            if path.parent.lstat().st_uid != os.geteuid():
                continue
            with path.open() as file:
                _lock(file.fileno())
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:
            continue  # it is in use, or another process is removing it


def _lock(file: int) -> None:
    """Lock a file as long as it is open here or in a forked process; raise OSError if it is."""
    import fcntl  # not on Windows, which has no workers either

    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Counts(msgspec.Struct, kw_only=True):
    """What one worker has counted. Names are joined with a space where there are several."""

    requests: dict[str, int] = {}
    responses: dict[str, int] = {}
    tokens: dict[str, int] = {}
    calls: dict[str, int] = {}
    call_seconds: dict[str, float] = {}
    degraded: int = 0
    buckets: list[int] = []
    seconds: float = 0.0
    turns: int = 0
    background: int = 0
    sandboxes: int = 0
    choices: dict[str, int] = {}
    fallbacks: dict[str, int] = {}
    breaker_opens: dict[str, int] = {}
    open_deployments: dict[str, int] = {}


class MetricsBoard:
    """The shared directory, as one worker sees it."""

    def __init__(self, directory: Path, worker: str) -> None:
        self._directory = directory
        self._own = directory / f"worker-{worker}"

    def write(self, counts: Counts) -> None:
        """Replace what this worker has left."""
        draft = self._own.with_suffix(".new")
        draft.write_bytes(msgspec.msgpack.encode(counts))
        draft.replace(self._own)

    def read_own(self) -> Counts:
        """Return what was left in this worker's place."""
        return _read(self._own)

    def read_others(self) -> list[Counts]:
        """Return what the other workers have left."""
        found = sorted(self._directory.glob("worker-*"))
        return [_read(path) for path in found if path != self._own and not path.suffix]


def _read(path: Path) -> Counts:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Counts)
    except FileNotFoundError:
        return Counts()


def add_up(parts: list[Counts]) -> Counts:
    """Return the sum of all counts."""
    total = Counts(buckets=[0] * max(len(part.buckets) for part in parts))
    for part in parts:
        for mine, its in (
            (total.requests, part.requests),
            (total.responses, part.responses),
            (total.tokens, part.tokens),
            (total.calls, part.calls),
            (total.choices, part.choices),
            (total.fallbacks, part.fallbacks),
            (total.breaker_opens, part.breaker_opens),
            (total.open_deployments, part.open_deployments),
        ):
            for name, count in its.items():
                mine[name] = mine.get(name, 0) + count
        for kind, seconds in part.call_seconds.items():
            total.call_seconds[kind] = total.call_seconds.get(kind, 0.0) + seconds
        for index, count in enumerate(part.buckets):
            total.buckets[index] += count
        total.degraded += part.degraded
        total.seconds += part.seconds
        total.turns += part.turns
        total.background += part.background
        total.sandboxes += part.sandboxes
    return total
