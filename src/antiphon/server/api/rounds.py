"""/v1/responses/{id}/antiphon/rounds: which upstreams were called for a response, and with what?

The calls are its charges. What each was sent is kept if the gateway is set so
(`keep_upstream_requests`). Otherwise the request of the first call is written again from the stored
items for the upstream that would answer now, and is called "rendered": it need not be the same.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.engine.budget import COPIES
from antiphon.protocol.codec import encode_response
from antiphon.protocol.errors import AntiphonError, NotFound, no_response
from antiphon.protocol.items import Item
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.protocol.response import Response
from antiphon.protocol.rounds import RoundList, RoundObject, RoundRequest
from antiphon.server.api.objects import answer_object
from antiphon.server.api.organization.charges import show_amounts, show_items
from antiphon.server.app import Call, Route
from antiphon.store.base import KeptRound
from antiphon.store.base.ledger import Charge
from antiphon.transport.aside import aside_if

__all__ = ["ROUTES"]

_MOST: Final = 1000
_LONG: Final = 256 * 1024
_MAX_DIGITS: Final = 9
# What a response repeats of its request, and what the upstream is asked with.
_REPEATED: Final = (
    *("model", "instructions", "previous_response_id", "tools", "tool_choice", "text"),
    *("parallel_tool_calls", "max_tool_calls", "reasoning", "temperature", "top_p"),
    *("presence_penalty", "frequency_penalty", "top_logprobs", "max_output_tokens"),
    *("truncation", "service_tier", "safety_identifier", "prompt_cache_key", "user"),
)


async def list_rounds(call: Call) -> web.StreamResponse:
    """Return the rounds of a response, without what was sent."""
    response = await _find(call)
    charges, kept = await _charges(call), await _kept(call)
    numbers = sorted(charges.keys() | kept.keys())
    first = next((one for one in numbers if _is_model(charges.get(one))), None)
    rounds = [_show(n, charges.get(n), kept.get(n), is_first=n == first) for n in numbers]
    is_kept = call.app.engine.keeps_requests
    return answer_object(call, RoundList(response_id=response.id, data=rounds, is_kept=is_kept))


async def retrieve_request(call: Call) -> web.StreamResponse:
    """Return what the upstream was sent in one round."""
    response = await _find(call)
    number = int(call.item_id) if _is_number(call.item_id) else -1
    kept = (await _kept(call)).get(number)
    if kept is not None and kept.body is not None:
        call.reserve(kept.size * COPIES)
        body = await aside_if(kept.size > _LONG, zlib.decompress, kept.body)
        return _answer(
            call,
            response,
            RoundRequest(
                response_id=response.id, number=number, source="kept", body=msgspec.Raw(body)
            ),
        )
    charges = await _charges(call)
    first = min((n for n, one in charges.items() if _is_model(one)), default=None)
    if number != first:
        raise _no_request(number)
    try:
        rendered = await call.app.engine.render(
            await _request_of(call, response), call.principal, call.held
        )
    except AntiphonError as error:
        raise _no_request(number) from error
    if not rendered:
        raise _no_request(number)
    return _answer(
        call,
        response,
        RoundRequest(
            response_id=response.id, number=number, source="rendered", body=msgspec.Raw(rendered)
        ),
    )


def _answer(call: Call, response: Response, found: RoundRequest) -> web.Response:
    return call.json(msgspec.json.encode(found))


async def _find(call: Call) -> Response:
    response = await call.app.engine.store.get(call.owner, call.path_id, admit=call.reserve_read())
    if response is None:
        raise no_response(call.path_id)
    return response


async def _charges(call: Call) -> dict[int, Charge]:
    found = await call.app.engine.store.ledger.charges(
        project=call.owner, response_id=call.path_id, limit=_MOST
    )
    return {charge.number: charge for charge in found}


async def _kept(call: Call) -> dict[int, KeptRound]:
    found = await call.app.engine.store.rounds.find(call.owner, call.path_id)
    return {one.number: one for one in found}


def _is_model(charge: Charge | None) -> bool:
    return charge is not None and charge.kind == "model"


def _show(
    number: int, charge: Charge | None, kept: KeptRound | None, *, is_first: bool
) -> RoundObject:
    known: dict[str, Any] = {}
    if charge is not None:
        used = None if charge.state == "held" else show_amounts(charge.used, charge.cost)
        known = {
            "kind": charge.kind,
            "provider": charge.provider,
            "model": charge.served,
            "created_at": charge.reserved_at,
            "first_ms": charge.first_ms,
            "total_ms": charge.total_ms,
            "outcome": charge.outcome,
            "basis": charge.basis,
            "used": used,
            "line_items": show_items(charge),
        }
    if kept is not None:
        known = _UNKNOWN | {"created_at": float(kept.created_at)} | known | {"kind": kept.kind}
    has_body = kept is not None and kept.body is not None
    return RoundObject(
        number=number,
        source="kept" if has_body else "rendered" if is_first else None,
        request_bytes=None if kept is None else kept.size,
        **known,
    )


_UNKNOWN: Final[dict[str, Any]] = {
    **dict.fromkeys(("provider", "model", "first_ms", "total_ms", "outcome", "basis", "used")),
    "line_items": [],
}


async def _request_of(call: Call, response: Response) -> CreateResponse:
    """Return the request of a response, as far as it is stored, as one that leaves no trace."""
    store = call.app.engine.store
    own = await store.input_items(call.owner, response.id, admit=call.reserve_read()) or []
    fields = msgspec.json.decode(encode_response(response, "openai"))
    asked = {name: fields[name] for name in _REPEATED if fields.get(name) is not None}
    if isinstance(asked.get("instructions"), list):
        del asked["instructions"]
    earlier = await _before(call, response, own)
    items = [{name: item[name] for name in item} for item in (*earlier, *own)]
    return read_request({**asked, "input": items, "store": False, "stream": True})


async def _before(call: Call, response: Response, own: list[Item]) -> list[Item]:
    """Return the items of its conversation that were there before it."""
    name = response.conversation.get("id") if isinstance(response.conversation, dict) else None
    if not isinstance(name, str) or not own:
        return []
    store = call.app.engine.store
    items = await store.conversations.items(call.owner, name, admit=call.reserve_read()) or []
    ids = [item.get("id") for item in items]
    first = own[0].get("id")
    return items[: ids.index(first)] if first in ids else []


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS


def _no_request(number: int) -> NotFound:
    return NotFound(
        f"What was sent in round {number} was not kept, and cannot be written again.",
        code="round_not_kept",
    )


_ROUNDS: Final = "/v1/responses/{id}/antiphon/rounds"
ROUTES: Final = [
    Route("GET", _ROUNDS, list_rounds),
    Route("GET", f"{_ROUNDS}/{{item}}", retrieve_request),
]
