"""Which runner runs which kind of tool."""

from __future__ import annotations

import pytest

from antiphon.tools.base import ToolRequest, ToolSession
from antiphon.tools.registry import NO_TOOLS, ToolRegistry


class Runner:
    """Runs kinds of tools that it is given."""

    def __init__(self, *kinds: str, includes: frozenset[str] = frozenset()) -> None:
        self.kinds = frozenset(kinds)
        self.includes = includes
        self.is_closed = False

    async def begin(self, request: ToolRequest) -> ToolSession:
        return ToolSession()

    async def close(self) -> None:
        self.is_closed = True


def test_each_kind_has_its_runner() -> None:
    search, servers = Runner("web_search", includes=frozenset({"a"})), Runner("mcp")
    registry = ToolRegistry([search, servers])
    assert registry.kinds == {"web_search", "mcp"}
    assert registry.includes == {"a"}
    assert registry.runner_of("mcp") is servers
    assert NO_TOOLS.kinds == frozenset()


def test_two_runners_of_one_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="'mcp'"):
        ToolRegistry([Runner("mcp"), Runner("mcp", "web_search")])


async def test_closing_the_registry_closes_every_runner() -> None:
    runners = [Runner("mcp"), Runner("web_search")]
    await ToolRegistry(runners).close()
    assert all(runner.is_closed for runner in runners)


async def test_a_session_offers_nothing_by_itself() -> None:
    assert [found async for found in ToolSession().prepare()] == []
