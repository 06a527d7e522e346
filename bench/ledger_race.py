"""Are budgets and rate limits exact when four nodes race for them, with clocks hours apart?

Each node is a process with a store of its own on one PostgreSQL. Their clocks are set apart with
libfaketime, which is taken from Debian's package if the system does not have it. Then:

- 1,000 reservations at once on a ceiling of 100: exactly 100 are granted;
- they are settled with half of what was held: exactly 50 of the next 1,000 are granted;
- 400 requests at once on a limit of 60 per minute: 60 are granted, and one more for each second
  that passes;
- `check` finds nothing.

    python bench/ledger_race.py [--nodes 4] [--figures]

Exits with 1 if one figure is wrong. With `--figures` it also measures how many charges are
reserved per second, alone and many at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import asyncpg  # noqa: E402
from processes import machine  # noqa: E402

from antiphon.protocol.token_counts import TokenCounts  # noqa: E402
from antiphon.store.base.ledger import (  # noqa: E402
    Budget,
    Granted,
    Payer,
    RateLimit,
    Reservation,
    Settlement,
)
from antiphon.store.postgres import PostgresStore  # noqa: E402

__all__ = ["main"]

_HOURS: Final = ("+1h", "-1h", "+0h", "+2h")
_CALLS: Final = 1_000
_CEILING: Final = 100
_REQUESTS: Final = 400
_PER_MINUTE: Final = 60
_PATIENCE: Final = 60.0
_HELD: Final = TokenCounts(fresh=10, output=10)
_SECONDS: Final = 4.0


def _reservation(name: str, project: str, cost: int = 2) -> Reservation:
    payer = Payer(project, key="k", user="u")
    return Reservation(
        response_id=name,
        number=0,
        payer=payer,
        model="m",
        held=_HELD,
        held_cost=cost,
        is_request=True,
    )


async def _reserve(store: PostgresStore, names: Sequence[str], project: str) -> list[str]:
    """Reserve all at once; return those that were granted."""
    answers = await asyncio.gather(
        *(store.ledger.reserve(_reservation(name, project)) for name in names)
    )
    return [name for name, one in zip(names, answers, strict=True) if isinstance(one, Granted)]


async def be_node(url: str) -> None:
    """Do what the lines say that come in, and answer each."""
    store = PostgresStore(url, patience=_PATIENCE)
    await store.ping()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order: dict[str, Any] = json.loads(line)
        if order["do"] == "reserve":
            answer: Any = await _reserve(store, order["names"], order["project"])
        elif order["do"] == "settle":
            await store.ledger.settle([_settlement(name) for name in order["names"]])
            answer = len(order["names"])
        else:
            answer = time.time()
        print(json.dumps(answer), flush=True)
    await store.close()


def _settlement(name: str) -> Settlement:
    used = TokenCounts(fresh=5, output=5)
    return Settlement(
        response_id=name, number=0, outcome="completed", basis="reported", used=used, cost=1
    )


class Node:
    """A process with a store and a clock of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str, shift: str, library: Path | None) -> Node:
        """Start it; without the library its clock is right."""
        environ = dict(os.environ)
        if library is not None:
            environ |= {"LD_PRELOAD": str(library), "FAKETIME": shift}
            environ["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--node", url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environ,
            limit=2**24,
        )
        return cls(process)

    async def ask(self, **order: object) -> Any:
        """Give an order; return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        await self._process.stdin.drain()
        return json.loads(await self._process.stdout.readline())

    async def stop(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def _race(nodes: list[Node], count: int, project: str, prefix: str) -> list[list[str]]:
    """Let all nodes reserve at once; return what each was granted."""
    each = count // len(nodes)
    return await asyncio.gather(
        *(
            node.ask(
                do="reserve",
                project=project,
                names=[f"{prefix}_{place}_{one}" for one in range(each)],
            )
            for place, node in enumerate(nodes)
        )
    )


async def race(url: str, count: int, library: Path | None) -> list[str]:
    """Return what was wrong."""
    wrong: list[str] = []
    store = PostgresStore(url, patience=_PATIENCE)
    ledger = store.ledger
    await ledger.put_budget(
        Budget(id="b", scope="project", scope_id="money", period="day", ceiling=2 * _CEILING)
    )
    await ledger.put_limit(
        RateLimit(id="l", scope="project", scope_id="rate", requests=_PER_MINUTE)
    )
    shifts = [_HOURS[place % len(_HOURS)] for place in range(count)]
    nodes = await asyncio.gather(*(Node.start(url, shift, library) for shift in shifts))
    clocks = await asyncio.gather(*(node.ask(do="time") for node in nodes))
    print("clocks are off by", [f"{(clock - time.time()) / 3600:+.1f} h" for clock in clocks])
    await asyncio.gather(*(node.ask(do="reserve", project="warm", names=[]) for node in nodes))

    start = time.monotonic()
    granted = await _race(nodes, _CALLS, "money", "first")
    took, found = time.monotonic() - start, sum(map(len, granted))
    print(f"{found} of {_CALLS} granted on a ceiling of {_CEILING}, {took:.2f} s")
    if found != _CEILING:
        wrong.append(f"{found} granted")
    (state,) = await ledger.budgets("project", "money")
    if (state.spent, state.held) != (0, 2 * _CEILING):
        wrong.append(f"spent {state.spent}, held {state.held}")
    await asyncio.gather(
        *(node.ask(do="settle", names=some) for node, some in zip(nodes, granted, strict=True))
    )
    granted = await _race(nodes, _CALLS, "money", "second")
    found = sum(map(len, granted))
    print(f"{found} of {_CALLS} granted on what was not used, of {_CEILING // 2}")
    if found != _CEILING // 2:
        wrong.append(f"{found} granted in what was not used")

    start = time.monotonic()
    granted = await _race(nodes, _REQUESTS, "rate", "third")
    took, found = time.monotonic() - start, sum(map(len, granted))
    print(f"{found} of {_REQUESTS} granted on {_PER_MINUTE} per minute, {took:.2f} s")
    if not _PER_MINUTE <= found <= _PER_MINUTE + math.ceil(took):
        wrong.append(f"{found} requests granted in {took:.2f} s")
    wrong += [f"{one.rule} {one.subject}: {one.message}" for one in await ledger.check()]
    await asyncio.gather(*(node.stop() for node in nodes))
    await store.close()
    return wrong


async def _sync_commits() -> None:
    """Let the server write each commit to the disk: that of tests does not."""
    from tests.postgres import server

    if server().is_ours:
        connection = await asyncpg.connect(server().url)
        await connection.execute("ALTER SYSTEM SET fsync = on")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()


async def measure(url: str, at_once: int) -> str:
    """Reserve and settle with so many callers; return a line about it."""
    store = PostgresStore(url, patience=_PATIENCE)
    for scope, scope_id in (("organization", ""), ("project", "p"), ("key", "k")):
        await store.ledger.put_budget(
            Budget(id=scope, scope=scope, scope_id=scope_id, ceiling=10**15)  # type: ignore[arg-type]
        )
    took: list[float] = []
    end = time.monotonic() + _SECONDS

    async def call(caller: int) -> None:
        number = 0
        while time.monotonic() < end:
            name = f"resp_{at_once}_{caller}_{number}"
            start = time.monotonic()
            await store.ledger.reserve(_reservation(name, "p"))
            took.append(time.monotonic() - start)
            await store.ledger.settle([_settlement(name)])
            number += 1

    cpu = time.process_time()
    await asyncio.gather(*map(call, range(at_once)))
    cpu = time.process_time() - cpu
    wrong = await store.ledger.check()
    await store.close()
    took.sort()
    return (
        f"{at_once:3} at once: {len(took) / _SECONDS:6.0f} charges/s reserved and settled,"
        f" reserve p50 {statistics.median(took) * 1e3:6.1f} ms,"
        f" p99 {took[int(len(took) * 0.99)] * 1e3:6.1f} ms,"
        f" {cpu / len(took) * 1e6:5.0f} us CPU of the client each, {len(wrong)} wrong"
    )


async def main(given: argparse.Namespace) -> int:
    """Race, print the figures, and return how many were wrong."""
    from tests.debian import Missing, library
    from tests.postgres import fresh_database

    try:
        faketime: Path | None = library("libfaketime.so.1", "libfaketime", "faketime")
    except Missing as error:
        print(f"all clocks are right: {error}")
        faketime = None
    print(f"races for budgets ({machine()})")
    async with fresh_database() as url:
        wrong = await race(url, given.nodes, faketime)
    if given.figures:
        await _sync_commits()
        for at_once in (1, 16, 64, 256):
            async with fresh_database() as url:
                print(await measure(url, at_once))
    print(f"wrong: {len(wrong)}")
    for line in wrong[:20]:
        print(f"  {line}")
    return len(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--node", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.node:
        asyncio.run(be_node(options.node))
    else:
        sys.exit(bool(asyncio.run(main(options))))
