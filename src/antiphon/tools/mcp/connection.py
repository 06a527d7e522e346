"""One open connection to one MCP server: list its tools, call one, close.

A task of its own holds the library's client, because the library wants to be entered and left by
one task. When that task ends, the connection is over and every call on it fails. A call that is
cancelled or late is reported to the server (`notifications/cancelled`). Nothing is ever sent
twice: a call that may have reached the server fails instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import httpx2
import mcp_types
from mcp import Client, ClientSession, MCPError
from mcp.client import IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel, ConfigDict, ValidationError

from antiphon.tools.mcp.bridge import Trace, Wiring, current_trace
from antiphon.tools.mcp.definitions import MAX_PAGES, MAX_TOOLS, Listing, read_tools
from antiphon.tools.mcp.endpoints import Endpoint
from antiphon.tools.mcp.faults import McpFault, protocol_fault
from antiphon.tools.mcp.results import CallResult, read_result
from antiphon.tools.mcp.stdio import run_process
from antiphon.version import __version__

__all__ = ["Connection"]

_T = TypeVar("_T")
_INFO: Final = mcp_types.Implementation(name="antiphon", version=__version__)
_TIMEOUT: Final = -32001
"""The code that the library gives a request that was not answered in time."""
_GRACE_SECONDS: Final = 3.0
_CLOSING_SECONDS: Final = 10.0


class _Raw(BaseModel):
    """A result as it came: we read it ourselves."""

    model_config = ConfigDict(extra="allow")


class Connection:
    """A connection that was opened. One owner uses it, for any number of calls at once."""

    def __init__(self, endpoint: Endpoint, body_bytes: int) -> None:
        self.endpoint = endpoint
        self._body_bytes = body_bytes
        self._wiring = Wiring(endpoint, body_bytes)
        self._end = asyncio.Event()
        self._session: ClientSession | None = None
        self._life: asyncio.Task[None] | None = None
        self._listing: Listing | None = None
        self._error: BaseException | None = None  # what ended the connection

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._session is not None and self._life is not None and not self._life.done()

    async def open(self) -> None:
        """Connect and agree on a version. Raise McpFault."""
        opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(opened))
        try:
            async with asyncio.timeout(self.endpoint.connect_seconds + _GRACE_SECONDS):
                waits: set[asyncio.Future[Any]] = {self._life, opened}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self._give_up()
            raise protocol_fault("the server did not answer in time", _TIMEOUT) from None
        except BaseException:
            await self._give_up()
            raise
        if not opened.done():
            opened.cancel()
            raise self._fault_of(self._error, self._wiring.trace)
        self._session = opened.result()

    async def list_tools(self, *, is_fresh: bool = False) -> Listing:
        """Return the server's tools, as they were listed before or, if `is_fresh`, are now."""
        if self._listing is None or is_fresh:
            self._listing = await self._ask(self._list(), self.endpoint.connect_seconds)
        return self._listing

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> CallResult:
        """Call a tool, once. Raise McpFault if there is no result."""
        params = mcp_types.CallToolRequestParams(name=name, arguments=arguments)
        request = mcp_types.CallToolRequest(params=params)
        raw = await self._ask(self._send(request, seconds), seconds + _GRACE_SECONDS)
        if "content" not in raw and "structuredContent" not in raw:
            raise protocol_fault("the server asks for more input, which is not supported")
        return read_result(raw)

    async def close(self) -> None:
        """Close the connection; stop the process if there is one."""
        self._end.set()
        life = self._life
        if life is None or life is asyncio.current_task():
            return
        await asyncio.wait({life}, timeout=_CLOSING_SECONDS)
        if not life.done():
            life.cancel()
            await asyncio.wait({life}, timeout=_CLOSING_SECONDS)

    async def _give_up(self) -> None:
        """Close a connection that was never open: nothing has to be ended in order."""
        assert self._life is not None
        self._life.cancel()
        await self.close()

    async def _live(self, opened: asyncio.Future[ClientSession]) -> None:
        """Hold the connection open until it is to be closed, or breaks."""
        transport = self._transport()
        try:
            async with Client(
                transport, cache=None, client_info=_INFO, message_handler=self._hear
            ) as client:
                if not opened.done():
                    opened.set_result(client.session)
                await self._end.wait()
        except Exception as error:  # noqa: BLE001 - any error ends the connection
            self._error = _first(error)
        finally:
            self._session = None
            await self._wiring.aclose()

    def _transport(self) -> AbstractAsyncContextManager[Any]:  # the library's kind of streams
        endpoint = self.endpoint
        if endpoint.url is None:
            return run_process(endpoint, self._body_bytes, self._wiring.trace)
        if endpoint.transport == "sse":
            return sse_client(endpoint.url, httpx_client_factory=self._wiring.client)
        return self._streamable(endpoint.url)

    @asynccontextmanager
    async def _streamable(self, url: str) -> AsyncIterator[Any]:  # the library's kind of streams
        async with (
            self._wiring.client() as client,
            streamable_http_client(
                url, http_client=client, max_sse_event_size=self._body_bytes
            ) as streams,
        ):
            yield streams

    async def _hear(self, message: IncomingMessage) -> None:
        """Forget the list when the server announces another one."""
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._listing = None

    async def _list(self) -> Listing:
        entries: list[object] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = mcp_types.PaginatedRequestParams(cursor=cursor) if cursor else None
            raw = await self._send(mcp_types.ListToolsRequest(params=params), None)
            page = raw.get("tools")
            entries += page if isinstance(page, list) else []
            following = raw.get("nextCursor")
            if not isinstance(following, str) or not following or len(entries) > MAX_TOOLS:
                return read_tools(entries)
            if following in seen:
                break
            seen.add(following)
            cursor = following
        found = read_tools(entries)
        note = f"its list of tools has no end; {len(found.tools)} of them are used"
        return Listing(found.tools, [*found.notes, note])

    async def _send(
        self, request: mcp_types.Request[Any, Any], seconds: float | None
    ) -> dict[str, Any]:
        if self._session is None:
            raise protocol_fault("the connection to the server was closed")
        raw = await self._session.send_request(request, _Raw, request_read_timeout_seconds=seconds)
        found: dict[str, Any] = self._wiring.redact_keys(raw.model_dump())
        return found

    async def _ask(self, work: Coroutine[Any, Any, _T], seconds: float) -> _T:
        """Do something on the connection, in a limited time; raise McpFault if it fails."""
        trace = Trace()
        token = current_trace.set(trace)
        task = asyncio.ensure_future(work)
        current_trace.reset(token)
        try:
            async with asyncio.timeout(seconds):
                await self._wait_for(task, trace)
        except TimeoutError:
            raise trace.fault or protocol_fault(
                "the server did not answer in time", _TIMEOUT
            ) from None
        finally:
            if not _has_result(task):
                # The server is informed in this time; then what it holds open is closed.
                asyncio.get_running_loop().call_later(_GRACE_SECONDS, trace.give_up)
            if not task.done():
                task.cancel()
                await asyncio.shield(asyncio.wait({task}, timeout=_GRACE_SECONDS))
        if task.cancelled():
            raise self._fault_of(self._error, trace)
        error = task.exception()
        if error is None:
            return task.result()
        raise self._fault_of(error, trace)

    async def _wait_for(self, task: asyncio.Future[Any], trace: Trace) -> None:
        """Wait until a task ends, or until it is clear that it never will.

        After a fault the library ends the task within a moment, or never. If it does not, the
        connection cannot be used again.
        """
        assert self._life is not None
        noted = asyncio.ensure_future(trace.noted.wait())
        waits: set[asyncio.Future[Any]] = {task, self._life, noted}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        finally:
            noted.cancel()
        if not task.done():
            self._end.set()

    def _fault_of(self, error: BaseException | None, trace: Trace) -> McpFault:
        """Return what to report: the fault that was noted below the library, or its own error."""
        fault = trace.fault or (None if self.is_open else self._wiring.trace.fault)
        if fault is None and isinstance(error, McpFault):
            fault = error
        if fault is None:
            fault = _translate(error)
        message = fault.error.get("message")
        if isinstance(message, str):
            fault.error["message"] = self._wiring.redact(message)
        return fault


def _has_result(task: asyncio.Future[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group, without what its traceback holds."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.with_traceback(None)


def _translate(error: BaseException | None) -> McpFault:
    match error:
        case None:
            return protocol_fault("the connection to the server was closed")
        case MCPError():
            return protocol_fault(error.message or "the server reports an error", error.code)
        case ValidationError():
            return protocol_fault("the server's answer does not match the protocol")
        case FileNotFoundError() | PermissionError():
            return protocol_fault("the server's program cannot be started")
        case OSError():
            return protocol_fault("the server cannot be reached")
        case httpx2.InvalidURL():
            return protocol_fault("the server cannot be reached: the URL cannot be read")
    return protocol_fault(f"the connection to the server failed ({type(error).__name__})")
