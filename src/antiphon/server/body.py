"""The body of an HTTP request, read in time and decoded with suspicion.

It may be read more than once: what has arrived is kept with the request.
"""

from __future__ import annotations

import asyncio

from antiphon.protocol.body import decode_body
from antiphon.protocol.errors import BodyTooLarge, InvalidRequest, SlowRequest
from antiphon.server.app import Call
from antiphon.server.expect import invite_body

__all__ = ["read_data", "read_json"]


async def read_data(call: Call) -> bytes:
    """Return the body as it was sent."""
    if call.body is None:
        call.body = await _receive(call)
    return call.body


async def read_json(call: Call) -> object:
    """Return the value of the body; a large one is decoded in a thread."""
    data = await read_data(call)
    if len(data) > call.app.limits.parse_on_loop_bytes:
        return await asyncio.to_thread(decode_body, data)
    return decode_body(data)


async def _receive(call: Call) -> bytes:
    limits = call.app.limits
    encoding = call.request.headers.get("Content-Encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise InvalidRequest("send the body uncompressed", code="unsupported_encoding")
    if (call.request.content_length or 0) > limits.body_bytes:
        raise BodyTooLarge(f"the body is larger than {limits.body_bytes} bytes")
    content = call.request.content
    if content.is_eof():
        # All of it is here: no timer, and nothing to put together.
        data = content.read_nowait()
        if len(data) > limits.body_bytes:
            raise BodyTooLarge(f"the body is larger than {limits.body_bytes} bytes")
        return data
    invite_body(call.request)
    call.is_invited = True
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await call.request.read()
    except TimeoutError:
        raise SlowRequest(f"the body did not arrive within {limits.body_seconds} s") from None
