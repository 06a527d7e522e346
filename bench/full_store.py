"""What does a request cost when the store is full? SQLite with a thousand to a million responses.

A real store writes one response with its items; SQL copies its rows under other ids, which are
spread as real ones are. Then a gateway on that file takes requests: new ones, ones that continue a
response, and reads, each of a response that is chosen at random. Figures are medians of the CPU
of the gateway's process, and of the time by the clock.

    python bench/full_store.py [--responses 1000000] [--asks 60]

A million takes two or three minutes and 2 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from disk import describe_disk
from processes import Process, Trouble, gateway, machine, scratch, script

__all__ = ["Row", "main"]

_MARK: Final = "0123456789abcdef"
_OWNER: Final = "local"
_WARM_UP: Final = 10
_NUMBERED: Final = frozenset({"key", "response"})
# An odd factor: every number has another id, and neighbours have distant ones.
_FACTOR: Final = 2654435761
_MODULUS: Final = 1 << 32
_KINDS: Final = ("new request", "continued", "response read", "input items read")


_Costs = dict[str, tuple[float, float]]


class Row(NamedTuple):
    """Medians for one size of the store: CPU seconds and seconds of each kind of request."""

    responses: int
    costs: _Costs


async def _write_template(path: Path) -> None:
    from antiphon.protocol.response import Response
    from antiphon.store.sqlite import SqliteStore

    store = SqliteStore(path)
    response = Response(
        id=f"resp_{_MARK}", status="in_progress", model="whole", created_at=int(time.time())
    )
    await store.begin(_OWNER, response, [_message("msg_in", "user", "input_text")])
    response.status = "completed"
    response.output = [_message("msg_out", "assistant", "output_text")]
    await store.finish(_OWNER, response)
    await store.close()


def _message(name: str, role: str, kind: str) -> dict[str, object]:
    text = "The keeper of the lighthouse wrote down what the night had brought. " * 5
    part = {"type": kind, "text": text} | ({} if role == "user" else {"annotations": []})
    fields = {"type": "message", "id": f"{name}_{_MARK}", "status": "completed", "role": role}
    return {**fields, "content": [part]}


def _id(number: int) -> str:
    return f"resp_{number * _FACTOR % _MODULUS:016x}"


def _copy(path: Path, count: int) -> range:
    """Copy the rows of the first response so many times; return the numbers of the copies."""
    name = f"printf('%016x', n * {_FACTOR} % {_MODULUS})"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in ("synchronous = OFF", "cache_size = -400000"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN IMMEDIATE")
        # After those that gateways have stored meanwhile.
        first = connection.execute("SELECT max(key) + 1 FROM responses").fetchone()[0]
        numbers = range(first, first + count)
        for table, key in (("responses", "key"), ("items", "response")):
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            values = [_value(column[1], column[2], name) for column in columns]
            connection.execute(
                f"WITH RECURSIVE numbers (n) AS (SELECT {numbers[0]} UNION ALL"
                f" SELECT n + 1 FROM numbers WHERE n < {numbers[-1]})"
                f" INSERT INTO {table} SELECT {', '.join(values)}"
                f" FROM numbers CROSS JOIN (SELECT * FROM {table} WHERE {key} = 1)"
            )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return numbers


def _value(column: str, kind: str, name: str) -> str:
    if column in _NUMBERED:
        return "n"
    if kind == "BLOB":
        return f"CAST(replace(CAST({column} AS TEXT), '{_MARK}', {name}) AS BLOB)"
    return f"replace({column}, '{_MARK}', {name})" if column == "id" else column


class _Caller:
    """Asks a gateway over one connection, and knows which responses there are."""

    def __init__(self, process: Process, numbers: range) -> None:
        self._process = process
        self._dice = random.Random(len(numbers))
        self._numbers = numbers
        self.connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=60)

    def ask(self, kind: str) -> tuple[float, float]:
        """Send a request of this kind; return the CPU seconds and the seconds it took."""
        some = _id(self._dice.choice(self._numbers))
        if kind == "new request":
            return self._send("POST", "", {"model": "whole", "input": "And then?"})
        if kind == "continued":
            fields = {"model": "whole", "input": "And then?", "previous_response_id": some}
            return self._send("POST", "", fields)
        return self._send("GET", f"/{some}" + ("/input_items" if "items" in kind else ""), None)

    def _send(self, method: str, path: str, body: object) -> tuple[float, float]:
        headers = {"Content-Type": "application/json"} if body else {}
        data = json.dumps(body) if body else None
        cpu, began = self._process.cpu, time.monotonic()
        self.connection.request(method, f"/v1/responses{path}", data, headers)
        answer = self.connection.getresponse()
        found = answer.read()
        if answer.status != 200:
            raise Trouble(f"{method} {path} was answered with {answer.status}: {found[:300]!r}")
        return self._process.cpu - cpu, time.monotonic() - began


def _measure(path: Path, upstream: Process, numbers: range, asks: int) -> _Costs:
    flags = ("--upstream", f"http://127.0.0.1:{upstream.port}/v1")
    with gateway(*flags, store=path) as process:
        caller = _Caller(process, numbers)
        with closing(caller.connection):
            return {kind: _medians(partial(caller.ask, kind), asks) for kind in _KINDS}


def _medians(ask: Callable[[], tuple[float, float]], asks: int) -> tuple[float, float]:
    found = [ask() for _ in range(_WARM_UP + asks)][_WARM_UP:]
    return statistics.median(cpu for cpu, _ in found), statistics.median(s for _, s in found)


def main(responses: int = 1_000_000, asks: int = 60) -> list[Row]:
    """Fill the store tenfold each time, measure, print; return what was printed."""
    print(f"Requests to a full store in SQLite ({machine()})")
    rows: list[Row] = []
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        print(describe_disk(directory))
        path = directory / "full.db"
        upstream = stack.enter_context(script("upstream.py"))
        asyncio.run(_write_template(path))
        print("\nCPU ms, and ms by the clock in brackets")
        print(f"{'responses':>10}{'MB':>7}" + "".join(f"{kind:>20}" for kind in _KINDS))
        size = stored = 0
        while (size := size * 10 or 1000) <= responses:
            numbers = _copy(path, size - stored)
            stored = size
            costs = _measure(path, upstream, numbers, asks)
            rows.append(Row(size, costs))
            cells = [f"{cpu * 1e3:.2f} ({wall * 1e3:.2f})" for cpu, wall in costs.values()]
            megabytes = path.stat().st_size / 1e6
            print(f"{size:10,}{megabytes:7,.0f}" + "".join(f"{c:>20}" for c in cells), flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--responses", type=int, default=1_000_000)
    parser.add_argument("--asks", type=int, default=60)
    given = parser.parse_args()
    try:
        main(given.responses, given.asks)
    except Trouble as trouble:
        sys.exit(f"full_store.py: {trouble}")
