"""A real chat-completions server on loopback that plays its script.

It speaks HTTP/1.1 over bare asyncio streams, because a proper HTTP library refuses to
misbehave: it resets, cuts, stalls and lies on demand. It keeps what it was sent, and notices
when the client leaves. For tests and demonstrations only: it trusts every client.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

import antiphon.testing.faults as faults
from antiphon.testing.faults import Act, IdleClose, Status
from antiphon.testing.script import Json, Script, echo, whole, wire

__all__ = ["Play", "Received", "ScriptedUpstream"]

Play = Script | Sequence[Script] | Callable[[Json], Script]

_REASONS: Final = {200: "OK", 404: "Not Found", 429: "Too Many Requests"}
_PAGE: Final = b"<!doctype html><title>Welcome</title><p>Please sign in."
_READ_TIME: Final = 0.02  # for the client to take what was sent before a reset discards it
_ABORT: Final = struct.pack("ii", 1, 0)


class Received:
    """One request as it arrived, and what happened to it."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.chunks_sent = 0
        self.stalled = asyncio.Event()
        self.client_left = asyncio.Event()
        self.idle_close: IdleClose | None = None
        """How the connection is closed after the answer, if the script closes it."""
        self.client_left_at: float | None = None
        """`time.monotonic()` when the client was seen to leave before the answer ended."""

    @property
    def json(self) -> Json:
        """The body, decoded; empty if there was none."""
        return msgspec.json.decode(self.body, type=Json) if self.body else {}


class _Reader(asyncio.StreamReader):
    """A reader that notices when the client has closed or reset, also while nothing is read."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


class _Ended(Exception):
    """The script ended the connection."""


class ScriptedUpstream:
    """Serves `/v1/chat/completions` and `/v1/models` on loopback while it is entered.

    `script` is one script for every request, a list with one for each (the last repeats), or
    a function of the decoded body. Without one, the upstream echoes. Turn `remember` off where
    requests are many and not looked at.
    """

    def __init__(
        self,
        script: Play = echo,
        *,
        port: int = 0,
        models: Sequence[str] = ("echo",),
        models_answer: Status | None = None,
        remember: bool = True,
    ) -> None:
        self.requests: list[Received] = []
        """Chat requests in order of arrival; `/v1/models` is not among them."""
        self._script = script
        self._port = port
        self._models = models
        self._models_answer = models_answer
        self._remember = remember
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._arrived = asyncio.Condition()
        self._released = asyncio.Event()

    @property
    def base_url(self) -> str:
        """What a client is configured with."""
        assert self._server is not None, "enter the upstream first"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def received(self, count: int = 1) -> Received:
        """Wait until that many requests have arrived; return the last of them."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def deserted(self) -> None:
        """Wait until no client is connected."""
        while self._connections:
            await asyncio.wait(self._connections)

    def release(self) -> None:
        """Let every stalled answer go on, now and later."""
        self._released.set()

    async def __aenter__(self) -> ScriptedUpstream:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *reason: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = _Reader()

        async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._accept(reader, writer)

        return asyncio.StreamReaderProtocol(reader, accept)

    async def _accept(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        # `drain` then waits until the kernel has everything, so that no reset overtakes it.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, _Ended):
                idle = _Idle(writer.transport)
                async for request in _requests(reader):
                    idle.end()
                    await self._serve(request, reader, writer)
                    idle.begin(request.idle_close)
        except asyncio.CancelledError:
            # Only __aexit__ cancels; a cancelled handler would be logged as a failure.
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(
        self, request: Received, reader: _Reader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer, unless the client leaves first."""
        answer = asyncio.ensure_future(self._answer(request, writer))
        gone = asyncio.ensure_future(reader.gone.wait())
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() or isinstance(answer.exception(), ConnectionError):
                request.client_left_at = time.monotonic()
                request.client_left.set()
                raise _Ended
            answer.result()
        finally:
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        if request.path.endswith("/models"):
            await self._list_models(writer)
        elif request.method == "POST" and request.path.endswith("/chat/completions"):
            script = self._next_script(request)
            request.idle_close = script.fault(IdleClose)
            await self._record(request)
            await self._play(script, request, writer)
        else:
            await _send_status(writer, Status(404, "no such path"))

    async def _record(self, request: Received) -> None:
        if self._remember:
            async with self._arrived:
                self.requests.append(request)
                self._arrived.notify_all()

    def _next_script(self, request: Received) -> Script:
        if isinstance(self._script, Script):
            return self._script
        if callable(self._script):
            return self._script(request.json)
        return self._script[min(len(self.requests), len(self._script) - 1)]

    async def _list_models(self, writer: asyncio.StreamWriter) -> None:
        if self._models_answer is not None:
            await _send_status(writer, self._models_answer)
            return
        data = [{"id": name, "object": "model", "created": 0} for name in self._models]
        await _send(writer, msgspec.json.encode({"object": "list", "data": data}))

    async def _play(self, script: Script, request: Received, writer: asyncio.StreamWriter) -> None:
        if status := script.fault(Status):
            await _send_status(writer, status)
            return
        kind = script.fault(faults.ContentType)
        streams = bool(request.json.get("stream"))
        mime = kind.value if kind else ("text/event-stream" if streams else "application/json")
        if script.fault(faults.Html):
            await _send(writer, _PAGE, mime="text/html")
        elif script.fault(faults.Empty):
            await _send(writer, b"", mime=mime)
        else:
            headers = {"Content-Type": mime, "Transfer-Encoding": "chunked"}
            if script.fault(faults.Gzip) and streams:
                headers["Content-Encoding"] = "gzip"
            _write_head(writer, 200, headers)
            pieces = wire(script, request.json) if streams else _halves(script, request.json)
            await self._send_pieces(pieces, script.delay, request, writer)

    async def _send_pieces(
        self,
        pieces: Iterator[bytes | Act],
        delay: float,
        request: Received,
        writer: asyncio.StreamWriter,
    ) -> None:
        await writer.drain()
        for piece in pieces:
            if not isinstance(piece, bytes):
                await self._act(piece, request, writer)
                if isinstance(piece, faults.Close):
                    break
                continue
            if delay:
                await asyncio.sleep(delay)
            if writer.is_closing():  # where writing is a RuntimeError on some event loops
                raise ConnectionResetError("the client has gone")
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            # Lets the client read each piece by itself, and others have their turn.
            await asyncio.sleep(0)
            request.chunks_sent += 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _act(self, act: Act, request: Received, writer: asyncio.StreamWriter) -> None:
        match act:
            case faults.Reset():
                await asyncio.sleep(_READ_TIME)
                peer = writer.get_extra_info("socket")
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
                writer.transport.abort()
                raise _Ended
            case faults.Cut():
                raise _Ended
            case faults.Stall():
                request.stalled.set()
                await self._released.wait()
            case faults.Close():
                pass


class _Idle:
    """The time between two requests of a connection, and how a script ends it."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None
        self._crosses = False

    def begin(self, close: IdleClose | None) -> None:
        """Start the clock of an unannounced close, if there is to be one."""
        if close is None:
            return
        self._crosses = close.crosses
        if not close.crosses:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(close.seconds, self._transport.close)

    def end(self) -> None:
        """A request has arrived. Raise _Ended if the close crosses it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._crosses or self._transport.is_closing():
            self._transport.abort()
            raise _Ended


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[Received]:
    """Yield the requests of one connection until it ends."""
    while head := await _head(reader):
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = request_line.split(" ", 2)
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        yield Received(method, path, headers, body)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _halves(script: Script, body: Json) -> Iterator[bytes | Act]:
    """Yield a whole answer; the script's acts strike in the middle of it."""
    answer = msgspec.json.encode(whole(script, body))
    middle = len(answer) // 2
    yield answer[:middle]
    yield from (fault for fault in script.faults if isinstance(fault, Act))
    yield answer[middle:]


async def _send_status(writer: asyncio.StreamWriter, status: Status) -> None:
    error = {"message": status.message, "type": "scripted", "code": status.error_code}
    body = status.body if status.body is not None else msgspec.json.encode({"error": error})
    await _send(writer, body, status=status.code, headers=status.headers)


async def _send(
    writer: asyncio.StreamWriter,
    body: bytes,
    *,
    mime: str = "application/json",
    status: int = 200,
    headers: Mapping[str, str] = {},
) -> None:
    known = {"Content-Type": mime, "Content-Length": str(len(body))}
    _write_head(writer, status, {**known, **headers})
    writer.write(body)
    await writer.drain()


def _write_head(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Scripted')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
