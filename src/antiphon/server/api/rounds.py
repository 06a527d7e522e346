"""/v1/responses/{id}/antiphon/rounds: which upstreams were called for a response, and with what?

The calls are its charges. What each was sent is kept if the gateway is set so
(`keep_upstream_requests`). Otherwise the request is written again from the stored items for the
upstream that would answer now, and is called "rendered": it need not be the same. It has the items
that the response had when the call was made; where that is not known, nothing is written.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.engine.budget import COPIES
from antiphon.protocol.codec import encode_response
from antiphon.protocol.errors import AntiphonError, NotFound, no_response
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.protocol.response import Response
from antiphon.protocol.round_starts import round_starts
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

_DEFAULTS: Final = {
    **dict.fromkeys(("temperature", "top_p"), 1.0),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), 0.0),
}


async def list_rounds(call: Call) -> web.StreamResponse:
    """Return the rounds of a response, without what was sent."""
    response = await _find(call)
    charges, kept = await _charges(call), await _kept(call)
    numbers, known = sorted(charges.keys() | kept.keys()), _starts(response, charges)
    rounds = [_show(n, charges.get(n), kept.get(n), is_known=n in known) for n in numbers]
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
    start = _starts(response, charges).get(number)
    if start is None:
        raise _no_request(call.item_id)
    try:
        request = await _request_of(call, response, start)
        if start:
            _go_on(request, _spent_before(number, charges))
        rendered = await call.app.engine.render(request, call.principal, call.held)
    except AntiphonError as error:
        raise _no_request(call.item_id) from error
    if not rendered:
        raise _no_request(call.item_id)
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


def _model_calls(charges: dict[int, Charge]) -> list[Charge]:
    return [charges[number] for number in sorted(charges) if charges[number].kind == "model"]


def _starts(response: Response, charges: dict[int, Charge]) -> dict[int, int]:
    """Return how many items of the answer each call of the model was sent, as far as is known.

    A call that is not charged has failed before its first word: the next one is the same round.
    """
    rounds: list[list[int]] = [[]]
    for charge in _model_calls(charges):
        rounds[-1].append(charge.number)
        if charge.outcome != "released":
            rounds.append([])
    rounds = [numbers for numbers in rounds if numbers]
    starts = round_starts(response.output, len(rounds)) or [0]
    return {
        number: start for numbers, start in zip(rounds, starts, strict=False) for number in numbers
    }


def _spent_before(number: int, charges: dict[int, Charge]) -> int:
    """Return the tokens that calls of the model before this one have produced."""
    return sum(one.used.output_total for one in _model_calls(charges) if one.number < number)


def _go_on(request: CreateResponse, spent: int) -> None:
    """Change a request as after a round with calls: none is required, and less may be produced."""
    choice = request.tool_choice
    if isinstance(choice, dict):
        is_list = choice.get("type") == "allowed_tools"
        request.tool_choice = {**choice, "mode": "auto"} if is_list else "auto"
    elif choice == "required":
        request.tool_choice = "auto"
    if request.max_output_tokens is not None:
        request.max_output_tokens = max(1, request.max_output_tokens - spent)


def _show(
    number: int, charge: Charge | None, kept: KeptRound | None, *, is_known: bool
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
        source="kept" if has_body else "rendered" if is_known else None,
        request_bytes=None if kept is None else kept.size,
        **known,
    )


_UNKNOWN: Final[dict[str, Any]] = {
    **dict.fromkeys(("provider", "model", "first_ms", "total_ms", "outcome", "basis", "used")),
    "line_items": [],
}


async def _request_of(call: Call, response: Response, start: int) -> CreateResponse:
    """Return the request of a response, as far as it is stored, as one that leaves no trace.

    It has the first items of the answer as well, as far as the model was shown them.
    """
    store = call.app.engine.store
    own = await store.input_items(call.owner, response.id, admit=call.reserve_read()) or []
    fields = msgspec.json.decode(encode_response(response, "openai"))
    asked = {name: fields[name] for name in _REPEATED if fields.get(name) is not None}
    # A response states the default of what its caller has left out.
    asked = {name: value for name, value in asked.items() if _DEFAULTS.get(name) != value}
    if isinstance(asked.get("instructions"), list):
        del asked["instructions"]
    earlier = await _before(call, response, own)
    shown = [item for item in response.output[:start] if item_type(item) != "mcp_list_tools"]
    items = [{name: item[name] for name in item} for item in (*earlier, *own, *shown)]
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


def _no_request(number: str) -> NotFound:
    return NotFound(
        f"What was sent in round {number} was not kept, and cannot be written again.",
        code="round_not_kept",
    )


_ROUNDS: Final = "/v1/responses/{id}/antiphon/rounds"
ROUTES: Final = [
    Route("GET", _ROUNDS, list_rounds),
    Route("GET", f"{_ROUNDS}/{{item}}", retrieve_request),
]
