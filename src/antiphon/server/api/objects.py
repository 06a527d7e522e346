"""How files, uploads and vector stores are answered, listed and created once.

A page is asked for with one object more than it shows: whether that came is `has_more`. A request
that creates something may carry an Idempotency-Key. Then the answer to the same request is what
the first one has made, with the header that says so, and another body is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from aiohttp import web

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.files import read_body
from antiphon.server.api.body import read_data, read_json
from antiphon.server.api.request_keys import REPLAYED, check_same, read_claim
from antiphon.server.app import Call
from antiphon.store.base import Claim, ClaimRequest

__all__ = [
    "answer_object",
    "answer_page",
    "read_object",
    "read_once",
    "replayed",
    "same_request",
    "wrong_cursor",
]

_Body = TypeVar("_Body", bound=msgspec.Struct)


async def read_object(call: Call, shape: type[_Body], *, is_optional: bool = False) -> _Body:
    """Return the body of a request; none counts as an empty one if it `is_optional`."""
    if is_optional and not await read_data(call):
        return read_body({}, shape)
    return read_body(await read_json(call), shape)


async def read_once(call: Call, resource: str) -> ClaimRequest | None:
    """Return what to claim with what this request creates, if its caller has named it."""
    path, now = call.request.rel_url.raw_path, call.app.engine.now()
    return await read_claim(call.request.headers, path, await read_data(call), now, resource)


def same_request(once: ClaimRequest | None, earlier: Claim) -> str:
    """Return the id of what the same request has made. Raise Mismatch if it was another one."""
    check_same(once, earlier)
    return earlier.response_id


def replayed(answer: web.Response) -> web.Response:
    """Mark an answer that was given before."""
    answer.headers[REPLAYED] = "1"
    return answer


def answer_object(call: Call, value: msgspec.Struct) -> web.Response:
    """Return an object as the answer."""
    return call.json(msgspec.json.encode(value))


def answer_page(
    call: Call, found: Sequence[msgspec.Struct], limit: int, *, has_more: bool | None = None
) -> web.Response:
    """Return a page of at most `limit` of these objects, each of which has an id.

    There are more if more were `found`, unless the caller knows better.
    """
    shown = found[:limit]
    ids = [getattr(value, "id", None) for value in shown]
    page = {
        "object": "list",
        "data": shown,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
        "has_more": len(found) > limit if has_more is None else has_more,
    }
    return call.json(msgspec.json.encode(page))


def wrong_cursor(param: str, value: str | None) -> InvalidRequest:
    """Return the error for a page beside an object that is not in the list."""
    return InvalidRequest(
        f"{param} names '{value}', which is not in this list", code="invalid_value", param=param
    )
