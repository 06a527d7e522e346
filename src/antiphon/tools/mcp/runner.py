"""Runs the tools of MCP servers for the turns of this process: the contract of `tools.base`.

A turn gets an `McpTurn`. It lists what the context does not list yet, asks for approval where the
rules require it, and calls a tool only if the server has it at that time. Calls that were approved
are known, checked and claimed before the turn begins; `decide` then compares the tool's definition
with the one that was approved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from antiphon.plans.hosted_functions import HostedFunction
from antiphon.protocol.codec import decode_json
from antiphon.protocol.deltas import Degraded, Delta, ItemClosed, ItemOpened, ItemProgressed
from antiphon.protocol.errors import BackendError, CallerError, Conflict, InvalidRequest
from antiphon.protocol.items import Item, item_type
from antiphon.tools.base import (
    Ask,
    Decision,
    Decline,
    HostedCall,
    Outcome,
    Progress,
    Start,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.mcp.approvals import ApprovalIds, Approved, answered_before, find_approved
from antiphon.tools.mcp.declared import DeclaredServer, Directory, read_servers
from antiphon.tools.mcp.definitions import Definition, Listing, definitions_in
from antiphon.tools.mcp.faults import McpFault, protocol_fault
from antiphon.tools.mcp.loading import load_connection
from antiphon.tools.mcp.pool import McpPool

if TYPE_CHECKING:
    from antiphon.tools.mcp.connection import Connection

__all__ = ["McpRunner", "McpTurn"]

_log = logging.getLogger(__name__)
_KIND: Final = "mcp"
_LIST: Final = "mcp_list_tools"
_INVALID_PARAMS: Final = -32602
# The loop cancels a listing that takes too long; ours ends a little before, and is reported.
_LISTING_SHARE: Final = 0.9
_MAX_ABOUT_SERVER: Final = 256
_CHANGED: Final = (
    "not run: the server has changed this tool since the call was approved; "
    "call it again if that is still right, and a new approval will be asked for"
)


class McpRunner:
    """Runs tools of the type `mcp`."""

    kinds: Final = frozenset({_KIND})
    includes: Final[frozenset[str]] = frozenset()

    def __init__(self, directory: Directory, pool: McpPool, ids: ApprovalIds) -> None:
        self.directory = directory
        self.pool = pool
        self._ids = ids
        self._loading: asyncio.Task[object] | None = None

    def warm_up(self) -> None:
        """Import the library now, beside the event loop, so that no turn waits for it."""
        self._loading = asyncio.create_task(load_connection())

    async def begin(self, request: ToolRequest) -> McpTurn:
        """Return the session of a turn, with the calls that it was approved to run."""
        servers, notes = read_servers(
            request.tools, self.directory, is_searched=request.is_searched
        )
        answers = find_approved(self._ids, request.owner, request.items, request.own)
        for answer in answers:
            _check_declared(answer, servers)
        claimed = await self._claim(request, answers)
        return McpTurn(request, servers, notes, claimed, self.pool, self._ids)

    async def close(self) -> None:
        """Close every connection."""
        if self._loading is not None:
            await asyncio.wait({self._loading})
        await self.pool.close()

    async def _claim(self, request: ToolRequest, answers: Sequence[Approved]) -> list[Approved]:
        """Return the approved calls, which are this turn's from now on; raise if one is not."""
        claimed: list[Approved] = []
        for answer in answers:
            is_free = await request.approvals.claim(answer.approval_id)
            if not answer.approve:
                continue  # to deny it again changes nothing
            if not is_free:
                raise await _taken(request, answer.approval_id)
            claimed.append(answer)
        return claimed


class McpTurn(ToolSession):
    """The MCP servers of one turn."""

    def __init__(
        self,
        request: ToolRequest,
        servers: Mapping[str, DeclaredServer],
        notes: Sequence[str],
        approved: Sequence[Approved],
        pool: McpPool,
        ids: ApprovalIds,
    ) -> None:
        self.degraded = notes
        self.approved = [_call_of(one, index) for index, one in enumerate(approved)]
        self._request = request
        self._servers = servers
        self._pool = pool
        self._ids = ids
        self._unstarted = {one.approval_id for one in approved}
        self._known: dict[str, Mapping[str, Definition]] = {}
        self._live: dict[str, Listing] = {}  # what servers have listed in this turn
        self._leases = AsyncExitStack()
        self._connections: dict[str, Connection] = {}

    # What the model may call.

    async def prepare(self) -> AsyncIterator[Delta | HostedFunction]:
        """List the tools of servers that the context does not list, all at once."""
        listed = _listed(self._request.items)
        approved = {call.function.namespace for call in self.approved}
        fresh = [label for label in self._servers if label not in listed]
        asked = [label for label in self._servers if label in approved or label in fresh]
        tasks = {label: asyncio.create_task(self._list(label)) for label in asked}
        seconds = self._request.limits.list_seconds * _LISTING_SHARE
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            for label in fresh:
                yield ItemOpened(_key(label), _list_item(label))
                yield ItemProgressed(_key(label), f"response.{_LIST}.in_progress")
            for label in self._servers:
                found = await _until(tasks[label], deadline) if label in tasks else None
                if label in listed:
                    self._known[label] = definitions_in(listed[label])
                if isinstance(found, Listing):
                    self._known[label] = found.tools
                for delta in self._report(label, found, is_fresh=label in fresh):
                    yield delta
                for function in self._functions(label):
                    yield function
        finally:
            for task in tasks.values():
                if task.cancel():
                    self._pool.let_finish(task)
        self._refuse_nothing(fresh)

    async def _list(self, label: str) -> Listing | McpFault:
        """Return the tools as they are now, or why they cannot be listed."""
        try:
            connection = await self._connect(label)
            self._live[label] = await connection.list_tools(is_fresh=True)
            return self._live[label]
        except McpFault as fault:
            return fault
        except Exception:  # noqa: BLE001 - a server that breaks us must not break the turn
            _log.exception("%s: listing an MCP server broke", self._request.response_id)
            return protocol_fault("listing broke; the log of the gateway has the reason")

    def _report(
        self, label: str, found: Listing | McpFault | None, *, is_fresh: bool
    ) -> list[Delta]:
        """Return the deltas that end the listing of a server, and report what is left out."""
        where = self._servers[label].where
        deltas: list[Delta] = []
        if isinstance(found, McpFault):
            deltas.append(Degraded(f"{where} (mcp {label}): {found.message}"))
        elif found is not None and is_fresh:
            deltas += [Degraded(f"{where} (mcp {label}): {note}") for note in found.notes]
        if is_fresh:
            item = _list_item(label, self._allowed(label))
            if isinstance(found, McpFault):
                item["error"] = found.message
            deltas.append(ItemClosed(_key(label), item))
        return deltas

    def _allowed(self, label: str) -> list[Definition]:
        server = self._servers[label]
        return [tool for tool in self._known.get(label, {}).values() if server.allows(tool)]

    def _functions(self, label: str) -> list[HostedFunction]:
        server = self._servers[label]
        about = server.description[:_MAX_ABOUT_SERVER]
        loaded = _loaded(label, self._request.items) if server.is_deferred else frozenset()
        return [
            _function(
                label, tool, about, is_deferred=server.is_deferred and tool.name not in loaded
            )
            for tool in self._allowed(label)
        ]

    def _refuse_nothing(self, fresh: Sequence[str]) -> None:
        """Fail a turn that has no tool at all because its servers cannot be listed."""
        is_empty = not any(label in self._known for label in self._servers)
        if fresh and is_empty and self._request.is_alone:
            raise BackendError(
                "no MCP server of the request could be listed, and it has no other tools",
                code="tool_unavailable",
                status=424,
            )

    # What becomes of a call.

    def decide(self, call: HostedCall) -> Decision:
        """Start a call that needs no approval or has it, as long as its tool is unchanged."""
        label, name = call.function.namespace or "", call.function.name
        server, tool = self._servers[label], self._known.get(label, {}).get(name)
        request, approval_id = self._request, call.approval_request_id
        if approval_id is not None:
            if tool is not None and not server.allows(tool):
                return Decline(result="not run: this tool may not be used in this request")
            if tool is not None and not self._ids.is_pinned_to(
                approval_id, request.owner, tool.digest
            ):
                return Decline(result=_CHANGED)
        elif tool is None or server.needs_approval(tool):
            digest = tool.digest if tool is not None else b""
            made = self._ids.make(request.owner, label, name, call.arguments, digest)
            item = {"type": "mcp_approval_request", "id": made, **_asked(call)}
            return Ask(item=item)
        is_harmless = tool is not None and tool.is_read_only and server.endpoint.trusts_read_only
        return Start(
            item={"type": "mcp_call", **_asked(call), "approval_request_id": approval_id},
            has_effects=not is_harmless,
            seconds=server.endpoint.call_seconds,
        )

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        """Call the tool, once, if the server has it now."""
        self._unstarted.discard(call.approval_request_id or "")
        try:
            outcome = await self._run(call, start)
        except McpFault as fault:
            outcome = _failed(start, fault.error, fault.message)
        yield outcome

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        """Return the outcome of a call that was stopped."""
        fault = protocol_fault(why)
        return _failed(start, fault.error, fault.message)

    async def close(self) -> None:
        """Release the connections, and approvals whose call was never started."""
        await self._leases.aclose()
        for approval_id in self._unstarted:
            await self._request.approvals.release(approval_id)

    async def _run(self, call: HostedCall, start: Start) -> Outcome:
        arguments = decode_json(call.arguments, None)
        if not isinstance(arguments, dict):
            raise protocol_fault("the arguments are not a JSON object", _INVALID_PARAMS)
        connection = await self._connect(call.function.namespace or "")
        await self._check_live(call, connection)
        seconds = start.seconds or connection.endpoint.call_seconds
        result = await connection.call(call.function.name, arguments, seconds)
        if (error := result.error) is not None:
            return _failed(start, error, result.output)
        item = {**start.item, "output": result.output, "error": None, "status": "completed"}
        has_images = self._request.sees_images and result.images
        return Outcome(item=item, result=result.shown() if has_images else result.output)

    async def _check_live(self, call: HostedCall, connection: Connection) -> None:
        """Raise McpFault unless the server has the tool, as it was when the call was approved.

        What the context lists may be a caller's, and what was listed in another turn may be old.
        """
        label, approval_id = call.function.namespace or "", call.approval_request_id
        listing = self._live.get(label)
        if listing is None:
            listing = await connection.list_tools(is_fresh=approval_id is not None)
        tool = listing.tools.get(call.function.name)
        if tool is None:
            raise protocol_fault("the server has no such tool", _INVALID_PARAMS)
        if approval_id is not None and not self._ids.is_pinned_to(
            approval_id, self._request.owner, tool.digest
        ):
            raise protocol_fault("the server has changed this tool since it was approved")

    async def _connect(self, label: str) -> Connection:
        """Return a connection that stays leased until the turn ends."""
        known = self._connections.get(label)
        if known is not None and known.is_open:
            return known
        lease = self._pool.lease(self._request.owner, self._servers[label].endpoint)
        connection = await self._leases.enter_async_context(lease)
        self._connections[label] = connection
        return connection


async def _until(task: asyncio.Task[Listing | McpFault], deadline: float) -> Listing | McpFault:
    """Return what a listing has found by then. How long it takes to give up does not count."""
    left = max(0.0, deadline - asyncio.get_running_loop().time())
    done, _ = await asyncio.wait({task}, timeout=left)
    return task.result() if done else protocol_fault("the server did not answer in time")


async def _taken(request: ToolRequest, approval_id: str) -> CallerError:
    """Return the error for an approval that another response has taken."""
    if await request.approvals.is_spent(approval_id):
        return answered_before(approval_id)
    return Conflict(
        f"The approval request '{approval_id}' is used by another request.",
        code="approval_used",
        param="input",
    )


def _check_declared(answer: Approved, servers: Mapping[str, DeclaredServer]) -> None:
    """Refuse an approval for a server or a tool that this request may not use."""
    if not answer.approve:
        return
    server = servers.get(answer.label)
    if server is None or not server.allows_name(answer.name):
        raise InvalidRequest(
            f"The approval request '{answer.approval_id}' is for the tool '{answer.name}' of "
            f"'{answer.label}', which is not among the tools of this request.",
            code="invalid_approval",
            param="tools",
        )


def _listed(items: Sequence[Item]) -> dict[str, Item]:
    """Return the last list of each server in the context, unless it failed."""
    lists = (item for item in items if item_type(item) == _LIST and not item.get("error"))
    return {str(item.get("server_label")): item for item in lists}


def _list_item(label: str, tools: Sequence[Definition] = ()) -> Item:
    entries = [tool.as_entry() for tool in tools]
    return {"type": _LIST, "server_label": label, "tools": entries}


def _key(label: str) -> str:
    return f"mcp-list-{label}"


def _loaded(label: str, items: Sequence[Item]) -> frozenset[str]:
    """Return the names of the tools that a search of an earlier turn has found."""
    tools = [
        tool
        for item in items
        if item_type(item) == "tool_search_output" and isinstance(item.get("tools"), list)
        for tool in item["tools"]
        if isinstance(tool, dict) and tool.get("server_label") == label
    ]
    lists = [tool["allowed_tools"] for tool in tools if isinstance(tool.get("allowed_tools"), list)]
    return frozenset(name for names in lists for name in names if isinstance(name, str))


def _function(label: str, tool: Definition, about: str, *, is_deferred: bool) -> HostedFunction:
    """Return what the model is shown for a tool; `about` is the caller's word on its server."""
    return HostedFunction(
        kind=_KIND,
        namespace=label,
        name=tool.name,
        description=f"{tool.description}\n(server: {about})" if about else tool.description,
        parameters=tool.input_schema,
        is_deferred=is_deferred,
    )


def _call_of(approved: Approved, index: int) -> HostedCall:
    function = HostedFunction(kind=_KIND, namespace=approved.label, name=approved.name)
    return HostedCall(
        function=function,
        arguments=approved.arguments,
        call_id=f"call_{index}_{approved.approval_id[-40:]}",
        approval_request_id=approved.approval_id,
    )


def _asked(call: HostedCall) -> dict[str, Any]:
    function = call.function
    return {
        "server_label": function.namespace,
        "name": function.name,
        "arguments": call.arguments,
    }


def _failed(start: Start, error: dict[str, Any], message: str) -> Outcome:
    item = {**start.item, "output": None, "error": error, "status": "failed"}
    return Outcome(item=item, result=f"error: {message}", has_failed=True)
