"""/v1/organization/costs: what was spent, by day.

The ledger keeps one cost for a call of an upstream, so a line item is a model and the kind of its
calls, such as "qwen3, tokens". The amount of a group no part of which has a known price is null.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from antiphon.server.api.organization.figures import (
    CONVERSATION,
    GROUPS,
    RUN,
    Widths,
    answer_buckets,
    read_figures,
    read_usage,
)
from antiphon.server.api.organization.usage import dollars
from antiphon.server.app import Call, Route
from antiphon.store.base.ledger import ChargeKind, UsageRow

__all__ = ["ROUTES"]

_WIDTHS: Final[Widths] = {"1d": (86_400, 180, 7)}
_FILTERS: Final = frozenset({"project_ids", "api_key_ids", "line_items", CONVERSATION, RUN})
_NAMES: Final = ("project_id", "user_id", "api_key_id", CONVERSATION, RUN)
_WORDS: Final[dict[ChargeKind, str]] = {
    "model": "tokens",
    "embedding": "embeddings",
    "image": "images",
    "search": "searches",
}


async def costs(call: Call) -> web.StreamResponse:
    """Return a page of costs."""
    figures, query = read_figures(
        call,
        widths=_WIDTHS,
        groups={name: GROUPS[name] for name in _NAMES} | {"line_item": None},
        filters=_FILTERS,
        kinds=(),
        also=("model", "kind"),
    )
    rows = await read_usage(call, figures.query)
    items = query.texts("line_items")

    def show(found: list[UsageRow]) -> list[dict[str, Any]]:
        asked = [row for row in found if not items or _line_item(row) in items]
        return [_result(group, figures.groups) for group in _groups(asked, figures.groups)]

    return answer_buckets(call, figures, rows, show)


def _groups(rows: list[UsageRow], names: tuple[str, ...]) -> list[list[UsageRow]]:
    groups: dict[tuple[str | None, ...], list[UsageRow]] = {}
    for row in rows:
        place = tuple(
            _line_item(row) if name == "line_item" else getattr(row, GROUPS[name]) for name in names
        )
        groups.setdefault(place, []).append(row)
    return list(groups.values())


def _result(rows: list[UsageRow], names: tuple[str, ...]) -> dict[str, Any]:
    first = rows[0]
    by_item = "line_item" in names
    quantity, unit = _quantity(rows) if by_item else (None, None)
    return {
        "object": "organization.costs.result",
        "amount": {"value": dollars(rows), "currency": "usd"},
        "line_item": _line_item(first) if by_item else None,
        "quantity": quantity,
        "quantity_unit": unit,
        "project_id": first.project,
        "user_id": first.user,
        "api_key_id": first.key,
        "antiphon": {
            "conversation_id": first.conversation,
            "run_id": first.run,
            "requests": sum(row.charges for row in rows),
            "unpriced_requests": sum(row.unpriced for row in rows),
            "estimated_requests": sum(row.not_reported for row in rows),
        },
    }


def _quantity(rows: list[UsageRow]) -> tuple[int, str | None]:
    match rows[0].kind:
        case "image":
            return sum(row.charges for row in rows), "images"
        case "search":
            return sum(row.charges for row in rows), None
        case _:
            return sum(row.used.total for row in rows), "tokens"


def _line_item(row: UsageRow) -> str:
    return f"{row.model}, {_WORDS[row.kind or 'model']}"


ROUTES: Final = [Route("GET", "/v1/organization/costs", costs)]
