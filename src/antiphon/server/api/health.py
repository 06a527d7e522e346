"""Is it alive, is it ready, what has it done, what can it do?"""

from __future__ import annotations

import logging
from typing import Final

import msgspec
from aiohttp import web

from antiphon.protocol.errors import NotFound, Overloaded, PeerFault
from antiphon.server.api.front_page import front_facts, front_page
from antiphon.server.api.openapi import describe
from antiphon.server.app import App, Call, Route
from antiphon.server.errors import error_response
from antiphon.version import __version__

__all__ = ["ROUTES"]


_log = logging.getLogger(__name__)


class _NoUpstream(PeerFault):
    """No provider can serve a request now."""

    status = 503
    code = "no_upstream"


async def root(call: Call) -> web.StreamResponse:
    """Describe the gateway, to a browser as a page and to a program as JSON."""
    if "text/html" in call.request.headers.get("Accept", ""):
        return web.Response(text=front_page(), content_type="text/html")
    return call.json(msgspec.json.encode(front_facts()))


async def version(call: Call) -> web.StreamResponse:
    """Return the version of this gateway."""
    return call.json(msgspec.json.encode({"name": "antiphon", "version": __version__}))


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
        # The reasons name hosts, and this route is open: they go to the log.
        reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
        _log.warning("not ready, no upstream can serve: %s", reasons)
        raise _NoUpstream(f"no upstream can serve: {', '.join(problems)}; the log has the reasons")
    return call.json(b'{"status":"ready"}')


async def metrics(call: Call) -> web.StreamResponse:
    """Return the counts of all owners. `roles` decides who may read them."""
    return _counts(call.app)


async def answer_scrape(app: App, request: web.BaseRequest) -> web.StreamResponse:
    """Answer on the port that serves only the counts."""
    if request.method == "GET" and request.rel_url.raw_path == "/metrics":
        return _counts(app)
    return error_response(NotFound("only GET /metrics is answered here", code="unknown_url"))


def _counts(app: App) -> web.Response:
    app.metrics.background = app.engine.background.count
    return web.Response(
        body=app.metrics.render(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


async def openapi(call: Call) -> web.StreamResponse:
    """Return the description of this API, without the doors that are off."""
    document, known = describe(), call.app.paths
    paths = {path: item for path, item in document["paths"].items() if path in known}
    return call.json(msgspec.json.encode({**document, "paths": paths}))


ROUTES: Final = [
    Route("GET", "/", root, is_open=True),
    Route("GET", "/version", version, is_open=True),
    Route("GET", "/healthz", healthz, is_open=True),
    Route("GET", "/health", healthz, is_open=True),
    Route("GET", "/readyz", readyz, is_open=True),
    Route("GET", "/metrics", metrics),
    Route("GET", "/openapi.json", openapi, is_open=True),
]
