"""What a gateway does when nobody asks: look after turns, rows and notices.

Once a second: store the ends that a store in trouble could not take, take over what dead
processes left unfinished, and cancel here what somebody asked another process to cancel. Once
an hour: remove what is older than the retention.
All the time: deliver notices. A store that cannot be reached is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from antiphon.engine.engine import Engine
from antiphon.engine.recovery import recover
from antiphon.engine.turn import TurnCancelled
from antiphon.engine.webhooks import Webhooks
from antiphon.protocol.errors import StoreUnavailable

__all__ = ["look_after", "upkeep"]

_LOOK_SECONDS: Final = 1.0
_SWEEP_SECONDS: Final = 3600.0
_DAY: Final = 86_400
_log = logging.getLogger(__name__)


@asynccontextmanager
async def upkeep(engine: Engine, webhooks: Webhooks, retention_days: float) -> AsyncIterator[None]:
    """Do all of it meanwhile. On entry, what an earlier process left has been taken over."""
    await look_after(engine)
    jobs = [
        _again_and_again(_LOOK_SECONDS, lambda: look_after(engine)),
        _again_and_again(_SWEEP_SECONDS, lambda: _sweep(engine, retention_days), at_once=True),
        webhooks.run(),
    ]
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await webhooks.close()


async def look_after(engine: Engine) -> None:
    """Settle what is owed, take over what the dead left, cancel what others were told to."""
    await engine.settle()
    count = await recover(engine)
    if count:
        _log.warning("%d responses were cut off by a restart and are taken care of", count)
    for owner, response_id in await engine.store.asked_cancels():
        engine.background.interrupt(owner, response_id, TurnCancelled("the response was cancelled"))


async def _sweep(engine: Engine, retention_days: float) -> None:
    now = engine.now()
    count = await engine.store.sweep(now - int(retention_days * _DAY), now - _DAY)
    if count:
        _log.info("%d responses were older than the retention and are gone", count)


async def _again_and_again(
    seconds: float, job: Callable[[], Awaitable[None]], *, at_once: bool = False
) -> None:
    is_well = True
    while True:
        if not at_once:
            await asyncio.sleep(seconds)
        at_once = False
        try:
            await job()
        except StoreUnavailable as error:
            if is_well:
                _log.warning("the store cannot be looked after now: %s", error)
            is_well = False
        except Exception:  # noqa: BLE001 - the outermost frame of this task
            _log.exception("looking after the store broke")
        else:
            is_well = True
