"""The bridge as a process: stdin and stdout are the asker's."""

from __future__ import annotations

import asyncio
from typing import Final

from antiphon.client.settings import ApiKey
from antiphon.host.bridge.bridge import Bridge
from antiphon.host.bridge.pipes import LineSink, LineSource, take_over

__all__ = ["run_bridge"]

# How long the asker may take to read the last lines after it has closed our input.
_FLUSH_SECONDS: Final = 2.0


async def run_bridge(base_url: str, api_key: ApiKey = "") -> None:
    """Answer the process that started this one, until it closes our stdin or has ended."""
    source, target = take_over()
    task = asyncio.current_task()
    assert task is not None
    has_gone = False

    def stop() -> None:
        nonlocal has_gone
        has_gone = True
        task.cancel()

    sink = LineSink(target, on_broken=stop)
    try:
        await Bridge(sink, base_url, api_key).run(aiter(LineSource(source)))
    except asyncio.CancelledError:
        if not has_gone:
            raise
    else:
        await sink.close(_FLUSH_SECONDS)
