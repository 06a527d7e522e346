"""What does the ledger cost: bytes per charge, time per question, CPU per turn?

    python bench/ledger.py [--charges 10000000] [--folder FOLDER]
    python bench/ledger.py --postgres

The first part reserves and settles charges through a store in SQLite and prints the bytes that
each takes on disk, with indexes; with `--postgres` it does the same, and nothing else, with a
server of its own that is vacuumed now and then. The second part asks a file with many charges (two
a second, of 200 keys in 20 projects) what the usage API asks, and prints p50 and p99. The file is
generated once and kept in the folder; the interpreter has the settings of `antiphon serve`. The
third part runs stored turns in groups, with and without a charge, and prints the CPU that the
charge adds to each. Figures depend on the load: it is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from kill_nodes import database

from antiphon.gateway.serve import settle_interpreter
from antiphon.protocol.response import Response
from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base.ledger import Payer, Reservation, Settlement, UsageQuery
from antiphon.store.ledger_rows import HELD_COLUMNS
from antiphon.store.open import open_store
from antiphon.store.sqlite import SqliteStore
from antiphon.store.sqlite.connection import connect
from antiphon.store.sqlite.ledger_names import intern_names

__all__ = ["START", "generate", "main"]

_GOALS: Final = {"bytes": 300, "usage ms": 50.0, "CPU us": 40.0}
_MEASURED: Final = 100_000
_MEASURED_POSTGRES: Final = 300_000
_GROUPS: Final = (1, 8, 32, 64)
_TURNS: Final = 1_920
_EACH: Final = 30
_HOURS: Final = 48
_KEYS: Final = 200
_TALKS: Final = 100_000
_DAY: Final = 86_400
START: Final = 1_767_225_600
_FILLED: Final = (
    *HELD_COLUMNS[:-1],
    *("settled_at", "fresh", "cached", "cache_write", "output", "reasoning", "cost"),
    *("basis", "outcome", "first_ms", "total_ms"),
)
_INDEXES: Final = (
    "charges_by_time ON charges (reserved_at)",
    "charges_by_project ON charges (project, reserved_at)",
    "charges_by_conversation ON charges (conversation) WHERE conversation IS NOT NULL",
    "charges_by_run ON charges (run) WHERE run IS NOT NULL",
    "charges_held ON charges (writer) WHERE state = 0",
)
_SIZE: Final = """
    SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree('charges')
"""
_SUM: Final = """
    INSERT INTO usage_sums SELECT {0}, reserved_at / 1000 / {0} * {0} AS start, project, api_key,
        0, model, provider, kind, basis, outcome, count(*), sum(is_request), sum(fresh),
        sum(cached), sum(cache_write), sum(output), sum(reasoning), sum(cost), 0
    FROM charges GROUP BY start, project, api_key, model, provider, kind, basis, outcome
"""


async def main(options: argparse.Namespace) -> int:
    """Print all three parts; return 1 if a goal is missed."""
    if options.postgres:
        return 0 if await _measure_postgres() else 1
    is_met = await _measure_bytes()
    settle_interpreter()
    is_met &= await _measure_usage(options.charges, options.folder)
    is_met &= await _measure_turns()
    return 0 if is_met else 1


def wanted(number: int) -> Reservation:
    """A charge as a turn of an agent has it."""
    key = number % _KEYS
    return Reservation(
        response_id="resp_ap-" + secrets.token_hex(24),
        number=0,
        payer=Payer(f"project{key % 20}", key=f"key{key}", conversation=f"conv_{number // 10}"),
        model=f"model{(key + number // _KEYS % 10 // 9) % 8}",
        served="served",
        provider="provider",
        price=b'{"input":"1.25","output":"10"}',
        held=TokenCounts(fresh=9_000, output=2_048),
        held_cost=31_730_000,
        is_request=True,
    )


def ending(one: Reservation) -> Settlement:
    """What it came to."""
    return Settlement(
        response_id=one.response_id,
        number=one.number,
        outcome="completed",
        basis="reported",
        used=TokenCounts(fresh=1_200, cached=7_800, output=310, reasoning=500),
        cost=10_575_000,
        first_ms=640,
        total_ms=9_120,
    )


async def _measure_bytes() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        store = SqliteStore(path)
        with closing(connect(path, patience=5.0)) as connection:
            empty = _pages(connection)
        for first in range(0, _MEASURED, 500):
            some = [wanted(first + number) for number in range(500)]
            for one in some:
                store.ledger.reserve_soon(one)
            await store.ledger.settle([ending(one) for one in some])
        await store.close()
        with closing(connect(path, patience=5.0)) as connection:
            each = (_pages(connection) - empty) / _MEASURED
    return _report(f"bytes per charge, {_MEASURED} of them", each, _GOALS["bytes"])


async def _measure_postgres() -> bool:
    import asyncpg

    async with database("postgres", Path()) as url:
        store, connection = open_store(url), await asyncpg.connect(url)
        try:
            for first in range(0, _MEASURED_POSTGRES, 500):
                some = [wanted(first + number) for number in range(500)]
                for one in some:
                    store.ledger.reserve_soon(one)
                await store.ledger.settle([ending(one) for one in some])
                if first % 10_000 == 0:
                    await connection.execute("VACUUM charges")
            size = await connection.fetchval(_SIZE)
        finally:
            await connection.close()
            await store.close()
    each = size / _MEASURED_POSTGRES
    name = f"bytes per charge, {_MEASURED_POSTGRES} of them, PostgreSQL"
    return _report(name, each, _GOALS["bytes"])


def _pages(connection: sqlite3.Connection) -> int:
    """Return how many bytes are used by tables and indexes."""
    count, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((count - free) * size)


async def _measure_usage(charges: int, folder: Path) -> bool:
    path = _filled(folder, charges)
    store = SqliteStore(path)
    end = START + charges // 2
    try:
        await _total(store)
        slowest = 0.0
        for name, question in _questions(store, end):
            times, begun = [], time.process_time()
            for _ in range(_EACH):
                start = time.perf_counter()
                found = await question()
                times.append((time.perf_counter() - start) * 1000)
            cpu = (time.process_time() - begun) / _EACH * 1000
            cuts = statistics.quantiles(times, n=100, method="inclusive")
            print(
                f"  {name}: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, CPU {cpu:.1f} ms,"
                f" {len(found)} rows"
            )
            slowest = max(slowest, cuts[98])
    finally:
        await store.close()
    return _report("slowest p99 of the usage API in ms", slowest, _GOALS["usage ms"])


async def _total(store: SqliteStore) -> None:
    """Total the hours of a new file, as a gateway does when it starts."""
    begun, hours = time.process_time(), 0
    while done := await store.ledger.total(_HOURS):
        hours += done
    if hours:
        each = (time.process_time() - begun) / hours * 1000
        print(f"  {hours} hours totalled, {each:.1f} ms of CPU each")


def _filled(folder: Path, charges: int) -> Path:
    """Return a file with so many charges, generated if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"ledger-{charges}.db"
    if not path.exists():
        generate(path, charges)
    print(f"{charges} charges in {path.stat().st_size / 1e9:.2f} GB")
    return path


def _questions(store: SqliteStore, end: int) -> Iterator[tuple[str, Any]]:
    def usage(days: float, width: Any, *group_by: Any, **more: Any) -> Any:
        query = UsageQuery(
            start=int(end - days * _DAY), end=end, width=width, group_by=group_by, **more
        )
        return lambda: store.ledger.usage(query)

    yield "31 days by day", usage(31, _DAY)
    yield "31 days by day and model", usage(31, _DAY, "model")
    yield "31 days by day, project and key", usage(31, _DAY, "project", "key")
    yield "7 days by hour", usage(7, 3600)
    yield "7 days by hour and model", usage(7, 3600, "model")
    yield "7 days by hour and model, one project", usage(7, 3600, "model", projects=("project3",))
    yield "7 days by hour and model, one model", usage(7, 3600, "model", models=("model3",))
    yield "7 days by hour and key, one project", usage(7, 3600, "key", projects=("project3",))
    yield "1 day by hour and key", usage(1, 3600, "key")
    yield "31 days by day, one conversation", usage(31, _DAY, conversations=("conv_5",))
    yield "60 minutes by minute", usage(1 / 24, 60)
    yield "60 minutes by minute and key", usage(1 / 24, 60, "key")
    yield "a page of a project", lambda: store.ledger.charges(project="project3", limit=100)
    yield "a conversation", lambda: store.ledger.charges(project="project3", conversation="conv_5")


def generate(path: Path, charges: int) -> None:
    """Fill a file. Indexes are made at the end, which is faster."""
    begun = time.monotonic()
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with closing(connect(part, patience=5.0)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute("BEGIN")
        for index in _INDEXES:
            connection.execute(f"DROP INDEX {index.partition(' ')[0]}")
        marks = ", ".join("?" * len(_FILLED))
        statement = f"INSERT INTO charges ({', '.join(_FILLED)}) VALUES ({marks})"
        connection.executemany(statement, _rows(connection, charges))
        for index in _INDEXES:
            connection.execute(f"CREATE INDEX {index}")
        for width in (3600, _DAY):
            connection.execute(_SUM.format(width))
        connection.execute("COMMIT")
    part.rename(path)
    print(f"generated in {time.monotonic() - begun:.0f} s")


def _rows(connection: sqlite3.Connection, charges: int) -> Iterator[tuple[Any, ...]]:
    """Yield settled charges, two a second; ids in an order that fills an index quickly."""
    pick = random.Random(1).random
    names = ["served", "provider", "price", *(f"project{n}" for n in range(20))]
    names += [*(f"key{n}" for n in range(_KEYS)), *(f"model{n}" for n in range(8))]
    names += [f"conv_{n}" for n in range(_TALKS)]
    key = dict(intern_names(connection, names))
    projects = [key[f"project{n}"] for n in range(20)]
    keys = [key[f"key{n}"] for n in range(_KEYS)]
    models = [key[f"model{n}"] for n in range(8)]
    talks = [key[f"conv_{n}"] for n in range(_TALKS)]
    served, provider, price = key["served"], key["provider"], key["price"]
    for number in range(charges):
        who, at = int(pick() * _KEYS), START * 1000 + number * 500
        model = models[(who + (pick() < 0.1)) % 8]
        outcome = 0 if pick() < 0.96 else 3
        fresh, made = int(pick() * 9_000), int(pick() * 2_000)
        response = b"\x01" + number.to_bytes(4, "big") + secrets.token_bytes(20) + b"ap-"
        yield (
            *(response, 0, 1, None, projects[who % 20], keys[who], None, talks[number % _TALKS]),
            *(None, 0, model, served, provider, price, 1, at, fresh, 0, 0, 2_048, 0),
            *(fresh * 1250 + 20_480_000, at + 9_000, fresh // 4, fresh - fresh // 4, 0, made, 0),
            *(fresh * 400 + made * 10_000, 1 if outcome else 0, outcome, 600, 9_000),
        )


async def _measure_turns() -> bool:
    added = 0.0
    for group in _GROUPS:
        with tempfile.TemporaryDirectory() as folder:
            store = SqliteStore(Path(folder) / "a.db")
            times: dict[bool, list[float]] = {False: [], True: []}
            for turn in range(6):
                is_charged = turn % 2 == 1
                times[is_charged].append(await _run_turns(store, group, is_charged=is_charged))
            await store.close()
        plain, charged = min(times[False]), min(times[True])
        added = charged - plain
        print(f"  groups of {group}: {plain:.0f} us CPU per turn, {added:.1f} more with a charge")
    return _report(
        f"CPU that a charge adds, groups of {_GROUPS[-1]}, in us", added, _GOALS["CPU us"]
    )


async def _run_turns(store: SqliteStore, group: int, *, is_charged: bool) -> float:
    """Return the CPU of a turn in microseconds."""
    count = min(_TURNS, group * 60)
    begun = time.process_time()
    for first in range(0, count, group):
        some = [wanted(first + number) for number in range(group)]
        for one in some:
            if is_charged:
                store.ledger.reserve_soon(one)
            response = Response(id=one.response_id, created_at=1, status="in_progress")
            await store.begin("bench", response, [])
        await store.ping()  # the beginnings are written
        await asyncio.gather(*(_finish(store, one, is_charged=is_charged) for one in some))
    return (time.process_time() - begun) / count * 1e6


async def _finish(store: SqliteStore, one: Reservation, *, is_charged: bool) -> None:
    response = Response(id=one.response_id, created_at=1, status="completed")
    await store.finish("bench", response, entries=[ending(one)] if is_charged else [])


def _report(name: str, value: float, goal: float) -> bool:
    load = os.getloadavg()[0]
    is_met = value <= goal
    print(f"{name}: {value:.1f} (goal {goal:g}, load {load:.1f}){'' if is_met else ' MISSED'}")
    return is_met


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--charges", type=int, default=1_000_000)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "antiphon-bench-ledger"
    )
    sys.exit(asyncio.run(main(parser.parse_args())))
