"""The HTTP of the MCP library, carried by our own client, with limits below the library.

The library takes any httpx2 client. This one sends through `transport.http`: addresses are
checked when a socket is opened, nothing is decompressed, no proxy of the environment is used, and
a body that is too long is cut off while it arrives, before the library holds it. Redirects are not
followed, not even to the same host: what comes back has no location any more.

The library turns faults into errors of its own words, so a fault is also noted in the `Trace` of
the call that it belongs to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from antiphon.protocol.errors import AntiphonError, BackendError
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault, http_fault, protocol_fault
from antiphon.transport.egress import open_public_socket
from antiphon.transport.exchange import Exchange
from antiphon.transport.http import HttpClient, Limits
from antiphon.transport.secret import Secret

__all__ = ["Trace", "Wiring", "current_trace"]

_T = TypeVar("_T")
_ACCEPTED: Final = 202
# A stream of events may hold notifications beside the result.
_STREAM_FACTOR: Final = 4
# The library opens a stream for notifications again as often as a server closes it.
_MOST_STREAMS: Final = 20
_NOT_ALLOWED: Final = 405
_OURS: Final = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "user-agent"}
)
_KEY_NAME: Final = re.compile("auth|key|token|secret|password|credential", re.IGNORECASE)
_REDIRECTS: Final = range(300, 400)
_FIRST_ERROR: Final = 400
_EVENTS: Final = "text/event-stream"


class Trace:
    """What went wrong below the library, during one call or outside of any."""

    def __init__(self) -> None:
        self.fault: McpFault | None = None
        self.noted = asyncio.Event()
        self.is_given_up = False
        self._stops: set[Callable[[], object]] = set()

    async def stoppable(self, work: Coroutine[Any, Any, _T]) -> _T | None:
        """Return what this work returns; None if the call is given up before it has ended."""
        task = asyncio.ensure_future(work)
        self._stops.add(task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            if self.is_given_up and task.cancelled():
                return None
            raise
        finally:
            self._stops.discard(task.cancel)

    def stop_later(self, exchange: Exchange) -> None:
        """Close this exchange when the call is given up."""
        self._stops.add(exchange.abort)

    def forget(self, exchange: Exchange) -> None:
        """Note that this exchange is over."""
        self._stops.discard(exchange.abort)

    def give_up(self) -> None:
        """Stop every request of the call. A server that never answers would keep them open."""
        self.is_given_up = True
        for stop in list(self._stops):
            stop()

    def note(self, fault: McpFault) -> None:
        """Keep the first fault."""
        self.fault = self.fault or fault
        self.noted.set()


current_trace: Final[ContextVar[Trace | None]] = ContextVar("current_trace", default=None)
"""The trace of the call that this task works for. Tasks of the library inherit it."""


class Wiring(httpx2.AsyncBaseTransport):
    """Sends the requests of one connection to one server."""

    def __init__(self, endpoint: Endpoint, body_bytes: int) -> None:
        guard = open_public_socket if endpoint.is_guarded else None
        self._client = HttpClient(
            limits=Limits(connect=endpoint.connect_seconds), open_socket=guard, resends=False
        )
        self._headers = {name: value.reveal() for name, value in endpoint.headers.items()}
        self._secrets = tuple(endpoint.headers.values())
        self._keys = [value for name, value in endpoint.headers.items() if _KEY_NAME.search(name)]
        self._most = body_bytes
        self._is_stream_needed = endpoint.transport == "sse"
        self._streams = 0
        self.trace = Trace()
        """What went wrong outside of any call."""

    def client(
        self,
        headers: Mapping[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        """Return a client of the library's kind. Waits are limited by the calls, not by it."""
        no_limit = httpx2.Timeout(None)
        return httpx2.AsyncClient(
            transport=self, headers=headers, timeout=no_limit, auth=auth, trust_env=False
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; return its head, with a body that is read with a limit."""
        self._streams += request.method == "GET"
        if self._streams > _MOST_STREAMS and request.method == "GET":
            return httpx2.Response(_NOT_ALLOWED, request=request)
        body = await request.aread()
        trace = current_trace.get() or self.trace
        headers = {name: value for name, value in request.headers.items() if name not in _OURS}
        try:
            exchange = await trace.stoppable(
                self._client.send(
                    request.method,
                    str(request.url),
                    body=body or None,
                    headers={**headers, **self._headers},
                )
            )
        except AntiphonError as error:
            self._note(protocol_fault(_plain(error)))
            raise httpx2.ConnectError(_plain(error), request=request) from None
        if exchange is None:
            # An error would end the connection, which other calls use.
            return httpx2.Response(_ACCEPTED, request=request)
        answer = self._answer(exchange, request)
        await self._check(answer, request.method)
        return answer

    async def aclose(self) -> None:
        """Close every connection."""
        await self._client.close()

    def redact(self, text: str) -> str:
        """Return a message of the server without the headers that we sent to it."""
        return _redact(text, self._secrets)

    def redact_keys(self, value: Any) -> Any:  # any JSON value
        """Return what a server has sent without the keys that we sent to it, should it repeat them.

        Headers that are no keys stay: what they name may stand in any result.
        """
        if not self._keys:
            return value
        if isinstance(value, str):
            return _redact(value, self._keys)
        if isinstance(value, dict):
            return {name: self.redact_keys(inner) for name, inner in value.items()}
        return [self.redact_keys(inner) for inner in value] if isinstance(value, list) else value

    def _note(self, fault: McpFault) -> None:
        (current_trace.get() or self.trace).note(fault)

    async def _check(self, answer: httpx2.Response, method: str) -> None:
        """Note a refusal, unless its body has an error of the protocol."""
        status = answer.status_code
        if status in _REDIRECTS:
            self._note(http_fault("the server redirects, and redirects are not followed", status))
        elif status in (401, 403):
            self._note(http_fault("the server refuses the authorization", status))
        elif status >= _FIRST_ERROR and method == "POST" and not await _is_rpc_error(answer):
            self._note(http_fault(f"the server answered with HTTP status {status}", status))

    def _answer(self, exchange: Exchange, request: httpx2.Request) -> httpx2.Response:
        head = exchange.head
        is_stream = head.content_type == _EVENTS
        kept = ("content-type", "mcp-session-id")
        return httpx2.Response(
            head.status,
            headers={name: head.headers[name] for name in kept if name in head.headers},
            stream=_Body(exchange, self, self._limit(request.method, is_stream=is_stream)),
            request=request,
        )

    def _limit(self, method: str, *, is_stream: bool) -> int | None:
        """Return how many bytes a body may have; None for the one stream that has all answers.

        Each of its events has a limit, which is the library's to check.
        """
        if not is_stream:
            return self._most
        is_lasting = method == "GET" and self._is_stream_needed
        return None if is_lasting else self._most * _STREAM_FACTOR

    def too_long(self, most: int) -> httpx2.StreamError:
        """Return the error of a body that is too long, and note it."""
        fault = protocol_fault(f"the server's answer is longer than {most} bytes")
        self._note(fault)
        return httpx2.StreamError(fault.message)

    def cut_off(self, error: BackendError) -> httpx2.ReadError:
        """Return the error of a body that broke off, and note it."""
        self._note(protocol_fault(_plain(error)))
        return httpx2.ReadError(_plain(error))


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as far as its limit allows."""

    def __init__(self, exchange: Exchange, wiring: Wiring, most: int | None) -> None:
        self._exchange = exchange
        self._trace = current_trace.get() or wiring.trace
        self._trace.stop_later(exchange)
        self._wiring = wiring
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        while data := await self._read():
            count += len(data)
            if self._most is not None and count > self._most:
                self._exchange.abort()
                raise self._wiring.too_long(self._most)
            yield data

    async def aclose(self) -> None:
        """Close the connection, unless the whole body was read."""
        self._trace.forget(self._exchange)
        self._exchange.abort()

    async def _read(self) -> bytes | None:
        try:
            return await self._exchange.read()
        except BackendError as error:
            if self._trace.is_given_up:
                return None
            raise self._wiring.cut_off(error) from None


async def _is_rpc_error(answer: httpx2.Response) -> bool:
    """Return whether a refusal has an error of JSON-RPC as its body, which is then read."""
    if not answer.headers.get("content-type", "").lower().startswith("application/json"):
        return False
    try:
        found = msgspec.json.decode(await answer.aread())
    except (httpx2.HTTPError, httpx2.StreamError, msgspec.DecodeError, UnicodeError):
        return False
    return isinstance(found, dict) and isinstance(found.get("error"), dict)


def _redact(text: str, secrets: Iterable[Secret]) -> str:
    for secret in secrets:
        text = secret.redact(text)
        _, _, token = secret.reveal().partition(" ")
        if token:  # after a scheme such as Bearer
            text = Secret(token).redact(text)
    return text


def _plain(error: AntiphonError) -> str:
    """Return the message in our words, without the address: callers need not know it."""
    return re.sub(r"the upstream( at \S+(?= cannot))?", "the server", error.message)
