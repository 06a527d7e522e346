"""/v1/organization/antiphon/charges: every call of an upstream, newest first.

An administrator sees all of them, a viewer those of its own project. A cursor names the last charge
of a page, so nothing is missed or shown twice while charges are added.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Final

import msgspec
from aiohttp import web

from antiphon.models.prices import dollars_of
from antiphon.protocol.errors import invalid
from antiphon.protocol.organization import ChargeObject
from antiphon.protocol.token_counts import TokenCounts
from antiphon.server.api.objects import answer_page
from antiphon.server.api.organization.access import visible_projects
from antiphon.server.api.organization.query import Query
from antiphon.server.app import Call, Route
from antiphon.store.base.ledger import Charge

__all__ = ["ROUTES", "show_amounts", "show_items"]

_SINGLE: Final = frozenset(
    {"project_id", "response_id", "conversation_id", "run_id", "after", "limit"}
)
_PREFIX: Final = "chg_"
# A time up to the year 9999, and a number that a store can compare.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=253_402_300_799)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Place = tuple[_Seconds, str, _Number]


async def list_charges(call: Call) -> web.StreamResponse:
    """Return a page of charges."""
    query = Query(call, single=_SINGLE, many=frozenset())
    asked = query.text("project_id")
    projects = visible_projects(call, () if asked is None else (asked,), "project_id")
    limit = query.number("limit", 20, least=1, most=100) or 20
    after = query.text("after")
    found = await call.app.engine.store.ledger.charges(
        project=projects[0] if projects else None,
        response_id=query.text("response_id"),
        conversation=query.text("conversation_id"),
        run=query.text("run_id"),
        before=None if after is None else _read_id(after),
        limit=limit + 1,
    )
    return answer_page(call, [_as_object(charge) for charge in found], limit)


def _as_object(charge: Charge) -> ChargeObject:
    payer = charge.payer
    return ChargeObject(
        id=_write_id(charge),
        state=charge.state,
        response_id=charge.response_id,
        number=charge.number,
        kind=charge.kind,
        project_id=payer.project,
        api_key_id=payer.key,
        user_id=payer.user,
        conversation_id=payer.conversation,
        run_id=payer.run,
        model=charge.model,
        served_model=charge.served,
        provider=charge.provider,
        created_at=charge.reserved_at,
        settled_at=charge.settled_at,
        basis=charge.basis,
        outcome=charge.outcome,
        held=show_amounts(charge.held, charge.held_cost),
        used=None if charge.state == "held" else show_amounts(charge.used, charge.cost),
        first_ms=charge.first_ms,
        total_ms=charge.total_ms,
        line_items=show_items(charge),
    )


def show_items(charge: Charge) -> list[dict[str, Any]]:
    """Return what is paid by the piece."""
    return [
        {"name": item.name, "quantity": item.quantity, "cost_usd": _dollars(item.cost)}
        for item in charge.items
    ]


def show_amounts(counts: TokenCounts, cost: int | None) -> dict[str, Any]:
    """Return tokens by their parts, and what they cost."""
    tokens = msgspec.structs.asdict(counts)
    return {f"{name}_tokens": count for name, count in tokens.items()} | {
        "total_tokens": counts.total,
        "cost_usd": _dollars(cost),
    }


def _dollars(cost: int | None) -> str | None:
    return None if cost is None else dollars_of(cost)


def _write_id(charge: Charge) -> str:
    """Return an id that holds the place of the charge in the list."""
    place = msgspec.json.encode((charge.reserved_at, charge.response_id, charge.number))
    return _PREFIX + base64.urlsafe_b64encode(place).decode().rstrip("=")


def _read_id(after: str) -> _Place:
    text = after.removeprefix(_PREFIX)
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        place: _Place = msgspec.json.decode(data, type=_Place)
    except (binascii.Error, ValueError):
        raise invalid("after", "must be the id of a charge") from None
    return place


ROUTES: Final = [Route("GET", "/v1/organization/antiphon/charges", list_charges)]
