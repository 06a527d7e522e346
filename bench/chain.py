"""What does a conversation of a thousand turns cost, and how much room does it take?

Every turn is one stored request to the gateway that continues the turn before. A turn stores
what is new, so the file must grow by the same amount each time. The model must be told the
whole conversation each time; what sending so many bytes costs is measured in a process that
does nothing else (`sender.py`), and taken off before a turn is compared to the first one.

The gateway that has ended a turn remembers the thread. A second gateway on the same file, which
has not, goes on from the same turns: that is what a turn costs which has to be read anew.

    python bench/chain.py [TURNS]
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import statistics
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

from processes import Process, Trouble, code_of, gateway, machine, scratch, script

__all__ = ["Row", "main"]

TURNS: Final = 1000
_SHOWN: Final = (1, 10, 100, 250, 500, 1000, 2000, 5000, 10000)
_WINDOW: Final = 9
_WARM_UP: Final = 20
_SHORT: Final = 300
_MAX_SECONDS: Final = 600.0
_TITLES: Final = """\
       stored    a turn  sent upstream  to send it       remembered            read anew
 turn     KiB     bytes            KiB      CPU ms   CPU ms  of turn 1    CPU ms  of turn 1"""
_QUESTION: Final = "And what did the keeper of the lighthouse do after that? " * 4


class _Turn(NamedTuple):
    id: str
    cpu: float
    seconds: float
    sent: int
    """Bytes of the request that went upstream."""


class Row(NamedTuple):
    """CPU seconds of a turn, and those of sending so much, which are part of both."""

    turn: int
    remembered: float
    read_again: float | None
    sending: float


class _Caller:
    """Asks one question after another over one connection."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)

    def ask(self, previous: str | None) -> _Turn:
        """Take a turn; return what it cost."""
        body = {"model": "whole", "input": _QUESTION, "previous_response_id": previous}
        data, cpu, seconds = self._request("POST", "/v1/responses", json.dumps(body))
        response = json.loads(data)
        return _Turn(response["id"], cpu, seconds, response["usage"]["input_tokens"] * 4)

    def send(self, size: int) -> float:
        """Have so many bytes sent upstream; return the CPU seconds of that."""
        return self._request("GET", f"/{size}", None)[1]

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def _request(self, method: str, path: str, body: str | None) -> tuple[bytes, float, float]:
        cpu, began = self._process.cpu, time.monotonic()
        headers = {"Content-Type": "application/json"} if body else {}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        data = answer.read()
        seconds, cpu = time.monotonic() - began, self._process.cpu - cpu
        if answer.status != 200:
            raise Trouble(f"a turn was answered with {answer.status}: {data[:300]!r}")
        return data, cpu, seconds


class _Sending:
    """What it costs to send a body, beyond what a short one costs."""

    def __init__(self, caller: _Caller) -> None:
        self._caller = caller
        self._short = self._median(_SHORT)

    def cost(self, size: int) -> float:
        """Return CPU seconds."""
        return max(self._median(max(size, _SHORT)) - self._short, 0.0)

    def _median(self, size: int) -> float:
        for _ in range(_WARM_UP - _WINDOW):
            self._caller.send(size)
        return statistics.median(self._caller.send(size) for _ in range(_WINDOW))


def main(turns: int = TURNS, tree: Path | None = None) -> list[Row]:
    """Hold the conversation and print how it grows; return what was printed.

    `tree` is another checkout, whose code is then used.
    """
    print(f"A conversation of {turns:,} turns ({machine()})\n")
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        file = directory / "chain.db"
        upstream = stack.enter_context(script("upstream.py"))
        flags = ("--upstream", f"http://127.0.0.1:{upstream.port}/v1")
        stack.enter_context(code_of(tree))
        process, other = (stack.enter_context(gateway(*flags, store=file)) for _ in range(2))
        sender = stack.enter_context(script("sender.py", upstream.port))
        caller, stranger, plain = (
            stack.enter_context(closing(_Caller(one))) for one in (process, other, sender)
        )
        sending = _Sending(plain)
        first = _warm_up(caller)
        _warm_up(stranger)
        print(_TITLES)
        _print_row(1, first, [], 0.0, "", first)
        rows = [Row(1, _cost(first), None, 0.0)]
        shown, size, before = 0, 0, _stored_bytes(file)
        done, deadline = [caller.ask(None)], time.monotonic() + _MAX_SECONDS
        for turn in range(2, turns + 1):
            done.append(caller.ask(done[-1].id))
            if turn in _SHOWN or turn == turns:
                grown = _stored_bytes(file) - before
                size += grown
                room = f"{size / 1024:8,.0f}{grown / (turn - shown):10,.0f}"
                window = done[-_WINDOW:]
                for idle in (stranger, plain):  # too long for the server, perhaps
                    idle.close()
                anew = [stranger.ask(one.id) for one in window]
                sent = sending.cost(window[-1].sent)
                _print_row(turn, window, anew, sent, room, first)
                rows.append(Row(turn, _cost(window), _cost(anew), sent))
                # What the other one stored is no part of this conversation.
                shown, before = turn, _stored_bytes(file)
            if time.monotonic() > deadline:
                raise Trouble(f"it took too long; {turn} turns are done")
        _print_sum(done)
    return rows


def _warm_up(caller: _Caller) -> list[_Turn]:
    """Return some first turns, of a process that has had some before."""
    return [caller.ask(None) for _ in range(_WARM_UP)][_WARM_UP - _WINDOW :]


def _stored_bytes(path: Path) -> int:
    """Return the size of the database, what is still in its log included.

    Read-only: whoever may write and is the last to leave removes the log.
    """
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", timeout=10, uri=True)) as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        return int(pages * connection.execute("PRAGMA page_size").fetchone()[0])


def _print_row(
    turn: int,
    window: list[_Turn],
    anew: list[_Turn],
    sending: float,
    room: str,
    first: list[_Turn],
) -> None:
    sent = statistics.median(one.sent for one in window) / 1024
    base, cost = _cost(first), _cost(window)
    row = f"{turn:5}{room:18}{sent:15,.1f}{sending * 1e3:12.2f}"
    row += f"{cost * 1e3:9.2f}{(cost - sending) / base:10.1f}x"
    if anew:
        cost = _cost(anew)
        row += f"{cost * 1e3:10.2f}{(cost - sending) / base:10.1f}x"
    print(row, flush=True)


def _cost(turns: list[_Turn]) -> float:
    return statistics.median(turn.cpu for turn in turns)


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
