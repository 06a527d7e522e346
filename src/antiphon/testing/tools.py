"""A hosted tool that plays a script, for tests and demonstrations.

It stands for a tool of an MCP server with the label `test`: a request that declares
`{"type": "mcp", "server_label": "test"}` lets the model call its functions, and the gateway runs
the script. What a call does is a function from the call to steps: progress, an event to wait for,
an error to raise, and a text at the end, which is the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from antiphon.protocol.deltas import Delta, ItemClosed, ItemOpened
from antiphon.tools.base import (
    Ask,
    Decision,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolRequest,
    ToolSession,
)

__all__ = ["ScriptedTool", "ToolStep"]

ToolStep = str | Progress | Exception | asyncio.Event
LABEL = "test"


class ScriptedTool:
    """Runs calls by a script. `calls` are those that were started, in order.

    With `asks`, every call needs the caller's approval. `cancelled` counts calls that were
    cancelled while they ran. `lists` lets it report its functions as an `mcp_list_tools` item.
    """

    def __init__(
        self,
        script: Callable[[HostedCall], Iterable[ToolStep]] = lambda call: ["done"],
        *,
        names: Sequence[str] = ("look",),
        has_effects: bool = True,
        asks: bool = False,
        lists: bool = False,
        seconds: float | None = None,
    ) -> None:
        self.kinds = frozenset({"mcp"})
        self.includes: frozenset[str] = frozenset()
        self.requests: list[ToolRequest] = []
        self.calls: list[HostedCall] = []
        self.cancelled = 0
        self.closed = 0
        self.is_closed = False
        self.at_once = 0
        """How many calls run now."""
        self.most_at_once = 0
        self.functions = [
            HostedFunction(kind="mcp", namespace=LABEL, name=name, description=f"Runs {name}.")
            for name in names
        ]
        self.script = script
        self.has_effects = has_effects
        self.asks = asks
        self.lists = lists
        self.seconds = seconds

    async def begin(self, request: ToolRequest) -> ToolSession:
        """Return the session of a turn."""
        self.requests.append(request)
        return _Session(self)

    async def close(self) -> None:
        """Remember that it was closed."""
        self.is_closed = True


class _Session(ToolSession):
    def __init__(self, tool: ScriptedTool) -> None:
        self._tool = tool

    async def prepare(self) -> AsyncIterator[Delta | HostedFunction]:
        if self._tool.lists:
            listed = {"type": "mcp_list_tools", "server_label": LABEL, "tools": []}
            yield ItemOpened("list", listed)
            tools = [{"name": one.name, "input_schema": {}} for one in self._tool.functions]
            yield ItemClosed("list", listed | {"tools": tools})
        for function in self._tool.functions:
            yield function

    def decide(self, call: HostedCall) -> Decision:
        asked = {"server_label": LABEL, "name": call.function.name, "arguments": call.arguments}
        if self._tool.asks:
            return Ask(item={"type": "mcp_approval_request", **asked})
        item = {"type": "mcp_call", **asked}
        return Start(item=item, has_effects=self._tool.has_effects, seconds=self._tool.seconds)

    async def run(self, call: HostedCall, start: Start) -> AsyncIterator[Progress | Outcome]:
        tool = self._tool
        tool.calls.append(call)
        tool.at_once += 1
        tool.most_at_once = max(tool.most_at_once, tool.at_once)
        try:
            for step in tool.script(call):
                match step:
                    case str():
                        yield Outcome(
                            item=start.item | {"status": "completed", "output": step}, result=step
                        )
                    case Progress():
                        yield step
                    case asyncio.Event():
                        await step.wait()
                    case Exception():
                        raise step
        except asyncio.CancelledError:
            tool.cancelled += 1
            raise
        finally:
            tool.at_once -= 1

    def fail(self, call: HostedCall, start: Start, why: str) -> Outcome:
        error = {"type": "mcp_tool_execution_error", "content": why}
        item = start.item | {"status": "failed", "error": error}
        return Outcome(item=item, result=f"error: {why}", has_failed=True)

    async def close(self) -> None:
        self._tool.closed += 1
