"""Who asks a process to reload? A signal, or the parent of several workers.

A process that serves alone reads, builds and swaps when SIGHUP arrives. A worker does it in two
steps: it reports whether it could, and swaps when the parent asks for it: when all workers could.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from antiphon.gateway.errors import BadSettings
from antiphon.gateway.hangup import hangups
from antiphon.gateway.notify import ServiceManager
from antiphon.gateway.reload import Prepared, Reloader, describe_change, describe_restart
from antiphon.gateway.worker_line import Message, ParentLine
from antiphon.protocol.errors import StoreUnavailable
from antiphon.server.metrics import Metrics

__all__ = ["REFUSED", "reload_by_parent", "reload_by_signal"]

_log = logging.getLogger(__name__)
REFUSED: Final = "the reload was refused, and all settings stay as they were: %s"


@asynccontextmanager
async def reload_by_signal(
    manager: ServiceManager, reloader: Reloader, metrics: Metrics
) -> AsyncIterator[None]:
    """Reload at each SIGHUP inside this context; report it to the service manager."""
    asked = asyncio.Event()

    async def work() -> None:
        while True:
            await asked.wait()
            asked.clear()
            manager.reloading()
            status = await _reload(reloader, metrics)
            manager.describe(status)
            manager.ready()

    async with hangups(asked.set), _beside(work()):
        yield


async def _reload(reloader: Reloader, metrics: Metrics) -> str:
    """Reload, or leave everything as it is; return a sentence about it."""
    prepared = await _prepare(reloader)
    if isinstance(prepared, str):
        metrics.note_reload(is_applied=False)
        _log.error(REFUSED, prepared)
        return REFUSED % prepared
    reloader.apply(prepared)
    metrics.note_reload(is_applied=True)
    done = describe_change(prepared.checked, prepared.change)
    _log.info("%s", done)
    restart = describe_restart(prepared.change)
    if restart:
        _log.warning("%s", restart)
    return done


async def _prepare(reloader: Reloader, digest: str | None = None) -> Prepared | str:
    """Return what was built, or why nothing can be."""
    try:
        return await reloader.prepare(digest)
    except (BadSettings, StoreUnavailable) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a reload that breaks must not end the service
        _log.exception("the reload broke")
        return f"it broke; this is our fault ({type(error).__name__})"


@asynccontextmanager
async def reload_by_parent(
    line: ParentLine, reloader: Reloader, metrics: Metrics
) -> AsyncIterator[None]:
    """Do what the parent asks for inside this context."""
    messages: asyncio.Queue[Message] = asyncio.Queue()
    work = _obey(line, messages, reloader, metrics)
    async with line.listening(messages.put_nowait), _beside(work):
        yield


async def _obey(
    line: ParentLine, messages: asyncio.Queue[Message], reloader: Reloader, metrics: Metrics
) -> None:
    prepared: Prepared | str = ""
    while True:
        message = await messages.get()
        match message.kind:
            case "prepare":
                prepared = await _prepare(reloader, message.text)
                if isinstance(prepared, str):
                    line.send(Message("refused", prepared))
                else:
                    line.send(Message("prepared"))
            case "apply":
                if not isinstance(prepared, str):
                    reloader.apply(prepared)
                prepared = _end(line, metrics, is_applied=True)
            case "discard":
                if not isinstance(prepared, str):
                    await reloader.discard(prepared)
                prepared = _end(line, metrics, is_applied=False)
            case _:
                raise AssertionError(f"a parent does not send {message.kind}")


def _end(line: ParentLine, metrics: Metrics, *, is_applied: bool) -> str:
    """Report that a reload is over; return that nothing is prepared."""
    metrics.note_reload(is_applied=is_applied)
    metrics.share()  # a scrape that follows may be answered by another worker
    line.send(Message("done"))
    return ""


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do the work inside this context."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
