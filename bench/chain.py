"""What does a conversation of a thousand turns cost, and how much room does it take?

Every turn is one stored request to the gateway that continues the turn before. A turn stores
what is new, so the file must grow by the same amount each time. The model must be told the
whole conversation each time, so a turn costs more the more was said before; that growth is
linear in the context, and the two columns beside it show how much of it is bytes that the
upstream has to be sent anyway.

    python bench/chain.py [TURNS]
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from processes import Process, Trouble, gateway, machine, scratch, script

__all__ = ["main"]

TURNS: Final = 1000
_SHOWN: Final = (1, 10, 100, 250, 500, 1000, 2000, 5000)
_WINDOW: Final = 9
_WARM_UP: Final = 20
_MAX_SECONDS: Final = 600.0
_QUESTION: Final = "And what did the keeper of the lighthouse do after that? " * 4


class _Turn(NamedTuple):
    id: str
    cpu: float
    seconds: float
    sent: int
    """Bytes of the request that went upstream."""


class _Caller:
    """Asks one question after another over one connection."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)

    def ask(self, previous: str | None) -> _Turn:
        body = {"model": "whole", "input": _QUESTION, "previous_response_id": previous}
        cpu, began = self._process.cpu, time.monotonic()
        self._connection.request(
            "POST", "/v1/responses", json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = self._connection.getresponse()
        data = answer.read()
        seconds, cpu = time.monotonic() - began, self._process.cpu - cpu
        if answer.status != 200:
            raise Trouble(f"a turn was answered with {answer.status}: {data[:300]!r}")
        response = json.loads(data)
        return _Turn(response["id"], cpu, seconds, response["usage"]["input_tokens"] * 4)

    def close(self) -> None:
        self._connection.close()


def main(turns: int = TURNS) -> None:
    """Hold the conversation and print how it grows."""
    print(f"A conversation of {turns:,} turns ({machine()})\n")
    with (
        scratch() as directory,
        script("upstream.py") as upstream,
        gateway(
            "--upstream",
            f"http://127.0.0.1:{upstream.port}/v1",
            store=directory / "chain.db",
        ) as process,
        closing(_Caller(process)) as caller,
    ):
        first = [caller.ask(None) for _ in range(_WARM_UP)][_WARM_UP - _WINDOW :]
        file = directory / "chain.db"
        empty = _stored_bytes(file)
        print("turn  stored, KiB   bytes a turn   sent upstream, KiB   CPU ms a turn   of turn 1")
        _print_row(1, first, 0.0, 0.0, first)
        done = [caller.ask(None)]
        shown_turns, shown_bytes, deadline = 0, empty, time.monotonic() + _MAX_SECONDS
        for turn in range(2, turns + 1):
            done.append(caller.ask(done[-1].id))
            if turn in _SHOWN or turn == turns:
                size = _stored_bytes(file)
                grown = (size - shown_bytes) / (turn - shown_turns)
                _print_row(turn, done[-_WINDOW:], size - empty, grown, first)
                shown_turns, shown_bytes = turn, size
            if time.monotonic() > deadline:
                raise Trouble(f"it took too long; {turn} turns are done")
        _print_sum(done)


def _stored_bytes(path: Path) -> int:
    """Return the size of the database, what is still in its log included.

    Read-only: whoever may write and is the last to leave removes the log.
    """
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", timeout=10, uri=True)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


def _print_row(
    turn: int, window: list[_Turn], size: float, grown: float, first: list[_Turn]
) -> None:
    cpu = statistics.median(one.cpu for one in window)
    ratio = cpu / statistics.median(one.cpu for one in first)
    sent = statistics.median(one.sent for one in window) / 1024
    size_shown = f"{size / 1024:11,.0f}   {grown:12,.0f}" if size else f"{'':26}"
    print(f"{turn:5}{size_shown}   {sent:18,.1f}   {cpu * 1e3:13.2f}   {ratio:8.1f}x")


def _print_sum(done: list[_Turn]) -> None:
    """Say how much a turn costs for each KiB of context: constant if growth is linear."""
    base = statistics.median(turn.cpu for turn in done[:_WINDOW])
    thirds = [done[len(done) * k // 3 : len(done) * (k + 1) // 3] for k in range(3)]
    slopes = [
        sum(turn.cpu - base for turn in third) / sum(turn.sent for turn in third) * 1024 * 1e6
        for third in thirds
    ]
    print(
        "\nCPU us per KiB of context, beyond the first turns' cost, in each third of the"
        f" conversation: {', '.join(f'{slope:.0f}' for slope in slopes)}"
    )
    print(
        f"in all: {sum(turn.cpu for turn in done):.2f} s of CPU,"
        f" {sum(turn.seconds for turn in done):.1f} s by the clock"
    )


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS)
    except Trouble as trouble:
        sys.exit(f"chain.py: {trouble}")
