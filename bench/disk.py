"""How long does the disk itself take to make a write durable?

A figure of a store is the disk's as much as the store's: each benchmark of one prints this beside
it, measured in the folder that the store is in.

    python bench/disk.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from processes import scratch

__all__ = ["describe_disk", "sync_seconds"]


def sync_seconds(folder: Path, times: int = 200) -> list[float]:
    """Return how long it took to write 8 KiB and wait for the disk, sorted."""
    path, took = folder / "fdatasync", []
    file = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for number in range(times):
            os.pwrite(file, b"x" * 8192, number * 8192)
            start = time.perf_counter()
            os.fdatasync(file)
            took.append(time.perf_counter() - start)
    finally:
        os.close(file)
        path.unlink()
    return sorted(took)


def describe_disk(folder: Path, times: int = 200) -> str:
    """Return a line about the disk of a folder: median and 99th percentile of fdatasync."""
    took = sync_seconds(folder, times)
    middle, late = (took[int(len(took) * share)] * 1e3 for share in (0.5, 0.99))
    return f"disk: fdatasync of 8 KiB takes {middle:.2f} ms, p99 {late:.2f} ms ({times} times)"


def main() -> None:
    """Print the line for the folder that is given, or for that of the benchmarks."""
    if len(sys.argv) > 1:
        print(describe_disk(Path(sys.argv[1])))
        return
    with scratch() as folder:
        print(describe_disk(folder))


if __name__ == "__main__":
    main()
