"""One connection to a peer: writes requests, and reads the answers off the socket.

At most one request is under way. A connection that has read the whole answer is idle and may be
used again, unless the peer announced its end, or has not taken the whole request. Everything else
ends it: a byte that no request asked for, an answer that is not HTTP, more than MAX_OVERHEAD
bytes in a row that are no body.

It knows nothing of pools and addresses. This is the only importer of the HTTP parser, which has
no limits, no end of file and no flow control of its own: those are here.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, cast

import httptools

from antiphon.protocol.long_body import LongBody
from antiphon.transport.exchange import Exchange, Fault, Head, closed

__all__ = ["MAX_LINE", "MAX_OVERHEAD", "Connection", "reason"]

MAX_OVERHEAD: Final = 64 * 1024
"""The most bytes in a row that are no body: head, chunk extensions, trailers."""

MAX_LINE: Final = 8 * 1024
"""The longest header line."""

# A longer body is not copied after its head: that would cost more than a second buffer does.
_SHORT: Final = 16 * 1024
# A body is written in parts of this size: each is copied, and with TLS encrypted, in one go.
_PART: Final = 256 * 1024
_OUR_END: Final = Fault("the connection was closed on our side", "upstream_closed")
_SWITCHING: Final = 101
_FIRST_ERROR: Final = 400
_NOT_HTTP: Final = Fault("the upstream's answer is not HTTP", "upstream_invalid_response")
_CODINGS: Final = frozenset({"", "chunked", "identity"})


class Connection(asyncio.Protocol):
    """The client's end of a connection.

    `on_idle` is called when the connection can take the next request, `on_lost` when it was closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_idle: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self.is_reused = False
        """Whether an earlier request was answered on this connection."""
        self._loop = loop
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unsent: deque[memoryview] = deque()
        self._is_full = False  # the transport accepts nothing for now
        self._is_sent_unknown = False
        self._first: Exchange | None = None
        self._exchange: Exchange | None = None
        self._needs_head = True
        self._has_bytes = False
        self._is_asked = False
        self._is_last = False  # our side is closed

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, head: bytes, body: bytes | LongBody | None) -> Exchange:
        """Send a request and return its exchange. Only for a new or an idle connection."""
        exchange, self._first = self._first, None
        if exchange is None:
            assert self._exchange is None  # it is idle
            exchange = self._exchange = Exchange(self._loop, self)
            self._needs_head, self._has_bytes = True, False
        self._is_asked = True
        self._is_sent_unknown = False
        # A peer that has closed already may have written why: that can still be read.
        if self._transport is not None and not self._transport.is_closing():
            self._write(self._transport, head, body or b"")
        return exchange

    def hang_up(self, exchange: Exchange | None = None) -> None:
        """Close the connection now, if it still serves this exchange, or in any case."""
        if exchange is not None and exchange is not self._exchange:
            return
        exchange, self._exchange = self._exchange, None
        # Not `close`: a peer that does not read could keep the connection by that.
        if self._transport is not None and not self._loop.is_closed():
            if exchange is not None:
                exchange.is_sent = not self._has_unsent(self._transport)
            self._transport.abort()
        if exchange is not None:
            exchange.end(_OUR_END)

    def stop_sending(self) -> None:
        """Close our side, if the whole request went out; otherwise the connection."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._has_unsent(transport):
            self.hang_up()
            return
        self._is_last = True
        # Transports with TLS cannot do this, and those of some loops show no real socket.
        with suppress(OSError), socket.socket(fileno=os.dup(_file_of(transport))) as ours:
            ours.shutdown(socket.SHUT_WR)
        if not transport.is_reading():
            transport.resume_reading()

    def pause_reading(self) -> None:
        """Read nothing for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, and expect an answer: a peer may refuse as soon as it accepts."""
        self._answer = _Answer()
        self._exchange = self._first = Exchange(self._loop, self)
        self._transport = cast("asyncio.Transport", transport)  # not every loop derives from it

    def data_received(self, data: bytes) -> None:
        """Read what one read of the socket brought."""
        exchange, answer = self._exchange, self._answer
        if exchange is None:
            self.hang_up()  # nothing was asked
            return
        body = answer.feed(data)
        if self._needs_head:
            self._has_bytes = True
            if answer.head is not None:
                self._needs_head = False
                exchange.start(answer.head)
        if body:
            exchange.put(body)
        if answer.is_over:
            self._end(exchange)

    def eof_received(self) -> None:
        """End the answer: nothing more comes. The connection is closed at once.

        The transport would first send what is unsent, and a peer that does not read it could
        keep the connection by that.
        """
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.end(None if self._answer.ends_with_connection else self._loss(None))
        self.hang_up()

    def connection_lost(self, error: Exception | None) -> None:
        """Report to the task that waits, and break the reference cycles."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.end(self._loss(error))
        self._transport = None
        self._unsent.clear()
        self._answer.release()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Write nothing for now: the peer reads too slowly."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Write on."""
        self._is_full = False
        if self._transport is not None:
            self._write_parts(self._transport)

    def _write(self, transport: asyncio.Transport, head: bytes, body: bytes | LongBody) -> None:
        if isinstance(body, bytes) and len(body) <= _SHORT:
            transport.write(head + body)
            return
        # A transport with TLS does not count what waits below it.
        self._is_sent_unknown = transport.get_extra_info("sslcontext") is not None
        if isinstance(body, bytes) and len(body) <= _PART:
            transport.writelines((head, body))
        else:
            transport.write(head)
            self._unsent.extend(_parts(body))
            self._write_parts(transport)

    def _write_parts(self, transport: asyncio.Transport) -> None:
        while self._unsent and not self._is_full:
            transport.write(self._unsent.popleft())

    def _has_unsent(self, transport: asyncio.Transport) -> bool:
        """Return whether a part of the request has not left this process."""
        return bool(self._unsent or transport.get_write_buffer_size())

    def _end(self, exchange: Exchange) -> None:
        """Finish an exchange whose answer is complete, or cannot be read further."""
        if exchange is not self._exchange:
            return  # it was aborted by what it was passed to
        answer, self._exchange = self._answer, None
        exchange.end(_NOT_HTTP if answer.is_broken else None)
        transport = self._transport
        if (
            answer.is_last
            or self._is_last
            or (self._is_sent_unknown and answer.is_refusal)
            or not self._is_asked
            or transport is None
            or transport.is_closing()
            or self._has_unsent(transport)
        ):
            self.hang_up()
            return
        if not transport.is_reading():
            transport.resume_reading()
        answer.reset()
        self.is_reused = True
        self._on_idle(self)

    def _loss(self, error: Exception | None) -> Fault:
        if not self._needs_head:
            why = "its answer is cut off"
        elif isinstance(error, OSError) and error.errno:
            why = reason(error)
        else:
            why = "it hung up"
        return closed(why, is_stale=self.is_reused and not self._has_bytes)


def _parts(body: bytes | LongBody) -> Iterator[memoryview]:
    """Yield a body in parts that are not too long. None of them is empty."""
    for piece in (body,) if isinstance(body, bytes) else body.pieces:
        view = memoryview(piece)
        for start in range(0, len(piece), _PART):
            yield view[start : start + _PART]


def _file_of(transport: asyncio.Transport) -> int:
    number: int = transport.get_extra_info("socket").fileno()
    return number


def reason(error: OSError) -> str:
    """Return what happened in a few words, without addresses."""
    text = error.strerror or ""
    # The event loop and the dialler put addresses there; other texts are the egress guard's.
    if not text or text.startswith(("Connect call failed", "Multiple exceptions")):
        text = os.strerror(error.errno or 0)
    return text.lower()


class _Answer:
    """Parses the answers on one connection, one after the other. Does no I/O.

    The parser calls the methods `on_…`. For a part of the body it calls `list.append`, so a
    chunk costs no Python frame.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.on_body = self._parts.append
        self._headers: dict[str, str] = {}
        self._is_interim = False
        parser = httptools.HttpResponseParser(self)
        # As most clients do: peers with these habits exist, and an answer smuggles nothing.
        parser.set_dangerous_leniencies(
            lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._parser: httptools.HttpResponseParser | None = parser
        self.reset()

    def reset(self) -> None:
        """Expect the next answer."""
        self.head: Head | None = None
        self.is_over = False
        """Whether the answer is complete or broken."""
        self.is_broken = False
        self.is_last = False
        """Whether the connection cannot be used after this answer."""
        self._overhead = 0

    def release(self) -> None:
        """Break the cycle of references with the parser. Nothing can be fed after that."""
        self._parser = None
        del self.on_body

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body that these bytes hold."""
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_over = self.is_last = True
        except httptools.HttpParserError:
            self._break()
        parts = self._parts
        if parts:
            self._overhead = 0
            body = b"".join(parts)  # of one part it is that part, not a copy
            parts.clear()
            return body
        self._overhead += len(data)
        if self._overhead > MAX_OVERHEAD and not self.is_over:
            self._break()
        return b""

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the regular end of this answer."""
        if self.head is None or self.is_over:
            return False
        headers = self.head.headers
        is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        return "content-length" not in headers and not is_chunked

    @property
    def is_refusal(self) -> bool:
        """Whether the peer may have answered without reading the whole request."""
        return self.head is not None and self.head.status >= _FIRST_ERROR

    def on_message_begin(self) -> None:
        """Begin an answer, or refuse one that follows the answer to our request."""
        if self.is_over:
            raise ValueError("nothing was asked")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; a trailer is dropped."""
        if len(name) + len(value) > MAX_LINE:
            raise ValueError("the header is too long")
        if self.head is not None:
            return
        key = name.decode("latin-1").lower()
        text = value.strip().decode("utf-8", "surrogateescape")
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        """Take the head, unless it only announces another one."""
        assert self._parser is not None
        status = self._parser.get_status_code()
        self._is_interim = 100 <= status < 200 and status != _SWITCHING
        if self._is_interim:
            return
        headers = self._headers
        if sum(map(len, headers)) + sum(map(len, headers.values())) > MAX_OVERHEAD:
            raise ValueError("the head is too long")
        codings = headers.get("transfer-encoding")
        if codings is not None and not _CODINGS.issuperset(
            map(str.strip, codings.lower().split(","))
        ):
            raise ValueError("the body has a transfer coding that we did not ask for")
        self.head = Head(status, headers)
        self.is_last = not self._parser.should_keep_alive()

    def on_message_complete(self) -> None:
        """Note the end of the answer, unless it only announced another one."""
        if not self._is_interim:
            self.is_over = True

    def _break(self) -> None:
        """Give up the connection, and the answer too if it was not complete before."""
        self.is_last = True
        self.is_broken = not self.is_over
        self.is_over = True
