"""How does one PostgreSQL answer with a million conversations in it?

One conversation with a turn is stored by a real store; its rows are copied a million times with
other ids by COPY, over 1,000 owners. Then the same store reads histories, lists items and sweeps
old responses, and the times are compared with those of a small database. The caches of PostgreSQL
are as the COPY left them; what is read is chosen at random over all conversations.

    python bench/many_conversations.py [--conversations 1000000] [--reads 2000]

A million takes about ten minutes and 5 GB, on a server of its own or on that of DATABASE_URL.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

import asyncpg
from pg_limits import own_database
from processes import machine

from antiphon.protocol.items import Item
from antiphon.protocol.response import Response
from antiphon.store.base import Conversation
from antiphon.store.postgres import PostgresStore

__all__ = ["main"]

_MARK: Final = "0123456789abcdef"
_OWNERS: Final = 1_000
_START: Final = 1_700_000_000
_TEXT: Final = 350
_TABLES: Final = ("responses", "items", "conversations", "conversation_items")
_AT_ONCE: Final = 20_000
_SWEPT: Final = 500
_SWEEPS: Final = 100
_SIZE: Final = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest($1::text[]) AS name"


class Row(NamedTuple):
    """A row that is copied: its table, its columns and its values."""

    table: str
    columns: tuple[str, ...]
    values: tuple[Any, ...]


def _owner(number: int) -> str:
    return f"owner_{number % _OWNERS:04}"


def _message(name: str, role: str) -> Item:
    dice = random.Random(name)
    text = " ".join(f"{dice.getrandbits(32):x}" for _ in range(_TEXT // 9))
    kind = "input_text" if role == "user" else "output_text"
    part = {"type": kind, "text": text} | ({} if role == "user" else {"annotations": []})
    return {"type": "message", "id": f"{name}_{_MARK}", "role": role, "content": [part]}


async def _template(store: PostgresStore, connection: Any) -> list[Row]:
    """Store one conversation with a turn, and return its rows."""
    asked, said = _message("msg_in", "user"), _message("msg_out", "assistant")
    conversation = f"conv_{_MARK}"
    response = Response(id=f"resp_{_MARK}", status="in_progress", model="m", created_at=_START)
    await store.conversations.create("bench", Conversation(conversation, _START), [asked])
    await store.begin("bench", response, [asked])
    response.status, response.output = "completed", [said]
    await store.finish("bench", response)
    await store.conversations.add("bench", conversation, [said])
    rows = []
    for table in _TABLES:
        for found in await connection.fetch(f"SELECT * FROM {table} WHERE owner = 'bench'"):
            row = Row(table, tuple(found.keys()), tuple(found.values()))
            assert _MARK.encode() in found["body"], f"{table} has a body that cannot be copied"
            rows.append(row)
    return rows


def _copies(row: Row, numbers: range) -> Iterator[tuple[Any, ...]]:
    """Yield the row of each conversation of these numbers."""
    mark, old = _MARK.encode(), {"key", "response", "conversation"}
    for number in numbers:
        name = f"{number:016x}"
        yield tuple(
            number
            if column in old
            else _owner(number)
            if column == "owner"
            else _START + number
            if column == "created_at"
            else value.replace(_MARK, name)
            if isinstance(value, str)
            else value.replace(mark, name.encode())
            if isinstance(value, bytes)
            else value
            for column, value in zip(row.columns, row.values, strict=True)
        )


async def _fill(connection: Any, rows: list[Row], count: int) -> None:
    for first in range(1000, 1000 + count, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, 1000 + count))
        for row in rows:
            await connection.copy_records_to_table(
                row.table, records=_copies(row, numbers), columns=row.columns, timeout=600
            )
    for table in _TABLES:
        await connection.execute(f"ANALYZE {table}", timeout=600)


async def _time(times: int, work: Callable[[int], Awaitable[object]], count: int) -> list[float]:
    dice, took = random.Random(1), []
    for _ in range(times):
        number = dice.randrange(1000, 1000 + count)
        start = time.perf_counter()
        found = await work(number)
        took.append(time.perf_counter() - start)
        assert found, f"conversation {number} was not found"
    return sorted(took)


def _line(what: str, took: list[float]) -> str:
    cells = (statistics.median(took), took[int(len(took) * 0.99)], took[-1])
    return f"  {what:34}" + "".join(f"{cell * 1e3:10.2f}" for cell in cells)


async def _measure(store: PostgresStore, count: int, reads: int) -> list[str]:
    talks = store.conversations

    async def history(number: int) -> object:
        return await store.history(_owner(number), f"resp_{number:016x}")

    async def items(number: int) -> object:
        return await talks.items(_owner(number), f"conv_{number:016x}")

    async def page(number: int) -> object:
        name = f"conv_{number:016x}"
        return await talks.page(_owner(number), name, after=None, limit=20, is_descending=True)

    swept = itertools.count(_START + 1000 + _SWEPT, _SWEPT)

    async def sweep(_: int) -> object:
        return await store.sweep(next(swept), 0)

    lines = [f"  {'ms':34}{'median':>10}{'p99':>10}{'longest':>10}"]
    for what, work in (
        ("history of a response", history),
        ("history of a conversation", items),
        ("list of a conversation's items", page),
    ):
        lines.append(_line(what, await _time(reads, work, count)))
    sweeps = min(_SWEEPS, count // _SWEPT)
    lines.append(_line(f"sweep of {_SWEPT} old responses", await _time(sweeps, sweep, count)))
    return lines


async def _run(count: int, reads: int) -> None:
    async with own_database() as url:
        store, connection = PostgresStore(url, patience=60.0), await asyncpg.connect(url)
        try:
            rows = await _template(store, connection)
            start = time.monotonic()
            await _fill(connection, rows, count)
            filled = time.monotonic() - start
            size = int(await connection.fetchval(_SIZE, list(_TABLES)))
            print(f"{count:,} conversations, {size / 1e9:.2f} GB, copied in {filled:.0f} s")
            print("\n".join(await _measure(store, count, reads)), flush=True)
        finally:
            await connection.close()
            await store.close()


def main() -> None:
    """Fill a small and a large database, and print the times of both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--conversations", type=int, default=1_000_000)
    parser.add_argument("--reads", type=int, default=2_000)
    given = parser.parse_args()
    print(f"conversations in PostgreSQL ({machine()})")
    for count in (min(10_000, given.conversations), given.conversations):
        asyncio.run(_run(count, given.reads))


if __name__ == "__main__":
    sys.exit(main())
