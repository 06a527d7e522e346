"""Ways to run calls of the web tools without a gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol.items import Item
from antiphon.tools.base import (
    Decline,
    HostedCall,
    HostedFunction,
    Outcome,
    Start,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.web.formats import FORMATS
from antiphon.tools.web.pages import PageLimits, PageReader
from antiphon.tools.web.providers import HttpProvider
from antiphon.tools.web.search import WebSearch
from antiphon.transport.secret import Secret
from tests.web import KEY, LoopbackWeb

__all__ = ["NoApprovals", "begin", "call", "make_runner"]


def make_runner(
    web: LoopbackWeb,
    provider: str = "brave",
    *,
    key: str = KEY,
    limits: PageLimits | None = None,
    seconds: float = 60.0,
    **settings: Any,
) -> WebSearch:
    """Return a runner that searches with this provider of the loopback web, and reads its site."""
    form = FORMATS[provider]
    http = HttpProvider(form, f"{web.url}/{provider}", Secret(key), seconds, proxies=False)
    pages = PageReader(limits or PageLimits(seconds=60), frozenset({web.place}))
    return WebSearch(http, pages, **settings)


class NoApprovals:
    """The approvals of an owner who has given none."""

    async def find(self, request_id: str) -> Item | None:
        """Find nothing."""
        return None

    async def is_spent(self, request_id: str) -> bool:
        """Know of none that was used."""
        return False

    async def claim(self, request_id: str) -> bool:
        """Claim nothing."""
        return False

    async def release(self, request_id: str) -> None:
        """Give nothing back."""


async def begin(
    runner: WebSearch, tool: dict[str, Any] | None = None, items: Sequence[Item] = ()
) -> ToolSession:
    """Begin a turn with this search tool."""
    declared = DeclaredTool({"type": "web_search", **(tool or {})}, "tools[0]")
    request = ToolRequest(
        owner="a",
        response_id="resp_1",
        tools=[declared],
        items=items,
        own=items,
        approvals=NoApprovals(),
    )
    return await runner.begin(request)


async def call(session: ToolSession, name: str, **arguments: Any) -> Outcome | Decline:
    """Call a function of the session, as the loop does."""
    functions = {
        one.name: one async for one in session.prepare() if isinstance(one, HostedFunction)
    }
    made = HostedCall(
        function=functions[name], arguments=msgspec.json.encode(arguments).decode(), call_id="c"
    )
    decision = session.decide(made)
    if not isinstance(decision, Start):
        assert isinstance(decision, Decline)
        return decision
    steps = [step async for step in session.run(made, decision)]
    outcome = steps[-1]
    assert isinstance(outcome, Outcome)
    return outcome
