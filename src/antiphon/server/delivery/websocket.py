"""GET /v1/responses as a WebSocket: the same turns and events, one connection for many turns.

    client: {"type": "response.create", …body…}           server: every event of the turn
    client: {"type": "response.create", …} with an error   server: {"type": "error", "status": …}

An error is about one request; the socket goes on. A fault in mid-turn is reported by
`response.failed` alone: over a WebSocket an `error` ends a turn, so the `error` event that
precedes it over SSE would end it twice. The turn creates no such event, so its numbers have no
gap, and its log holds what was sent.

Every turn is authorised again, and a key that is revoked while a turn runs ends it.
A turn with `store: false` is remembered by the socket that ran it, and by nobody else. A turn
that goes on from a response and fails makes the socket forget that response.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import WSCloseCode, WSMsgType, web

from antiphon.accounts.loop_share import Way
from antiphon.accounts.runs import read_run
from antiphon.engine.budget import COPIES, Hold
from antiphon.engine.run.turn import Turn
from antiphon.protocol.errors import AntiphonError, BodyTooLarge, CallerError, InvalidRequest
from antiphon.protocol.events import Event
from antiphon.protocol.includes import Hidden, hidden_in_stream
from antiphon.protocol.response import Response
from antiphon.routing.affinity import SESSION_HEADER
from antiphon.server.app import Call, Route
from antiphon.server.delivery.connection import meter_arrivals
from antiphon.server.delivery.frames import (
    encode_error,
    encode_frame,
    open_frame,
    read_create,
    read_turn,
    text_header,
)
from antiphon.server.delivery.lanes import Lane, Lanes
from antiphon.server.delivery.socket_cache import Recall, Shelf
from antiphon.server.delivery.sockets import LIMIT_REACHED
from antiphon.server.errors import translate
from antiphon.server.request_log import Entry, log_request, noting, start_entry
from antiphon.transport.aside import aside_if

__all__ = ["ROUTES"]

_CLOSE_SECONDS: Final = 2.0
_LAST_WORDS_SECONDS: Final = 2.0
# Some clients look at pings only now and then, so one that is not answered proves nothing.
_PINGS: Final = 2
_VERSION: Final = "13"
# Messages up to this size need no memory of their own before they are whole.
_SMALL_MESSAGE: Final = 64 * 1024
_LONG_FRAME: Final = 64 * 1024
_PATH: Final = "/v1/responses"
_CAN_GO_ON: Final = ("completed", "incomplete")


class _UpgradeNeeded(CallerError):
    status = 426
    code = "upgrade_required"


async def converse(call: Call) -> web.StreamResponse:
    """Turn the connection into a WebSocket and answer what comes over it."""
    request, limits = call.request, call.app.limits
    if request.headers.get("Upgrade", "").strip().lower() != "websocket":
        raise _UpgradeNeeded("GET here is for WebSockets; ask with POST /v1/responses")
    if "Sec-WebSocket-Protocol" in request.headers:
        # Some browsers' libraries put a key there, and aiohttp would log it.
        raise InvalidRequest(
            "no WebSocket subprotocol is spoken here; send the key as Authorization: Bearer",
            code="unsupported_subprotocol",
        )
    if request.headers.get("Sec-WebSocket-Version", "").strip() != _VERSION:
        raise InvalidRequest(
            f"the WebSocket protocol here has version {_VERSION}", code="invalid_handshake"
        )
    call.app.sockets.check_room()
    wire = _Wire(limits.body_bytes, limits.write_buffer_bytes)
    if not wire.can_prepare(request):
        raise InvalidRequest("the WebSocket handshake is not valid", code="invalid_handshake")
    socket = _Socket(call, wire)
    call.sign(wire)
    await wire.prepare(request)
    call.entry.status = wire.status
    with call.app.sockets.watching(socket):
        await socket.serve()
    return wire


class _Wire(web.WebSocketResponse):
    """aiohttp's socket, without compression (which would take 300 kB of each)."""

    def __init__(self, max_frame: int, write_buffer: int) -> None:
        super().__init__(
            timeout=_CLOSE_SECONDS,
            autoping=False,
            compress=False,
            max_msg_size=max_frame + 1,
            writer_limit=write_buffer,
        )
        self._max_frame = max_frame

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        """Close the socket; first report a frame that is too large."""
        if code == WSCloseCode.MESSAGE_TOO_BIG and not self.closed:
            error = BodyTooLarge(f"the frame is larger than {self._max_frame} bytes")
            with suppress(ConnectionError):
                await self.send_frame(encode_error(error), WSMsgType.TEXT)
        return await super().close(code=code, message=message, drain=drain)


class _Socket:
    """One open WebSocket."""

    __slots__ = (
        "_app",
        "_arrival",
        "_arrived",
        "_closing",
        "_cutting",
        "_dialect",
        "_end",
        "_is_strict",
        "_key_id",
        "_lanes",
        "_owner",
        "_request",
        "_request_id",
        "_shelf",
        "_transport",
        "_unanswered",
        "_wire",
        "opened_at",
    )

    def __init__(self, call: Call, wire: _Wire) -> None:
        transport = call.request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        self.opened_at = asyncio.get_running_loop().time()
        self._app = call.app
        self._owner = call.owner
        self._request = call.request
        self._key_id = call.key_id
        self._request_id = call.request_id
        self._dialect = call.dialect
        self._is_strict = call.is_strict
        self._wire = wire
        self._transport = transport
        self._lanes = Lanes(self._answer, self._rest, call.app.limits)
        self._shelf = Shelf(call.app.socket_cache)
        self._unanswered = 0
        self._arrived = 0
        self._arrival = call.app.engine.budget.hold(call.owner)
        self._cutting: asyncio.Task[None] | None = None
        self._end: AntiphonError | None = None
        self._closing: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Take frames until the socket closes."""
        meter_arrivals(self._request, self._note_arrival)
        try:
            while True:
                message = await self._wire.receive()
                self._unanswered = self._arrived = 0
                self._arrival.resize(0)
                if message.type is WSMsgType.TEXT:
                    await self._take(message.data.encode())
                elif message.type is WSMsgType.PING:
                    await self._wire.pong(message.data)
                elif message.type is WSMsgType.BINARY:
                    await self._turn_away(InvalidRequest("send text frames", code="binary_frame"))
                elif message.type is not WSMsgType.PONG:
                    break
                del message  # an idle socket must not hold on to what it was sent
            if self._closing is not None:
                await self._closing
        finally:
            meter_arrivals(self._request, None)
            self._arrival.release()
            if self._closing is not None:
                self._closing.cancel()
            self._shelf.close()
            await self._lanes.stop()

    async def beat(self) -> None:
        """Ping the peer, or cut it off if it has been silent for too long."""
        if self._transport.get_write_buffer_size():
            return  # it is slow; the write-stall limit is its judge
        if self._unanswered == _PINGS:
            self._transport.abort()
            return
        self._unanswered += 1
        with suppress(ConnectionError):
            await self._wire.ping()

    def end(self, error: AntiphonError, code: int) -> asyncio.Task[None]:
        """Refuse new requests; close with this code once those that run have ended."""
        if self._closing is None:
            self._end = error
            self._closing = asyncio.create_task(self._close(error, code))
        return self._closing

    async def _close(self, error: AntiphonError, code: int) -> None:
        with suppress(ConnectionError):
            for stream_id in self._lanes.drop_waiting():
                await self._refuse(error, stream_id)
            await self._lanes.settle(self._app.limits.drain_seconds, error, _LAST_WORDS_SECONDS)
            if code == LIMIT_REACHED:
                await self._refuse(error)
            await self._wire.close(code=code, message=(error.code or "").encode())

    def _note_arrival(self, size: int) -> None:
        """Reserve memory for a long message while it arrives: it may never be whole."""
        self._arrived += size
        if self._arrived <= _SMALL_MESSAGE or self._cutting is not None:
            return
        try:
            self._arrival.resize(self._arrived)
        except AntiphonError as error:
            self._cutting = asyncio.create_task(self._cut(error))

    async def _cut(self, error: AntiphonError) -> None:
        """Hang up, because the rest of the message must not arrive; report why before that.

        A client that is still sending may not get to see the report.
        """
        try:
            with suppress(ConnectionError):
                await self._refuse(error)
        finally:
            self._transport.abort()

    async def _take(self, data: bytes) -> None:
        """Put a frame into its lane, or report why not."""
        stream_id: str | None = None
        try:
            envelope = await open_frame(data, self._app.limits.parse_on_loop_bytes)
            stream_id = envelope.stream_id
            if self._end is not None:
                await self._turn_away(self._end, stream_id)
                return
            self._put(stream_id, data)
            self._buffer_at_most(self._app.limits.write_buffer_bytes)
        except AntiphonError as error:
            await self._turn_away(error, stream_id)

    def _put(self, stream_id: str | None, data: bytes) -> None:
        """Queue a request if there are memory and a place for it."""
        size = len(data) * COPIES + self._app.limits.write_buffer_bytes
        hold = self._app.engine.budget.hold(self._owner, size)
        try:
            self._lanes.put(stream_id, data, hold)
        except BaseException:
            hold.release()
            raise

    async def _answer(self, lane: Lane, data: bytes, hold: Hold) -> None:
        """Run the turn that a frame asks for; report what is wrong if that is impossible."""
        previous: object = None
        way: Way | None = None
        entry = start_entry(self._request_id, "WEBSOCKET", _PATH)
        self._app.watcher.begin(self._request.headers)
        try:
            is_large = len(data) > self._app.limits.parse_on_loop_bytes
            body = await aside_if(is_large, read_create, data)
            previous = body.get("previous_response_id")
            request = await aside_if(is_large, read_turn, body, len(data))
            recall = Recall(self._shelf)
            principal = await self._app.principal_of(self._request, _PATH)
            share = self._app.engine.share
            if share.note(principal.owner):
                way = await share.enter(principal.owner)
            async with self._app.room_for_turn(principal.owner):
                lane.turn = await self._app.engine.begin(
                    request,
                    principal,
                    strict=self._is_strict,
                    recall=recall,
                    over_socket=True,
                    session=self._request.headers.get(SESSION_HEADER),
                    run=read_run(self._request.headers, principal),
                    hold=hold,
                    body_bytes=len(data),
                )
                entry.key = principal.key_id or ""
                with self._app.running(lane.turn), noting(entry, lane.turn):
                    is_kept_here = request.store is False or recall.has_helped
                    kept = recall if is_kept_here else None
                    hidden = hidden_in_stream(request.tools, request.include)
                    await self._run(lane, lane.turn, kept, previous, entry, hidden)
        except Exception as error:
            if isinstance(error, ConnectionError) and self._is_gone:
                raise
            self._forget(previous)
            refusal = translate(error)
            entry.status, entry.error = refusal.status, refusal.code or refusal.type
            await self._refuse(refusal, lane.stream_id)
        finally:
            if way is not None:
                way.end()
            lane.turn = None
            self._app.end_entry(entry)

    async def _run(
        self,
        lane: Lane,
        turn: Turn,
        recall: Recall | None,
        previous: object,
        entry: Entry,
        hidden: Hidden | None,
    ) -> None:
        async def note_end(response: Response) -> None:
            if response.status == "failed":
                self._forget(previous)
            elif recall is not None and response.status in _CAN_GO_ON:
                await recall.keep(response.id, response.status, turn.transcript(), turn.size)

        turn.on_end = note_end  # the cache must be right when the last event is sent
        await turn.run(_LaneSink(self, lane.stream_id, entry, hidden))

    def write(self, events: list[Event], stream_id: str | None) -> bool:
        """Send these events in one write; return whether the client keeps up."""
        if self._is_gone:
            return False
        pieces: list[bytes] = []
        for event in events:
            text = encode_frame(event, self._dialect, stream_id)
            pieces += (text_header(len(text)), text)
        if len(pieces[-1]) > _LONG_FRAME:
            for piece in pieces:  # not joined, which would copy them
                self._transport.write(piece)
        else:
            self._transport.write(b"".join(pieces))
        return not self._request.protocol.writing_paused

    async def drained(self) -> None:
        """Wait while the client is behind. Raise ConnectionError if it has left."""
        if self._request.protocol.writing_paused:
            # Lanes wait together: one that is cancelled must not end the wait of the others.
            await asyncio.shield(self._request.writer.drain())
        if self._is_gone:
            raise ConnectionResetError("the client has gone")

    async def _turn_away(self, error: AntiphonError, stream_id: str | None = None) -> None:
        """Refuse a frame that does not get as far as a lane, and log that."""
        log_request(
            Entry(
                method="WEBSOCKET",
                route=_PATH,
                status=error.status,
                error=error.code or error.type,
                key=self._key_id or "",
                request=self._request_id,
            )
        )
        await self._refuse(error, stream_id)

    async def _refuse(self, error: AntiphonError, stream_id: str | None = None) -> None:
        await self._wire.send_frame(encode_error(error, stream_id), WSMsgType.TEXT)

    @property
    def _is_gone(self) -> bool:
        return self._wire.closed or self._transport.is_closing()

    def _forget(self, response_id: object) -> None:
        if isinstance(response_id, str):
            self._shelf.forget(response_id)

    def _rest(self) -> None:
        """Nothing runs: what is left to write is now watched at once."""
        self._buffer_at_most(0)

    def _buffer_at_most(self, size: int) -> None:
        if not self._is_gone:
            self._transport.set_write_buffer_limits(high=size)


class _LaneSink:
    """Shows the events of one turn to the client, in their lane."""

    __slots__ = ("_entry", "_hidden", "_socket", "_stream_id")

    def __init__(
        self, socket: _Socket, stream_id: str | None, entry: Entry, hidden: Hidden | None
    ) -> None:
        self._hidden = hidden
        self._socket = socket
        self._stream_id = stream_id
        self._entry = entry

    def show(self, events: list[Event]) -> bool:
        """Send the events; return whether the client keeps up."""
        if self._hidden is not None:
            events = self._hidden.events(events)
        return self._socket.write(events, self._stream_id)

    async def drained(self) -> None:
        """Wait while the client is behind. The first events are always waited for."""
        self._entry.note_first_event()
        await self._socket.drained()


ROUTES: Final = [Route("GET", _PATH, converse)]
