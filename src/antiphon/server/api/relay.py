"""Paths that are passed on to the provider of the model, as they are.

    POST /v1/embeddings      vectors for texts
    POST /v1/completions     text for a prompt, as JSON or as a stream

No turn runs: nothing is stored, repaired or sent again. Keys, limits, charges, memory, the log and
the metrics are those of every request. Of the body, only `model` is changed, to the name that the
provider knows. An answer that breaks off is cut off here too.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from antiphon.accounts.principal import check_model
from antiphon.accounts.runs import read_run
from antiphon.backends.base import Relayed
from antiphon.engine.budget import COPIES
from antiphon.engine.prepare.validate import refuse_degraded
from antiphon.engine.run.relay_charge import RelayCharge, charged, wanted_for
from antiphon.protocol.errors import BackendError, InvalidRequest
from antiphon.protocol.response import Usage
from antiphon.routing.choice import choose_first
from antiphon.server.api.body import read_data, read_json
from antiphon.server.api.request_keys import read_key
from antiphon.server.api.turns import event_stream
from antiphon.server.app import Call, Route, note_degraded, note_limits
from antiphon.store.base.ledger import ChargeKind
from antiphon.transport.aside import aside_if
from antiphon.wires.chat.chunks import has_output, read_usage

__all__ = ["ROUTES"]

EMBEDDINGS: Final = "/embeddings"
_KEY_UNUSED: Final = "Idempotency-Key: requests to this path are passed on each time"
_GAPS: Final = (b"\n\n", b"\r\n\r\n")
# The end of a stream that a budget has cut: as of one that has reached `max_tokens`.
_CUT: Final = (
    b'data: {"object":"text_completion","choices":[{"index":0,"text":"","logprobs":null,'
    b'"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
)


class _Counted(msgspec.Struct):
    usage: Any = None


_read_counted = msgspec.json.Decoder(_Counted).decode


async def relay(path: str, call: Call) -> web.StreamResponse:
    """Pass the request on to the provider of its model; answer with what it answers."""
    app, data = call.app, await read_data(call)
    body = await read_json(call)
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_type")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequest("model is missing", code="missing_required_parameter", param="model")
    degraded = [] if read_key(call.request.headers) is None else [_KEY_UNUSED]
    if call.is_strict:
        refuse_degraded(degraded)
    check_model(call.principal, model)
    route = await app.engine.catalog.route(model)
    chosen = choose_first(route)
    served_by = chosen.candidate
    call.entry.model, call.entry.upstream = model, served_by.provider
    is_large = len(data) > app.limits.parse_on_loop_bytes
    sent = await aside_if(is_large, msgspec.json.encode, {**body, "model": served_by.model})
    is_streamed = bool(body.get("stream"))
    async with app.room_for_turn(call.owner):
        kind: ChargeKind = "embedding" if path == EMBEDDINGS else "model"
        run = read_run(call.request.headers, call.principal)
        charges = app.engine.charges(call.principal, app.engine.mint("resp"), model, run=run)
        wanted = wanted_for(served_by, kind, body, len(sent))
        is_capped = isinstance(body.get("max_tokens"), int)
        async with charged(charges, wanted, len(sent), is_capped=is_capped) as charge:
            with app.reading(call), route.board.seat(served_by, chosen.reason):
                async with served_by.backend.relay(
                    path, sent, is_streamed=is_streamed, sending=charge.sending
                ) as relayed:
                    answer = _stream if relayed.is_streamed else _whole
                    return await answer(call, relayed, degraded, charge)


async def _whole(
    call: Call, relayed: Relayed, degraded: list[str], charge: RelayCharge
) -> web.StreamResponse:
    """Answer with JSON once all of it has arrived."""
    limit = call.app.limits.body_bytes
    found = bytearray()
    async for piece in relayed.pieces:
        found += piece
        if len(found) > limit:
            raise BackendError(
                f"the upstream's answer is longer than {limit} bytes",
                code="upstream_invalid_response",
            )
        call.reserve(len(found) * COPIES)
    data = bytes(found)
    is_large = len(data) > call.app.limits.parse_on_loop_bytes
    _note_usage(call, charge, await aside_if(is_large, _usage_of, data))
    charge.note_answer(data)
    charge.is_whole = True
    answer = call.json(data)
    note_degraded(answer, degraded)
    note_limits(answer, charge.charges)
    return answer


async def _stream(
    call: Call, relayed: Relayed, degraded: list[str], charge: RelayCharge
) -> web.StreamResponse:
    """Answer with the events as they come. The head waits for the first of them."""
    answer = event_stream(call, tuple(degraded))
    note_limits(answer, charge.charges)
    async for piece in relayed.pieces:
        charge.note_piece(piece)
        if not answer.prepared:
            call.entry.note_first_event()
            await answer.prepare(call.request)
            call.request.writer.send_headers()  # what follows may wait for its turn
        if (charge.is_cut or not await charge.may_go_on()) and (end := _last_event_end(piece)):
            await answer.write(piece[:end] + _CUT)
            await answer.write_eof()
            return answer
        await answer.write(piece)
    if not answer.prepared:
        raise BackendError("the upstream sent no event", code="upstream_closed")
    if charge.usage is not None:
        call.entry.note_usage(charge.usage)
    charge.is_whole = True
    await answer.write_eof()
    return answer


def _last_event_end(piece: bytes) -> int:
    """Return where the last event that is whole ends in a piece of a stream; 0 if none does."""
    return max(piece.rfind(gap) + len(gap) if gap in piece else 0 for gap in _GAPS)


def _usage_of(data: bytes) -> tuple[Usage | None, bool]:
    """Return the usage that an answer reports, if it does, and whether it counts the output."""
    try:
        usage = _read_counted(data).usage
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, True
    return (read_usage(usage), has_output(usage)) if isinstance(usage, dict) else (None, True)


def _note_usage(call: Call, charge: RelayCharge, found: tuple[Usage | None, bool]) -> None:
    usage, is_all = found
    if usage is not None:
        charge.usage, charge.has_output = usage, is_all
        call.entry.note_usage(usage)


ROUTES: Final = [
    Route("POST", "/v1/embeddings", partial(relay, EMBEDDINGS)),
    Route("POST", "/v1/completions", partial(relay, "/completions")),
]
