"""Begin the hosted tools of a turn, before the turn is made.

Each runner gets its tools and the context, and returns a session, or refuses the request. If the
request is refused after a runner has claimed an approval, the approval is given back: its call
was not started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from antiphon.engine.keep.intents import TurnIntents
from antiphon.engine.keep.pending_writes import Defer
from antiphon.engine.run.hosted import HostedSetup
from antiphon.engine.run.hosted_runs import CallNote
from antiphon.plans.toolbox import DeclaredTool, Toolbox
from antiphon.protocol.citations import Marks, Pattern, ShownSources
from antiphon.protocol.errors import StoreUnavailable
from antiphon.protocol.items import Item, item_type
from antiphon.protocol.request import CreateResponse
from antiphon.protocol.response import DONE_STATUSES
from antiphon.store.base import Store
from antiphon.tools.base import (
    HostedFunction,
    ShownResult,
    ToolRequest,
    ToolRunner,
    ToolSession,
)
from antiphon.tools.mcp.approvals import refuse_lost_approvals
from antiphon.tools.registry import ToolRegistry

__all__ = ["HostedTools", "TurnApprovals"]

_MCP: Final = "mcp"
_LAST: Final = ("programmatic_tool_calling", "tool_search")
"""What is begun and prepared after all others: it has to know what they offer."""
_SEARCH: Final = "tool_search"


class TurnApprovals:
    """The approvals of an owner, for one turn. See `tools.base.Approvals`."""

    def __init__(self, store: Store, owner: str, response_id: str, now: Callable[[], int]) -> None:
        self._store = store
        self._owner = owner
        self._response_id = response_id
        self._now = now
        self._claimed: list[str] = []

    async def find(self, request_id: str) -> Item | None:
        """Return the request for approval with this id, as it was stored."""
        found = await self._store.find_item(self._owner, request_id)
        is_request = found is not None and item_type(found) == "mcp_approval_request"
        return found if is_request else None

    async def claim(self, request_id: str) -> bool:
        """Take the approval for this turn; return whether it was free."""
        calls, name = self._store.tool_calls, self._response_id
        is_ours = await calls.claim_approval(self._owner, request_id, name, self._now())
        if is_ours:
            self._claimed.append(request_id)
        return is_ours

    async def is_spent(self, request_id: str) -> bool:
        """Return whether the response that took the approval has ended, as far as is stored."""
        holder = await self._store.tool_calls.approval_holder(self._owner, request_id)
        found = None if holder is None else await self._store.get(self._owner, holder)
        return found is not None and found.status in DONE_STATUSES

    async def release(self, request_id: str) -> None:
        """Give back an approval whose call was not started."""
        await self._store.tool_calls.release_approval(self._owner, request_id, self._response_id)

    async def release_all(self) -> None:
        """Give back everything, when the turn cannot be made. Nothing is raised."""
        for request_id in self._claimed:
            with suppress(StoreUnavailable):  # then it is used up, which is safe
                await self.release(request_id)
        self._claimed.clear()


class HostedTools:
    """Sets up the hosted tools of turns. One per engine."""

    def __init__(
        self,
        registry: ToolRegistry,
        store: Store,
        now: Callable[[], int],
        defer: Defer,
        note: CallNote,
    ) -> None:
        self.registry = registry
        self._store = store
        self._now = now
        self._defer = defer
        self._note = note

    def refuse_lost_approvals(self, toolbox: Toolbox, own: Sequence[Item]) -> None:
        """Raise InvalidRequest if a call is approved, and nothing in the request can run it."""
        if _MCP not in self.registry.kinds:
            return
        if not any(tool["type"] == _MCP for tool in (*toolbox.hosted, *toolbox.upstream)):
            refuse_lost_approvals(own)

    async def begin(
        self,
        request: CreateResponse,
        owner: str,
        response_id: str,
        toolbox: Toolbox,
        items: Sequence[Item],
        own: Sequence[Item],
        *,
        sees_images: bool = False,
        returns_items: bool = True,
        names_calls: bool = False,
    ) -> HostedSetup:
        """Return what the policy of the turn needs. Raise what a runner raises.

        `returns_items` and `names_calls` are those of `HostedSetup`.
        """
        approvals = TurnApprovals(self._store, owner, response_id, self._now)
        limits = self.registry.limits
        is_stored = request.store is not False
        is_background = bool(request.background)
        sources = ShownSources()
        results: list[ShownResult] = []
        deferred: list[HostedFunction] = []
        inside: list[HostedFunction] = []  # what programs may call
        is_searched = any(tool["type"] == _SEARCH for tool in toolbox.hosted)
        sessions: dict[str, ToolSession] = {}
        try:
            for runner, tools in self._by_runner(toolbox.declared):
                session = await runner.begin(
                    ToolRequest(
                        owner=owner,
                        response_id=response_id,
                        tools=tools,
                        items=items,
                        own=own,
                        programmatic=toolbox.programmatic,
                        callable=None if names_calls else inside,
                        serves_programs=toolbox.serves_programs,
                        hidden=toolbox.hidden,
                        is_searched=is_searched,
                        deferred=deferred,
                        results=results,
                        include=frozenset(request.include or ()),
                        approvals=approvals,
                        sources=sources,
                        limits=limits,
                        is_formatted=_is_formatted(request),
                        is_stored=is_stored,
                        is_background=is_background,
                        keeps_items=returns_items,
                        is_alone=len(tools) == len(request.tools or ()),
                        sees_images=sees_images,
                    )
                )
                sessions |= dict.fromkeys(runner.kinds, session)
        except BaseException:
            await approvals.release_all()
            raise
        intents = self._intents(request, owner, response_id)
        most = limits.calls if request.max_tool_calls is None else request.max_tool_calls
        return HostedSetup(
            sessions=sessions,
            limits=limits,
            intents=intents,
            note=self._note,
            name=response_id,
            most_calls=min(most, limits.calls),
            seconds=limits.background_seconds if is_background else limits.turn_seconds,
            give_up=approvals.release_all,
            patterns=_patterns(sessions.values(), sources),
            results=results,
            deferred=deferred if is_searched else None,
            callable=inside,
            returns_items=returns_items,
            names_calls=names_calls,
        )

    def _by_runner(
        self, declared: Sequence[DeclaredTool]
    ) -> Iterator[tuple[ToolRunner, list[DeclaredTool]]]:
        """Yield the runners that have tools in this request, with their tools."""
        for runner in sorted(self.registry.runners, key=_place):
            tools = [one for one in declared if one.tool["type"] in runner.kinds]
            if tools:
                yield runner, tools

    def _intents(self, request: CreateResponse, owner: str, response_id: str) -> TurnIntents:
        is_stored = request.store is not False
        return TurnIntents(
            self._store.tool_calls,
            owner,
            response_id,
            self._now,
            self._defer,
            is_logged=is_stored and bool(request.stream or request.background),
            is_stored=is_stored,
        )


def _place(runner: ToolRunner) -> int:
    """Return when a runner has its turn."""
    return max((_LAST.index(kind) + 1 for kind in runner.kinds if kind in _LAST), default=0)


def _patterns(sessions: Iterable[ToolSession], sources: ShownSources) -> list[Pattern]:
    """Return what the answer is looked at for."""
    own = dict.fromkeys(sessions)
    patterns = [pattern for session in own for pattern in session.patterns]
    return [Marks(sources), *patterns] if any(session.cites for session in own) else patterns


def _is_formatted(request: CreateResponse) -> bool:
    form = request.text.format if request.text else None
    return form is not None and form.get("type") != "text"
