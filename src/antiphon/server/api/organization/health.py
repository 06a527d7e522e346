"""/v1/organization/antiphon/health and …/ledger/check: how the gateway is, for administrators.

`/readyz` answers yes or no to everybody; this names hosts and reasons. Counts are those of all
workers since they started. Breakers and requests in flight are those of the worker that answers.
"""

from __future__ import annotations

import platform
import time
from typing import Final

from aiohttp import web

from antiphon.protocol.errors import AntiphonError
from antiphon.protocol.gateway import (
    BreakerObject,
    HealthObject,
    LedgerCheckObject,
    LedgerFigures,
    LedgerProblemObject,
    StoreFigures,
    UpstreamObject,
)
from antiphon.server.api.objects import answer_object
from antiphon.server.app import App, Call, Route
from antiphon.server.metrics_board import Counts
from antiphon.server.metrics_table import EDGES
from antiphon.version import __version__

__all__ = ["ROUTES"]

_COMMITS: Final = "antiphon_store_commit_seconds"
_SECONDS: Final = "antiphon_upstream_seconds"
_CALLS: Final = "antiphon_upstream_requests"
_MOST_PROBLEMS: Final = 100


async def health(call: Call) -> web.StreamResponse:
    """Return how this gateway, its upstreams and its store are."""
    app = call.app
    app.metrics.background = app.engine.background.count
    counts = app.metrics.total()
    problem, nodes = await _ask_store(app)
    problems = await app.engine.catalog.problems()
    can_serve = not problems or not all(problems.values())
    return answer_object(
        call,
        HealthObject(
            version=__version__,
            python=platform.python_version(),
            is_ready=problem is None and can_serve and not app.is_draining,
            is_draining=app.is_draining,
            started_at=app.started_at,
            workers=app.workers,
            nodes=nodes,
            turns=_gauge(counts, "antiphon_turns"),
            background_turns=_gauge(counts, "antiphon_background_turns"),
            upstreams=[_upstream(app, counts, name, why) for name, why in problems.items()],
            store=_store(counts, problem),
            ledger=LedgerFigures(
                open_charges=_gauge(counts, "antiphon_ledger_open_charges"),
                held_usd=counts.values.get("antiphon_ledger_held_dollars", {}).get((), 0.0),
            ),
        ),
    )


async def check_ledger(call: Call) -> web.StreamResponse:
    """Prove every sum of the ledger from the charges. It reads all of them."""
    started = time.monotonic()
    problems = await call.app.engine.store.ledger.check()
    return answer_object(
        call,
        LedgerCheckObject(
            is_right=not problems,
            problems=[
                LedgerProblemObject(rule=one.rule, subject=one.subject, message=one.message)
                for one in problems[:_MOST_PROBLEMS]
            ],
            problem_count=len(problems),
            checked_at=call.app.engine.now(),
            seconds=round(time.monotonic() - started, 3),
        ),
    )


async def _ask_store(app: App) -> tuple[str | None, int | None]:
    """Return why the store cannot be used, or how many processes use it."""
    try:
        await app.engine.store.ping()
        return None, await app.engine.store.count_alive()
    except AntiphonError as error:
        return error.message, None


def _upstream(app: App, counts: Counts, name: str, problem: str | None) -> UpstreamObject:
    board = app.engine.catalog.board
    breaker = board.breaker
    return UpstreamObject(
        provider=name,
        problem=problem,
        in_flight=board.inflight.get(name, 0),
        breakers=[
            BreakerObject(deployment=one, seconds_left=round(breaker.seconds_left(one), 1))
            for one in breaker.open_deployments(name)
        ],
        calls={
            outcome: int(count)
            for (backend, outcome), count in counts.values.get(_CALLS, {}).items()
            if backend == name
        },
        p50_ms=_quantile(counts, _SECONDS, (name,), 0.5),
        p95_ms=_quantile(counts, _SECONDS, (name,), 0.95),
    )


def _store(counts: Counts, problem: str | None) -> StoreFigures:
    buckets = counts.histograms.get(_COMMITS, {}).get((), [0.0])
    return StoreFigures(
        problem=problem,
        commits=int(sum(buckets[:-1])),
        commit_p50_ms=_quantile(counts, _COMMITS, (), 0.5),
        commit_p99_ms=_quantile(counts, _COMMITS, (), 0.99),
        waiting=_gauge(counts, "antiphon_store_queue_depth"),
    )


def _gauge(counts: Counts, name: str) -> int:
    return int(counts.values.get(name, {}).get((), 0))


def _quantile(counts: Counts, name: str, labels: tuple[str, ...], share: float) -> float | None:
    """Return the upper edge, in milliseconds, of the bucket in which this share is reached.

    None without any value; the last edge stands for everything above it.
    """
    *buckets, _ = counts.histograms.get(name, {}).get(labels, [0.0])
    total = sum(buckets)
    if not total:
        return None
    edges, so_far = EDGES[name], 0.0
    for edge, count in zip(edges, buckets, strict=False):
        so_far += count
        if so_far >= share * total:
            return edge * 1000
    return edges[-1] * 1000


ROUTES: Final = [
    Route("GET", "/v1/organization/antiphon/health", health),
    Route("POST", "/v1/organization/antiphon/ledger/check", check_ledger),
]
