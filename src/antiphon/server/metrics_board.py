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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import add
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["Counts", "Labels", "MetricsBoard", "add_up", "board_directory"]

_PREFIX: Final = "antiphon-metrics-"
_LOCK: Final = "in-use"

Labels = tuple[str, ...]
"""The values of the labels of a metric, in their order."""


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
    """What one worker has counted, by metric and by the values of its labels.

    A histogram is the list of its buckets, with the sum of all values behind them.
    """

    values: dict[str, dict[Labels, float]] = msgspec.field(default_factory=dict)
    histograms: dict[str, dict[Labels, list[float]]] = msgspec.field(default_factory=dict)


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


def add_up(parts: Iterable[Counts]) -> Counts:
    """Return the sum of all counts."""
    total = Counts()
    for part in parts:
        for name, values in part.values.items():
            mine = total.values.setdefault(name, {})
            for labels, value in values.items():
                mine[labels] = mine.get(labels, 0.0) + value
        for name, histograms in part.histograms.items():
            sums = total.histograms.setdefault(name, {})
            for labels, buckets in histograms.items():
                known = sums.get(labels)
                both = buckets if known is None else map(add, known, buckets)
                sums[labels] = list(both)
    return total
