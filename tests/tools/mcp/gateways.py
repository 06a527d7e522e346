"""Gateways with MCP servers, and models that call their tools."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.assemble import ServerSettings
from antiphon.gateway.mcp import open_mcp
from antiphon.plans.plan import Plan
from antiphon.protocol.deltas import CallMade, Stopped, TextGrew
from antiphon.protocol.items import item_type
from antiphon.store.base import Store
from antiphon.store.memory import MemoryStore
from antiphon.testing.gateway import Gateway, serve_gateway
from antiphon.tools.base import ToolLimits, ToolRunner
from antiphon.tools.mcp.settings import McpServer, McpSettings

__all__ = ["answer_of", "approve", "calling", "kinds", "mcp_gateway", "model", "tool"]

STOP = Stopped("stop")
# A server is a Python that starts and imports the SDK: on a busy machine that takes long.
PATIENT = ToolLimits(list_seconds=120)


def tool(label: str = "desk", **fields: Any) -> dict[str, Any]:
    """Return a tool of a request."""
    return {"type": "mcp", "server_label": label, **fields}


def calling(*calls: tuple[str, Mapping[str, Any] | str]) -> list[Step]:
    """Return a round that calls functions by their aliases."""
    made = [
        CallMade(name, given if isinstance(given, str) else json.dumps(given), f"c{number}")
        for number, (name, given) in enumerate(calls)
    ]
    return [[*made, STOP]]


def model(
    *calls: tuple[str, Mapping[str, Any] | str], parts: frozenset[str] = frozenset()
) -> ScriptedBackend:
    """Return a model that makes these calls once for each user message, then answers."""

    def play(plan: Plan) -> list[Step]:
        answered = [item for item in plan.items if item_type(item) == "function_call_output"]
        last = plan.items[-1]
        if item_type(last) == "message" and last.get("role") == "user":
            return calling(*calls)
        said = str(answered[-1]["output"]) if answered else "nothing"
        return [TextGrew(f"It said: {said}"), STOP]

    return ScriptedBackend(play, parts=parts)


@asynccontextmanager
async def mcp_gateway(
    backend: ScriptedBackend | Callable[[Plan], Sequence[Step]],
    servers: Mapping[str, McpServer],
    *,
    store: Store | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    settings_of: ServerSettings | None = None,
    limits: ToolLimits = PATIENT,
    tools: Sequence[ToolRunner] = (),
) -> AsyncIterator[Gateway]:
    """Run a gateway that may use these servers, and run these other tools."""
    given = store or MemoryStore()
    mcp = McpSettings(servers=dict(servers), **(settings or {}))
    runner = await open_mcp(mcp, environ or {}, given, "ap-")
    assert runner is not None
    model_side = backend if isinstance(backend, ScriptedBackend) else ScriptedBackend(backend)
    async with serve_gateway(
        model_side, store=given, tools=[*tools, runner], settings=settings_of, tool_limits=limits
    ) as gateway:
        yield gateway


def kinds(response: Mapping[str, Any]) -> list[str]:
    """Return the types of the items of a response."""
    return [item["type"] for item in response["output"]]


def answer_of(response: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the only item of a type."""
    (found,) = (item for item in response["output"] if item["type"] == kind)
    return dict(found)


def approve(request: Mapping[str, Any], *, yes: bool = True, **fields: Any) -> dict[str, Any]:
    """Return the answer to a request for approval."""
    return {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": yes,
        **fields,
    }
