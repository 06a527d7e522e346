"""The body of an HTTP request, read in time and decoded with suspicion.

It may be read more than once: what has arrived is kept with the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from antiphon.engine.budget import COPIES
from antiphon.protocol.body import decode_body
from antiphon.protocol.errors import BodyTooLarge, InvalidRequest, SlowRequest
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.server.app import Call
from antiphon.server.expect import invite_body
from antiphon.transport.aside import aside_if

__all__ = ["read_create", "read_data", "read_json"]


async def read_data(call: Call) -> bytes:
    """Return the body as it was sent."""
    if call.body is None:
        call.body = await _receive(call)
    return call.body


async def read_json(call: Call) -> object:
    """Return the value of the body; a large one is decoded beside the loop."""
    data = await read_data(call)
    return await aside_if(len(data) > call.app.limits.parse_on_loop_bytes, decode_body, data)


async def read_create(call: Call) -> CreateResponse:
    """Return the request for a response; a large one is decoded and checked beside the loop."""
    data = await read_data(call)
    is_large = len(data) > call.app.limits.parse_on_loop_bytes
    return await aside_if(is_large, _decode_create, data)


def _decode_create(data: bytes) -> CreateResponse:
    return read_request(decode_body(data), len(data))


async def _receive(call: Call) -> bytes:
    limits = call.app.limits
    encoding = call.request.headers.get("Content-Encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise InvalidRequest("send the body uncompressed", code="unsupported_encoding")
    content, length = call.request.content, call.request.content_length
    if length is not None:
        _check_length(length, limits.body_bytes)
        call.reserve(length * COPIES)
    if content.is_eof():
        # All of it is here: no timer, and nothing to put together.
        data = content.read_nowait()
        _check_length(len(data), limits.body_bytes)
        if length is None:
            call.reserve(len(data) * COPIES)
        return data
    invite_body(call.request)
    call.is_invited = True
    try:
        async with asyncio.timeout(limits.body_seconds):
            pieces = [piece async for piece in _pieces(call, length)]
    except TimeoutError:
        raise SlowRequest(f"the body did not arrive within {limits.body_seconds} s") from None
    is_large = sum(map(len, pieces)) > limits.parse_on_loop_bytes
    return await aside_if(is_large, b"".join, pieces)


async def _pieces(call: Call, length: int | None) -> AsyncGenerator[bytes, None]:
    """Yield the body as it arrives; memory for one without a length is reserved on the way."""
    size = 0
    async for piece in call.request.content.iter_any():
        size += len(piece)
        _check_length(size, call.app.limits.body_bytes)
        if length is None:
            call.reserve(size * COPIES)
        yield piece


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        raise BodyTooLarge(f"the body is larger than {limit} bytes")
