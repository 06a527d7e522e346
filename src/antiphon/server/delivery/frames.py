"""What goes over a WebSocket: requests in, events and errors out, one JSON text each.

A frame is looked at twice. When it arrives, only its type and its lane are read, so that what
has to wait waits as the bytes it came in; when its turn comes, it is decoded with the same
suspicion as a body over HTTP.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from antiphon.protocol.body import decode_body
from antiphon.protocol.codec import Dialect, encode_event
from antiphon.protocol.errors import AntiphonError, CallerError, InvalidRequest
from antiphon.protocol.events import Event
from antiphon.protocol.items import shape_error
from antiphon.protocol.request import CreateResponse, read_request
from antiphon.transport.aside import aside_if

__all__ = [
    "Envelope",
    "encode_error",
    "encode_frame",
    "open_frame",
    "read_create",
    "read_turn",
    "text_header",
]

_TEXT: Final = 0x81  # the only frame of its message, and that is text
_SHORT: Final = 126
_MIDDLE: Final = 1 << 16

Json = dict[str, Any]  # a JSON object: Any is what JSON holds


class Envelope(msgspec.Struct, frozen=True):
    """What a frame is for, and which lane it belongs to."""

    type: str = ""
    stream_id: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None


class _NoSteering(CallerError):
    """A running response cannot be told to change its course."""

    code = "steer_not_supported"


_open = msgspec.json.Decoder(Envelope).decode
_encode = msgspec.json.Encoder().encode


async def open_frame(data: bytes, on_loop_bytes: int) -> Envelope:
    """Read the envelope of a frame. Raise CallerError if it asks for nothing we do."""
    try:
        envelope = await aside_if(len(data) > on_loop_bytes, _open, data)
    except msgspec.ValidationError as error:
        raise shape_error(error, "") from None
    except RecursionError:
        raise InvalidRequest("the frame is nested too deep", code="too_deep") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the frame is not valid JSON: {error}", code="invalid_json") from None
    if envelope.type == "response.steer":
        raise _NoSteering("a running response cannot be steered here; wait for its end, then go on")
    if envelope.type != "response.create":
        raise InvalidRequest(
            "a frame must have the type response.create", code="unknown_event_type", param="type"
        )
    return envelope


def read_create(data: bytes) -> Json:
    """Return the body of a `response.create`; some clients put it under `response`."""
    frame = decode_body(data)
    assert isinstance(frame, dict)  # as its envelope has shown
    inner = frame.pop("response", None)
    body = frame | inner if isinstance(inner, dict) else frame
    del body["type"]
    body.pop("stream_id", None)
    return body


def read_turn(body: Json, size: int) -> CreateResponse:
    """Return the request for a turn on a WebSocket, which is always streamed."""
    request = read_request(body, size)
    if request.background:
        raise InvalidRequest(
            "background is not possible over a WebSocket; use POST /v1/responses",
            code="unsupported_parameter",
            param="background",
        )
    request.stream = True
    return request


def encode_frame(event: Event, dialect: Dialect, stream_id: str | None) -> bytes:
    """Return an event as a frame, with the lane it belongs to."""
    data = encode_event(event, dialect)
    if stream_id is None:
        return data
    return b'%b,"stream_id":%b}' % (data[:-1], _encode(stream_id))


def text_header(size: int) -> bytes:
    """Return what precedes a text of so many bytes in a server's frame (RFC 6455, 5.2)."""
    if size < _SHORT:
        return b"%c%c" % (_TEXT, size)
    if size < _MIDDLE:
        return b"%c%c%b" % (_TEXT, 126, size.to_bytes(2))
    return b"%c%c%b" % (_TEXT, 127, size.to_bytes(8))


def encode_error(error: AntiphonError, stream_id: str | None = None) -> bytes:
    """Return an error as a frame. It is about a request, and the socket goes on."""
    frame: Json = {
        "type": "error",
        "status": error.status,
        "error": {
            "type": error.type,
            "code": error.code or error.type,
            "message": error.message,
            "param": error.param,
        },
    }
    if stream_id is not None:
        frame["stream_id"] = stream_id
    return _encode(frame)
