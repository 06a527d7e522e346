"""A process that runs turns with charges until it is killed, and recovers what others have left.

The provider is a file: a line when a call arrives, and one when it is billed, each synced. On
SIGTERM no new turn begins; the recovery goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import time
from typing import Final, NamedTuple, NoReturn

import msgspec

from antiphon.protocol.errors import StoreUnavailable, TurnLost
from antiphon.protocol.response import Failure, Response
from antiphon.protocol.token_counts import TokenCounts
from antiphon.store.base import Store
from antiphon.store.base.ledger import (
    Budget,
    Charge,
    Payer,
    RateLimit,
    Refused,
    Reservation,
    Settlement,
)
from antiphon.store.open import open_store

__all__ = ["BUDGETS", "LIMITS", "Plan", "be_victim"]

OWNER: Final = "alice"
_STREAMS: Final = 8
_RECOVER_SECONDS: Final = 0.5
_HELD: Final = TokenCounts(fresh=100, output=200)
_PRICE: Final = 10
BUDGETS: Final = (
    Budget(id="all", scope="organization", period="total", ceiling=10**15),
    Budget(id="day", scope="project", scope_id=OWNER, period="day", ceiling=10**15),
    Budget(id="words", scope="key", scope_id="k1", unit="tokens", ceiling=10**12),
    Budget(id="small", scope="key", scope_id="k2", period="total", ceiling=200_000),
)
LIMITS: Final = (RateLimit(id="rate", scope="project", scope_id=OWNER, concurrent=1_000),)


class Plan(NamedTuple):
    """Where a process writes, and its name. `is_late` plants a bug: reserved after the call."""

    store: str
    bill: str
    name: str
    seed: float
    is_late: bool = False


def be_victim(plan: Plan) -> NoReturn:
    """Run turns until the process is killed."""
    try:
        asyncio.run(_run(plan))
    except BaseException as error:  # noqa: BLE001 - a forked process must not go on from here
        print(f"{plan.name} broke: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


async def _run(plan: Plan) -> None:
    logging.disable(logging.WARNING)
    store = open_store(plan.store)
    victim = _Victim(store, plan)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, victim.drain)
    async with asyncio.TaskGroup() as group:
        group.create_task(_recover(store))
        for number in range(_STREAMS):
            group.create_task(victim.run(number))
        await asyncio.Event().wait()


class _Victim:
    """The turns of one process, and the provider that bills them."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store = store
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._bill = os.open(plan.bill, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._is_draining = False

    def drain(self) -> None:
        """Begin no more turns."""
        self._is_draining = True

    async def run(self, stream: int) -> None:
        """Run one turn after the other."""
        turn = 0
        while not self._is_draining:
            turn += 1
            try:
                await self._turn(f"resp_{self._plan.name}_{stream}_{turn}")
            except (StoreUnavailable, TurnLost) as error:
                # A busy machine: recovery ends the turn, or this process settles it on its own.
                print(f"{self._plan.name}: {error}", file=sys.stderr, flush=True)

    async def _turn(self, response_id: str) -> None:
        is_stored = self._random.random() < 0.6
        if is_stored:
            response = Response(id=response_id, created_at=int(time.time()))
            await self._store.begin(OWNER, response, [])
        payer = Payer(
            OWNER,
            key=self._random.choice(("k1", "k2", "k3")),
            user=self._random.choice((None, "u1", "u2")),
            run=self._random.choice((None, "run1")),
        )
        settled: list[Settlement] = []
        for number in range(self._random.choice((1, 1, 2, 3))):
            answer = await self._call(response_id, number, payer, settled)
            if answer is None:
                break
            settled = [answer]
        if is_stored:
            done = Response(id=response_id, created_at=int(time.time()), status="completed")
            await self._store.finish(OWNER, done, entries=settled)
        elif settled:
            await self._store.ledger.settle(settled)

    async def _call(
        self, response_id: str, number: int, payer: Payer, settled: list[Settlement]
    ) -> Settlement | None:
        """Make one call; return how it is settled, or None if it was refused."""
        wanted = Reservation(
            response_id=response_id,
            number=number,
            payer=payer,
            model="m",
            held=_HELD,
            held_cost=_HELD.total * _PRICE,
            is_request=number == 0,
        )
        if self._plan.is_late:
            await self._write("called", response_id, number, 0)
        granted = await self._store.ledger.reserve(wanted, settled)
        if isinstance(granted, Refused):
            settled.clear()  # they were settled with the refusal
            return None
        if self._random.random() < 0.1 and not self._plan.is_late:
            return Settlement(
                response_id=response_id, number=number, outcome="released", basis="counted"
            )
        await self._write("called", response_id, number, 0)
        await asyncio.sleep(self._random.uniform(0, 0.02))
        used = TokenCounts(fresh=self._random.randint(1, 100), output=self._random.randint(0, 200))
        await self._write("billed", response_id, number, used.total)
        return Settlement(
            response_id=response_id,
            number=number,
            outcome="completed",
            basis="reported",
            used=used,
            cost=used.total * _PRICE,
        )

    async def _write(self, word: str, response_id: str, number: int, tokens: int) -> None:
        os.write(self._bill, f"{word} {response_id} {number} {tokens}\n".encode())
        await asyncio.to_thread(os.fdatasync, self._bill)


async def _recover(store: Store) -> None:
    """End and settle what dead processes have left, as a gateway does."""
    while True:
        try:
            for orphan in await store.claim_orphans(100):
                response = msgspec.structs.replace(
                    orphan.response,
                    status="failed",
                    error=Failure("server_restarted", "the server was restarted"),
                )
                entries = [_assumed(one) for one in await store.ledger.open_charges(response.id)]
                await store.finish(orphan.owner, response, entries=entries)
            while await store.ledger.settle_abandoned(100):
                pass
        except (StoreUnavailable, TurnLost) as error:
            print(f"recovery: {error}", file=sys.stderr, flush=True)
        await asyncio.sleep(_RECOVER_SECONDS)


def _assumed(charge: Charge) -> Settlement:
    return Settlement(
        response_id=charge.response_id,
        number=charge.number,
        outcome="failed",
        basis="assumed",
        used=charge.held,
        cost=charge.held_cost,
    )
