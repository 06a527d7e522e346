"""Does `kill -9` lose a charge, or leave the books wrong? Never.

Processes share a store and run turns. A turn reserves a charge, is "billed" by a provider that
writes into a file and syncs it, and settles the charge: with the next reservation, with the end
of its response, or alone. A random process is killed at a random moment, again and again, and
started anew. Each process also recovers what the dead have left, as a gateway does. After the
last kill the others only recover. Then:

- every call that the provider has seen has a charge, and a call that was billed is paid for: to
  the token if the charge says "reported", with no less if it says "assumed";
- no charge says "reported" that the provider has not billed;
- no charge is held, and `check` finds nothing, ten seconds after the last kill at most.

    python bench/ledger_kill.py [--kills 100] [--store sqlite|postgres] [--nodes 3] [--seed 1]

Exits with 1 if one rule was broken once. With `--late`, the provider is called before the charge
is durable: that must break rules, which shows that they are checked.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
from kill_nodes import database
from ledger_victim import BUDGETS, LIMITS, Plan, be_victim
from processes import machine, scratch

from antiphon.store.base import Store
from antiphon.store.base.ledger import Charge
from antiphon.store.open import open_store

__all__ = ["main"]

_DEADLINE_SECONDS: Final = 10.0
_PATIENCE: Final = 60.0
# A node that has just started does not trust expired leases: the last kill waits for that.
_STEADY_SECONDS: Final = 6.0
_PAGE: Final = 500

Name = tuple[str, int]


class Bill(msgspec.Struct):
    """What the provider has written: calls it has seen, and the tokens it has billed."""

    seen: set[Name] = msgspec.field(default_factory=set)
    billed: dict[Name, int] = {}


def main(given: argparse.Namespace) -> int:
    """Kill so often, print the figures, and return how many rules were broken."""
    with scratch() as directory, asyncio.Runner() as runner:
        place = database(given.store, directory)
        url = runner.run(place.__aenter__())
        try:
            runner.run(_prepare(url))
            kills = _Kills(given, url, directory)
            kills.run()
            took, charges, problems = runner.run(_wait_until_clean(url, kills.last))
            kills.stop()
        finally:
            runner.run(place.__aexit__(None, None, None))
        bill = _read_bill(directory)
    broken = [*problems, *_compare(bill, charges)]
    if took > _DEADLINE_SECONDS:
        broken.append(f"clean only {took:.1f} s after the last kill")
    assumed = sum(charge.basis == "assumed" for charge in charges)
    print(f"charges under kill -9 ({machine()})")
    print(f"{given.kills} kills of {given.nodes} processes, {given.store}")
    print(
        f"{len(bill.seen)} calls seen, {len(bill.billed)} billed, {len(charges)} charges,"
        f" {assumed} assumed; clean {took:.1f} s after the last kill"
    )
    print(f"broken: {len(broken)}")
    for line in broken[:20]:
        print(f"  {line}")
    return len(broken)


class _Kills:
    """The processes, which are forked while no event loop runs."""

    def __init__(self, given: argparse.Namespace, url: str, directory: Path) -> None:
        self._given = given
        self._url = url
        self._directory = directory
        self._random = random.Random(given.seed)
        self._lives = 0
        self._pids: list[int] = []
        self.last = 0.0

    def run(self) -> None:
        """Start the processes, and kill one after the other."""
        given = self._given
        self._pids = [self._start() for _ in range(given.nodes)]
        time.sleep(1.0)
        for number in range(given.kills):
            time.sleep(self._random.uniform(0.02, given.pause * 2))
            if number == given.kills - 1:
                time.sleep(_STEADY_SECONDS)
            place = self._random.randrange(given.nodes)
            os.kill(self._pids[place], signal.SIGKILL)
            os.waitpid(self._pids[place], 0)
            if number == given.kills - 1:
                del self._pids[place]
            else:
                self._pids[place] = self._start()
        self.last = time.monotonic()
        for pid in self._pids:
            os.kill(pid, signal.SIGTERM)  # from now on it only recovers

    def stop(self) -> None:
        """End the survivors."""
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def _start(self) -> int:
        self._lives += 1
        bill = self._directory / f"bill-{self._lives}"
        plan = Plan(
            self._url, str(bill), f"n{self._lives}", self._random.random(), self._given.late
        )
        pid = os.fork()
        if not pid:
            be_victim(plan)
        return pid


async def _prepare(url: str) -> None:
    store = open_store(url)
    for budget in BUDGETS:
        await store.ledger.put_budget(budget)
    for limit in LIMITS:
        await store.ledger.put_limit(limit)
    await store.close()


async def _wait_until_clean(url: str, since: float) -> tuple[float, list[Charge], list[str]]:
    """Return how long it took until nothing is held, all charges, and what is wrong."""
    store = open_store(url)
    try:
        while True:
            charges = await _all_charges(store)
            held = [charge for charge in charges if charge.state == "held"]
            took = time.monotonic() - since
            if not held or took > _PATIENCE:
                break
            await asyncio.sleep(0.1)
        problems = [
            f"{one.rule} {one.subject}: {one.message}" for one in await store.ledger.check()
        ]
        problems += [f"{one.response_id} {one.number} is still held" for one in held]
    finally:
        await store.close()
    return took, charges, problems


async def _all_charges(store: Store) -> list[Charge]:
    found: list[Charge] = []
    before = None
    while page := await store.ledger.charges(before=before, limit=_PAGE):
        found += page
        before = (page[-1].reserved_at, page[-1].response_id, page[-1].number)
    return found


def _read_bill(directory: Path) -> Bill:
    """Read what all processes have written. A last line that was cut off was not billed."""
    bill = Bill()
    for path in directory.glob("bill-*"):
        for line in path.read_text().split("\n")[:-1]:
            word, response_id, number, tokens = line.split()
            name = (response_id, int(number))
            bill.seen.add(name)
            if word == "billed":
                bill.billed[name] = int(tokens)
    return bill


def _compare(bill: Bill, charges: list[Charge]) -> list[str]:
    found = {(charge.response_id, charge.number): charge for charge in charges}
    broken = [f"{name} was called and has no charge" for name in bill.seen if name not in found]
    for name, tokens in bill.billed.items():
        charge = found.get(name)
        if charge is None or charge.state == "held":
            continue
        if charge.basis == "assumed" and charge.used.total < tokens:
            broken.append(f"{name}: {tokens} were billed, {charge.used.total} assumed")
        if charge.basis != "assumed" and charge.used.total != tokens:
            broken.append(f"{name}: {tokens} were billed, {charge.used.total} paid")
    for name, charge in found.items():
        if charge.state == "settled" and charge.basis == "reported" and name not in bill.billed:
            broken.append(f"{name} was paid for and never billed")
        if charge.state == "released" and name in bill.seen:
            broken.append(f"{name} was called and its charge released")
    return broken


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.25, help="mean seconds between kills")
    parser.add_argument("--late", action="store_true", help=argparse.SUPPRESS)
    sys.exit(bool(main(parser.parse_args())))
