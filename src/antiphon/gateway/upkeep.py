"""The maintenance that a gateway does beside its requests.

Once a second: store the ends of turns that the store could not take before, take over turns that
dead processes left unfinished, and cancel turns of this process whose cancellation another
process was asked for. Once a minute: total the hours that have passed. Once an hour: remove what
is older than the retention, and files, uploads and containers that have expired. All the time:
deliver webhooks, and return freed memory to the system. A store that cannot be reached is tried
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from antiphon.engine.engine import Engine
from antiphon.engine.keep.webhooks import Webhooks
from antiphon.protocol.errors import StoreUnavailable
from antiphon.server.limits import ServerLimits
from antiphon.server.memory import FreedMemory
from antiphon.store.base import Store
from antiphon.store.base.native_states import STATE_SECONDS
from antiphon.store.base.store import sweep_in_steps

__all__ = ["sweep", "upkeep"]

Chore = Callable[[], Awaitable[object]]
_LOOK_SECONDS: Final = 1.0
_TOTAL_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 3600.0
_MEMORY_SECONDS: Final = 5.0
_DAY: Final = 86_400
# Files, uploads and containers that are removed in one transaction.
_FILES_AT_ONCE: Final = 200
_CHARGES_AT_ONCE: Final = 1000
_LOGS_AT_ONCE: Final = 200
_HOURS_AT_ONCE: Final = 48
_log = logging.getLogger(__name__)


@asynccontextmanager
async def upkeep(
    engine: Engine,
    webhooks: Webhooks,
    limits_now: Callable[[], ServerLimits],
    cancel: Callable[[str, str], None],
) -> AsyncIterator[None]:
    """Do the maintenance inside this context. On entry, turns of dead processes are taken over.

    `cancel` ends a response of an owner that runs in this process.
    """
    chores: list[Chore] = [
        engine.pending_writes.settle,
        partial(_recover, engine),
        partial(_cancel, engine.store, cancel),
    ]
    return_memory = partial(asyncio.to_thread, FreedMemory().give_back)
    for chore in chores:
        await _try(chore)
    tasks = [
        *(asyncio.create_task(_again_and_again(chore, _LOOK_SECONDS)) for chore in chores),
        asyncio.create_task(_sweep_now_and_then(engine, limits_now)),
        asyncio.create_task(_total_now_and_then(engine.store)),
        asyncio.create_task(webhooks.run()),
        asyncio.create_task(_again_and_again(return_memory, _MEMORY_SECONDS)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await webhooks.close()


async def _recover(engine: Engine) -> None:
    """Take over what dead processes left, unless we are about to leave ourselves."""
    if engine.background.is_closed:
        return
    count = await engine.recovery.run()
    if count:
        _log.warning("unfinished turns of processes that died, now taken over: %d", count)


async def _cancel(store: Store, cancel: Callable[[str, str], None]) -> None:
    """Cancel turns of this process whose cancellation another process was asked for."""
    for owner, response_id in await store.asked_cancels():
        cancel(owner, response_id)


async def _sweep_now_and_then(engine: Engine, limits_now: Callable[[], ServerLimits]) -> None:
    async def chore() -> None:
        await sweep(engine.store, limits_now(), engine.now())

    await _try(chore)
    await _again_and_again(chore, _SWEEP_SECONDS)


async def _total_now_and_then(store: Store) -> None:
    async def chore() -> None:
        while await store.ledger.total(_HOURS_AT_ONCE) == _HOURS_AT_ONCE:
            pass

    await _try(chore)
    await _again_and_again(chore, _TOTAL_SECONDS)


async def sweep(store: Store, limits: ServerLimits, now: int) -> None:
    """Remove what is older than its class is kept: see `store.retention`."""
    count = await store.sweep(now - int(limits.retention_days * _DAY), now - _DAY)
    if limits.log_retention_days is not None:
        old_logs = now - int(limits.log_retention_days * _DAY)
        await sweep_in_steps(store.sweep_logs, old_logs, _LOGS_AT_ONCE)
    old_rounds = now - int(limits.upstream_request_retention_days * _DAY)
    await sweep_in_steps(store.rounds.sweep, old_rounds, _LOGS_AT_ONCE)
    await store.native_states.expire(now - STATE_SECONDS)
    await sweep_in_steps(store.files.sweep, now, _FILES_AT_ONCE)
    old_charges = now - int(limits.charge_retention_days * _DAY)
    await sweep_in_steps(store.ledger.sweep, old_charges, _CHARGES_AT_ONCE)
    if count:
        _log.info("%d responses were older than the retention and were removed", count)


async def _again_and_again(chore: Chore, seconds: float) -> None:
    is_well = True
    while True:
        await asyncio.sleep(seconds)
        is_well = await _try(chore, is_logged=not is_well)


async def _try(chore: Chore, *, is_logged: bool = False) -> bool:
    """Do it and return whether it succeeded. A failure that continues is logged once."""
    try:
        await chore()
    except StoreUnavailable as error:
        if not is_logged:
            _log.warning("the maintenance of the store failed: %s", error)
        return False
    except Exception:  # noqa: BLE001 - the outermost frame of its task
        if not is_logged:
            _log.exception("the maintenance of the store failed unexpectedly")
        return False
    return True
