"""/v1/organization/usage: how much was used, by time and by who used it.

Every result states under `antiphon` what its figures are based on: a provider's report, our count
of what arrived, or what was held. A cost that is not known is null, and charges without a known
price are counted. `num_model_requests` counts calls of an upstream; a response may need several.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any, Final

from aiohttp import web

from antiphon.protocol.token_counts import NO_TOKENS, TokenCounts, add_counts
from antiphon.server.api.organization.figures import (
    CONVERSATION,
    GROUPS,
    RUN,
    Widths,
    answer_buckets,
    read_figures,
    read_usage,
)
from antiphon.server.app import Call, Handler, Route
from antiphon.store.base.ledger import ChargeKind, UsageRow

__all__ = ["ROUTES", "dollars", "grouped"]

_WIDTHS: Final[Widths] = {
    "1m": (60, 1440, 60),
    "1h": (3600, 168, 24),
    "1d": (86_400, 31, 7),
}
_FILTERS: Final = frozenset({"project_ids", "user_ids", "api_key_ids", "models", CONVERSATION, RUN})
_BASES: Final = ("reported", "counted", "assumed")


async def _usage(call: Call, kind: ChargeKind, name: str) -> web.StreamResponse:
    """Return a page of what charges of a kind have used."""
    figures, _ = read_figures(
        call, widths=_WIDTHS, groups=GROUPS, filters=_FILTERS, kinds=(kind,), also=("basis",)
    )
    rows = await read_usage(call, figures.query)
    object_type = f"organization.usage.{name}.result"

    def show(found: list[UsageRow]) -> list[dict[str, Any]]:
        return [
            {"object": object_type, **_parts(kind, group), **_names(group[0]), **_ours(group)}
            for group in grouped(found, figures.groups)
        ]

    return answer_buckets(call, figures, rows, show)


def _parts(kind: ChargeKind, rows: list[UsageRow]) -> dict[str, Any]:
    """Return the figures that OpenAI has for a kind."""
    used, calls = _used(rows), sum(row.charges for row in rows)
    if kind == "image":
        return {"images": calls, "num_model_requests": calls}
    if kind == "search":
        responses = sum(row.requests for row in rows)
        return {"num_requests": calls, "num_model_requests": responses}
    if kind == "embedding":
        return {"input_tokens": used.input_total, "num_model_requests": calls}
    return {
        "input_tokens": used.input_total,
        "input_uncached_tokens": used.fresh,
        "input_cached_tokens": used.cached,
        "input_cache_write_tokens": used.cache_write,
        "output_tokens": used.output_total,
        "num_model_requests": calls,
    }


def _names(row: UsageRow) -> dict[str, Any]:
    """Return who and what the figures are about; null where they are not grouped by it."""
    return {
        "project_id": row.project,
        "user_id": row.user,
        "api_key_id": row.key,
        "model": row.model,
    }


def _ours(rows: list[UsageRow]) -> dict[str, Any]:
    """Return what we know beyond: reasoning, cost, and what the figures are based on."""
    by_basis = {basis: [row for row in rows if row.basis == basis] for basis in _BASES}
    bases = {
        basis: {"requests": sum(row.charges for row in of), "tokens": _used(of).total}
        for basis, of in by_basis.items()
    }
    estimated = bases["counted"]["tokens"] + bases["assumed"]["tokens"]
    return {
        "antiphon": {
            "conversation_id": rows[0].conversation,
            "run_id": rows[0].run,
            "responses": sum(row.requests for row in rows),
            "output_reasoning_tokens": _used(rows).reasoning,
            "cost_usd": dollars(rows),
            "unpriced_requests": sum(row.unpriced for row in rows),
            "estimated_tokens": estimated,
            "basis": bases,
        }
    }


def dollars(rows: list[UsageRow]) -> Decimal | None:
    """Return what is known of a cost in dollars; None if no part of it is known."""
    if rows and all(row.unpriced == row.charges for row in rows):
        return None
    # In plain digits: 0E-9 is a number of JSON that people do not write.
    return Decimal(f"{Decimal(sum(row.cost for row in rows)).scaleb(-9).normalize():f}")


def grouped(rows: list[UsageRow], names: tuple[str, ...]) -> list[list[UsageRow]]:
    """Return the rows that belong to the same group of the caller's."""
    groups: dict[tuple[str | None, ...], list[UsageRow]] = {}
    for row in rows:
        place = tuple(getattr(row, GROUPS[name]) for name in names if name in GROUPS)
        groups.setdefault(place, []).append(row)
    return list(groups.values())


def _used(rows: list[UsageRow]) -> TokenCounts:
    total = NO_TOKENS
    for row in rows:
        total = add_counts(total, row.used)
    return total


def _handler(kind: ChargeKind, name: str) -> Handler:
    return partial(_usage, kind=kind, name=name)


_ALL: Final = "/v1/organization/usage"
ROUTES: Final = [
    Route("GET", f"{_ALL}/completions", _handler("model", "completions")),
    Route("GET", f"{_ALL}/embeddings", _handler("embedding", "embeddings")),
    Route("GET", f"{_ALL}/images", _handler("image", "images")),
    Route("GET", f"{_ALL}/web_search_calls", _handler("search", "web_searches")),
]
