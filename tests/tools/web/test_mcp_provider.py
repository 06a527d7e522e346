"""A tool of an MCP server as search provider: a real server, and answers of any shape."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from antiphon.gateway.config import load
from antiphon.gateway.tools import open_tools
from antiphon.store.memory import MemoryStore
from antiphon.tools.base import Outcome, ToolFailed
from antiphon.tools.mcp.runner import McpRunner
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.web.formats import Hit, SearchFailed
from antiphon.tools.web.mcp_provider import read_answer
from antiphon.tools.web.search import WebSearch
from tests.tools.web.sessions import begin, call

_SERVER = Path(__file__).with_name("search_server.py")


@asynccontextmanager
async def searching(folder: Path, tool: str) -> AsyncIterator[tuple[WebSearch, ToolRegistry]]:
    """Open the tools of settings that search with a tool of the server."""
    path = folder / "antiphon.toml"
    path.write_text(
        f'[mcp.servers.web]\ncommand = "{sys.executable}"\nargs = ["{_SERVER}"]\n'
        f'connect_seconds = 120.0\n[web_search]\nprovider = "mcp"\nserver = "web"\n'
        f'tool = "{tool}"\nquery_argument = "q"\nseconds = 120.0\n'
    )
    settings = load({"config": str(path)}, {}, folder).settings
    registry = await open_tools(settings, {}, MemoryStore())
    runner = registry.runner_of("web_search")
    assert isinstance(runner, WebSearch)
    try:
        yield runner, registry
    finally:
        await registry.close()


async def test_a_tool_of_a_server_searches_and_domains_are_enforced(tmp_path: Path) -> None:
    async with searching(tmp_path, "find") as (runner, _):
        tool = {"filters": {"allowed_domains": ["one.example"]}}
        outcome = await call(await begin(runner, tool), "web_search", query="tides")
    assert isinstance(outcome, Outcome)
    assert outcome.item["type"] == "web_search_call"
    assert outcome.item["action"]["sources"] == [{"type": "url", "url": "https://one.example/a"}]
    assert isinstance(outcome.result, str)
    assert outcome.result.startswith("【1】 About tides\nhttps://one.example/a\nfirst words")


async def test_a_server_that_is_tool_and_search_has_one_connection(tmp_path: Path) -> None:
    async with searching(tmp_path, "find") as (runner, registry):
        mcp = registry.runner_of("mcp")
        assert isinstance(mcp, McpRunner)
        await call(await begin(runner), "web_search", query="tides")
        assert len(mcp.pool) == 1
        (endpoint,) = mcp.directory.endpoints.values()
        async with mcp.pool.lease("a", endpoint):
            assert len(mcp.pool) == 1


@pytest.mark.parametrize("tool", ["broken", "missing"])
async def test_a_tool_that_fails_is_a_failed_search(tool: str, tmp_path: Path) -> None:
    async with searching(tmp_path, tool) as (runner, _):
        with pytest.raises(ToolFailed, match="the search tool failed"):
            await call(await begin(runner), "web_search", query="tides")


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ('[{"link": "https://a.example", "name": "A"}]', [Hit("https://a.example", "A", "")]),
        (
            '{"web": {"results": [{"url": "https://a.example", "highlights": ["x", "y"]}]}}',
            [Hit("https://a.example", "", "x\ny")],
        ),
        ('{"results": []}', []),
        ("[]", []),
        (
            "Title: One\nURL: https://a.example/1.\nwords\n\n## [Two](https://b.example/2)\nmore",
            [
                Hit("https://a.example/1", "One", "Title: One\nURL: https://a.example/1.\nwords"),
                Hit("https://b.example/2", "Two", "## [Two](https://b.example/2)\nmore"),
            ],
        ),
    ],
)
def test_answers_of_many_shapes_are_read(text: str, hits: list[Hit]) -> None:
    assert read_answer(text) == hits


@pytest.mark.parametrize("text", ["", "rate limit exceeded", "3", '{"error": "quota"}'])
def test_an_answer_without_pages_is_a_failure(text: str) -> None:
    with pytest.raises(SearchFailed, match="named no pages"):
        read_answer(text)
