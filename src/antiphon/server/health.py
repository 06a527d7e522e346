"""Is it alive, is it ready, what has it done, what can it do?"""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import Overloaded, PeerFault
from antiphon.server.app import Call, Route
from antiphon.server.openapi import describe

__all__ = ["ROUTES"]


class _NoUpstream(PeerFault):
    """No provider can serve a request now."""

    status = 503
    code = "no_upstream"


async def healthz(call: Call) -> web.StreamResponse:
    """Answer as long as the process can."""
    return call.json(b'{"status":"ok"}')


async def readyz(call: Call) -> web.StreamResponse:
    """Answer 200 if a turn could run now: not draining, the store works, an upstream does."""
    if call.app.is_draining:
        raise Overloaded("the server is going away")
    await call.app.engine.store.ping()
    problems = await call.app.engine.catalog.problems()
    if all(problems.values()):
        told = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        raise _NoUpstream(f"no upstream can serve: {told}")
    return call.json(b'{"status":"ready"}')


async def metrics(call: Call) -> web.StreamResponse:
    """Return the counts in Prometheus' text format."""
    call.app.metrics.background = call.app.engine.background.count
    return web.Response(
        body=call.app.metrics.render(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


async def openapi(call: Call) -> web.StreamResponse:
    """Return the description of this API."""
    return call.json(msgspec.json.encode(describe()))


ROUTES: Final = [
    Route("GET", "/healthz", healthz, is_open=True),
    Route("GET", "/readyz", readyz, is_open=True),
    Route("GET", "/metrics", metrics),
    Route("GET", "/openapi.json", openapi, is_open=True),
]
