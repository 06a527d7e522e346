"""/v1/organization/antiphon/requests: what was asked for, newest first, and as it happens.

A request is the charges of one response, seen together: who asked, for what, how it stands, and
what it came to. There is no content in it. An administrator sees all of them, a viewer those of
its own project. A page ends with a request, and the next one begins after it by its id, so nothing
is missed or shown twice while requests are added. `stream=true` follows them instead (see
`server.request_tail`).
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from aiohttp import web

from antiphon.protocol.organization import RequestObject
from antiphon.protocol.token_counts import NO_TOKENS, add_counts
from antiphon.server.api.objects import answer_page, wrong_cursor
from antiphon.server.api.organization.access import visible_projects
from antiphon.server.api.organization.charges import show_amounts
from antiphon.server.api.organization.query import Query
from antiphon.server.api.turns import event_stream
from antiphon.server.app import Call, Route
from antiphon.server.request_tail import RequestTail
from antiphon.store.base.ledger import Basis, Charge
from antiphon.store.base.requests import REQUEST_STATUSES, RequestQuery, RequestStatus
from antiphon.store.ledger_requests import request_status

__all__ = ["ROUTES"]

_SINGLE: Final = frozenset({"status", "start_time", "end_time", "after", "limit", "stream"})
_MANY: Final = {
    "project_ids": "projects",
    "api_key_ids": "keys",
    "user_ids": "users",
    "models": "models",
    "conversation_ids": "conversations",
    "run_ids": "runs",
    "response_ids": "responses",
}
_NOT_FOLLOWED: Final = ("start_time", "end_time", "after", "limit", "status")
_ANY: Final = ""
_LATEST: Final = 253_402_300_799  # the end of the year 9999
_MOST: Final = 500
_BASES: Final[tuple[Basis, ...]] = ("assumed", "counted", "reported")
"""From the least to the most exact one."""


async def list_requests(call: Call) -> web.StreamResponse:
    """Return a page of requests, or follow them."""
    query = Query(call, single=_SINGLE, many=frozenset(_MANY))
    chosen: dict[str, Any] = {field: query.texts(name) for name, field in _MANY.items()}
    chosen["projects"] = visible_projects(call, chosen["projects"], "project_ids")
    if query.flag("stream"):
        query.refuse(_NOT_FOLLOWED, "cannot be combined with stream")
        return await _follow(call, RequestQuery(**chosen))
    status = query.choice("status", (*REQUEST_STATUSES, _ANY), _ANY)
    limit = query.number("limit", 50, least=1, most=_MOST) or 50
    asked = RequestQuery(
        **chosen,
        status=cast(RequestStatus, status) if status else None,
        start=query.number("start_time", most=_LATEST),
        end=query.number("end_time", most=_LATEST),
        limit=limit + 1,
    )
    after = query.text("after")
    if after is not None:
        asked = msgspec.structs.replace(asked, before=await _place_of(call, after))
    found = await call.app.engine.store.ledger.requests(asked)
    return answer_page(call, [show_request(charges) for charges in found], limit)


async def _place_of(call: Call, after: str) -> tuple[float, str]:
    """Return the place of a request in the list. Raise InvalidRequest if it is not there."""
    wanted = RequestQuery(responses=(after,), projects=visible_projects(call, (), "after"), limit=1)
    found = await call.app.engine.store.ledger.requests(wanted)
    if not found:
        raise wrong_cursor("after", after)
    first = found[0][0]
    return first.reserved_at, first.response_id


async def _follow(call: Call, query: RequestQuery) -> web.StreamResponse:
    """Send requests as they begin, change and end, until the client or the server leaves."""
    call.reserve(0)
    tail = RequestTail(call.app.engine.store.ledger, query)
    with call.app.tails.place(), call.app.reading(call):
        await tail.begin()
        answer = event_stream(call, ())
        await answer.prepare(call.request)
        await answer.write(b": follows\n\n")
        async for changed in tail.changes(call.app.limits.heartbeat_seconds):
            if call.app.is_draining:
                break
            await answer.write(b"".join(map(_write_event, changed)) or b": still here\n\n")
        await answer.write_eof()
    return answer


def _write_event(charges: list[Charge]) -> bytes:
    return b"event: request\ndata: " + msgspec.json.encode(show_request(charges)) + b"\n\n"


def show_request(charges: list[Charge]) -> RequestObject:
    """Return a request as it is shown; `charges` are all of it, in their order."""
    first, last = charges[0], charges[-1]
    status, used = request_status(charges), NO_TOKENS
    ended = [charge for charge in charges if charge.state != "held"]
    for charge in ended:
        used = add_counts(used, charge.used)
    settled = [charge for charge in ended if charge.state == "settled"]
    costs = [charge.cost for charge in settled if charge.cost is not None]
    ended_at = None if status == "in_progress" else max(one.settled_at or 0 for one in charges)
    return RequestObject(
        id=first.response_id,
        status=status,
        project_id=first.payer.project,
        api_key_id=first.payer.key,
        user_id=first.payer.user,
        conversation_id=first.payer.conversation,
        run_id=first.payer.run,
        model=first.model,
        served_model=last.served,
        provider=last.provider,
        created_at=first.reserved_at,
        ended_at=ended_at,
        first_ms=_first_ms(charges),
        total_ms=None if ended_at is None else round((ended_at - first.reserved_at) * 1000),
        charges=len(charges),
        unpriced_charges=len(settled) - len(costs),
        basis=next((one for one in _BASES if any(of.basis == one for of in settled)), None),
        # What was released cost nothing; that is known.
        used=show_amounts(used, sum(costs) if costs or (ended and not settled) else None),
    )


def _first_ms(charges: list[Charge]) -> int | None:
    """Return the milliseconds from the beginning of a request to the first output of a call."""
    for charge in charges:
        if charge.first_ms is not None:
            return round((charge.reserved_at - charges[0].reserved_at) * 1000) + charge.first_ms
    return None


ROUTES: Final = [Route("GET", "/v1/organization/antiphon/requests", list_requests)]
