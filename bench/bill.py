"""Do the books equal the provider's bill, turn after turn, while clients leave?

A real `antiphon serve` with its store in SQLite, in a process of its own, in front of a model
server that bills every call (`bill_upstream.py`). Turns are streamed or whole, stored or not; the
upstream reports its usage or not, refuses a call that is then tried again, or breaks a stream
off. A tenth of the clients leave, each at a random moment. Every turn is a run with its number,
which the upstream finds in the prompt: so each charge is held against the bill of its call.

    python bench/bill.py [--turns 10000] [--clients 16] [--leaving 0.1] [--seed 1]

A charge is right if it has the same tokens where the usage was `reported`, differs by 3 % or one
token at most where it was `counted`, and is not below the bill where it was `assumed`; and if its
cost is the price of its tokens. Each call that was billed has one charge, and each charge that was
not released has its call. The goal is 0 wrong, nothing held, and books without contradiction;
otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
from bill_upstream import MODEL, Bill, Billed, Json, Turn, billing, turn_of
from processes import gateway, machine, scratch

from antiphon.store.base import Store
from antiphon.store.base.ledger import Charge
from antiphon.store.open import open_store

__all__ = ["Soak", "Wrong", "main"]

_PATIENCE: Final = 60.0
_PAGE: Final = 1000
_SHOWN: Final = 10
_NEAR: Final = 0.03
_NANOS: Final = {"fresh": 1250, "cached": 125, "output": 10_000}
_SETTINGS: Final = """
[providers.bill]
base_url = "{url}"

[models.{model}]
context_length = 200000

[models.{model}.price]
input = "1.25"
cached = "0.125"
output = "10"
"""


class Soak:
    """The clients of a gateway: so many at a time, until all turns are done."""

    def __init__(self, url: str, options: argparse.Namespace) -> None:
        self._url = f"{url}/responses"
        self._numbers = iter(range(options.turns))
        self._options = options
        self.kinds: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()

    async def run(self) -> None:
        """Run all turns."""
        timeout = aiohttp.ClientTimeout(total=_PATIENCE)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            await asyncio.gather(*(self._client(session) for _ in range(self._options.clients)))

    async def _client(self, session: aiohttp.ClientSession) -> None:
        for number in self._numbers:
            turn = turn_of(number, self._options.seed, self._options.leaving)
            asking = asyncio.create_task(self._ask(session, turn))
            await asyncio.wait({asking}, timeout=turn.leaves_after)
            self.kinds[_kind_of(turn)] += 1
            if asking.done():
                self.ends[asking.result()] += 1
                continue
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
            self.ends["left"] += 1

    async def _ask(self, session: aiohttp.ClientSession, turn: Turn) -> str:
        body: Json = {"model": MODEL, "input": turn.prompt}
        body |= {"stream": turn.is_streamed, "store": turn.is_stored}
        run = {"x-antiphon-run": str(turn.number)}
        async with session.post(self._url, json=body, headers=run) as answer:
            data = await answer.read()
        if answer.status != 200 or b"event: response.failed\n" in data:
            return "failed"
        return "completed"


async def _charges(store: Store) -> list[Charge]:
    """Return all charges, when none is held any more."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        found: list[Charge] = []
        before = None
        while page := await store.ledger.charges(before=before, limit=_PAGE):
            found += page
            before = (page[-1].reserved_at, page[-1].response_id, page[-1].number)
        if all(charge.state != "held" for charge in found) or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.2)


class Wrong(NamedTuple):
    """Something that is wrong: its kind, and what it is."""

    kind: str
    text: str


def _wrongs(turn: Turn, charges: Sequence[Charge], bills: Sequence[Billed]) -> Iterator[Wrong]:
    """Yield what is wrong with the charges of one turn."""
    paid = sorted((c for c in charges if c.outcome != "released"), key=lambda c: c.number)
    if len(paid) != len(bills):
        kind = "charged without a call" if len(paid) > len(bills) else "not charged"
        yield Wrong(kind, f"refused first: {turn.refusal}, {paid}, billed {list(bills)}")
        return
    for charge, billed in zip(paid, bills, strict=True):
        about = f"{charge.basis}, {charge.outcome}, {charge.used}, billed {billed}"
        if charge.state == "held":
            yield Wrong("still held", about)
        elif not _is_right(charge, billed):
            yield Wrong(f"other tokens, {_kind_of(turn)}", about)
        if charge.cost != _cost(charge):
            yield Wrong("other cost", f"{charge.cost}, not {_cost(charge)}: {about}")
    for charge in charges:
        if charge.outcome == "released" and (charge.used.total or charge.cost):
            yield Wrong("released, but not free", f"{charge}")


def _kind_of(turn: Turn) -> str:
    how = "streamed" if turn.is_streamed else "whole"
    return f"{how} and {'stored' if turn.is_stored else 'not stored'}"


def _is_right(charge: Charge, billed: Billed) -> bool:
    used = charge.used
    pairs = (used.input_total, billed.input), (used.output_total, billed.output)
    match charge.basis:
        case "reported":
            parts = (used.cached, used.reasoning) == (billed.cached, billed.reasoning)
            return parts and all(ours == theirs for ours, theirs in pairs)
        case "counted":
            return all(abs(ours - theirs) <= max(1, _NEAR * theirs) for ours, theirs in pairs)
        case "assumed":
            return all(ours >= theirs for ours, theirs in pairs)
        case None:
            return False


def _cost(charge: Charge) -> int:
    """Return the nano-dollars of its tokens."""
    used = charge.used
    given = used.fresh * _NANOS["fresh"] + used.cached * _NANOS["cached"]
    return given + used.output_total * _NANOS["output"]


async def _judge(store: Store, bill: Bill, options: argparse.Namespace) -> bool:
    """Hold the books against the bill, and print; return whether all is right."""
    charges = await _charges(store)
    by_turn: defaultdict[int, list[Charge]] = defaultdict(list)
    for charge in charges:
        by_turn[int(charge.payer.run or -1)].append(charge)
    wrong: list[tuple[int, Wrong]] = []
    for number in sorted(by_turn.keys() | bill.calls.keys()):
        turn = turn_of(number, options.seed, options.leaving)
        bills = bill.calls.get(number, [])
        wrong += [(number, one) for one in _wrongs(turn, by_turn[number], bills)]
    problems = await store.ledger.check()
    _print_sums(charges, bill)
    print(f"wrong: {len(wrong)} (goal 0)")
    for kind, count in Counter(one.kind for _, one in wrong).most_common():
        print(f"  {count} {kind}")
    for number, one in wrong[:_SHOWN]:
        print(f"  turn {number}: {one.kind}: {one.text}")
    print(f"contradictions in the books: {len(problems)} (goal 0)")
    for problem in problems[:_SHOWN]:
        print(f"  {problem}")
    return not wrong and not problems


def _print_sums(charges: Sequence[Charge], bill: Bill) -> None:
    bases: Counter[str] = Counter(
        "released" if charge.outcome == "released" else charge.basis or "held" for charge in charges
    )
    calls = [billed for some in bill.calls.values() for billed in some]
    print(f"{len(charges)} charges: " + ", ".join(f"{n} {name}" for name, n in bases.most_common()))
    given, made = sum(call.input for call in calls), sum(call.output for call in calls)
    print(f"billed: {len(calls)} calls, {given} tokens of input and {made} of output")
    given = sum(charge.used.input_total for charge in charges)
    made = sum(charge.used.output_total for charge in charges)
    print(f"in the books: {given} tokens of input and {made} of output")


async def main(options: argparse.Namespace, directory: Path) -> bool:
    """Run the turns and print; return whether all is right."""
    print(f"The provider's bill: {options.turns} turns ({machine()})", flush=True)
    settings, path = directory / "antiphon.toml", directory / "store.db"
    async with billing(options.seed, options.leaving) as bill:
        settings.write_text(_SETTINGS.format(url=bill.url, model=MODEL))
        flags = ("--config", str(settings), "--log-level", "error")
        # The gateway asks the upstream for its models before it says that it is ready.
        serving = gateway(*flags, store=path)
        process = await asyncio.to_thread(serving.__enter__)
        try:
            soak = Soak(f"http://127.0.0.1:{process.port}/v1", options)
            began = time.monotonic()
            await soak.run()
            seconds = time.monotonic() - began
            for counts in (soak.kinds, soak.ends):
                print(", ".join(f"{count} {name}" for name, count in counts.most_common()))
            print(f"{seconds:.0f} s; {bill.left} calls ended because the gateway had left")
            store = open_store(f"sqlite:{path}")
            try:
                return await _judge(store, bill, options)
            finally:
                await store.close()
        finally:
            await asyncio.to_thread(serving.__exit__, None, None, None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Holds the ledger against the provider's bill.")
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--leaving", type=float, default=0.1, help="share of clients that leave")
    parser.add_argument("--seed", type=int, default=1)
    with scratch() as folder:
        sys.exit(not asyncio.run(main(parser.parse_args(), folder)))
