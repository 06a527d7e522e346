"""Real clients with files that the gateway searches: what they read, and what they send back.

The AI SDK sends a search back as a reference if it is stored, and drops it if it is not.
openai-agents sends the whole item with its results, pydantic-ai what it makes of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from antiphon.store.memory import MemoryStore
from antiphon.testing import Call, Script
from antiphon.tools.base import ToolRunner
from antiphon.tools.file_search import FileSearch
from antiphon.tools.index.file_index import FileIndex
from tests.clients.stage import Performance, perform, roles
from tests.tools.index.filled import fill

FILES: Final = {
    "file-tides": "The tidal range of the Severn is about fifteen metres.",
    "file-bread": "Bread is made of flour.",
}
TEXT: Final = "About fifteen metres."
TURN: Final = [
    Script(calls=[Call("file_search", '{"queries": ["severn tidal range"]}')]),
    Script(text=["About fifteen metres【", "1】."]),
    Script(text="Fifteen."),
]


@asynccontextmanager
async def hosting() -> AsyncIterator[Sequence[ToolRunner]]:
    store = MemoryStore()
    await fill(store, FILES, owner="local")
    yield [FileSearch(FileIndex(store).searcher)]
    await store.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    scripts = {"stored": TURN, "not-stored": TURN}
    folder = tmp_path_factory.mktemp("ai-sdk-files")
    return perform("ai_sdk_files.mjs", scripts, folder, tools=hosting)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    scripts = {"agents": TURN, "pydantic": TURN}
    folder = tmp_path_factory.mktemp("python-files")
    return perform("file_search_python.py", scripts, folder, tools=hosting)


@pytest.mark.parametrize("turn", ["stored", "not-stored"])
def test_the_ai_sdk_reads_a_search_and_a_citation(turn: str, node: Performance) -> None:
    seen = node.seen(turn)
    assert seen["errors"] == []
    assert seen["text"] == TEXT
    assert seen["sources"] == [["document", "file-tides.md"]]
    assert {"tool-call", "tool-result", "source"} <= set(seen["kinds"])
    (output,) = seen["outputs"]
    assert output["queries"] == ["severn tidal range"]
    assert [one["fileId"] for one in output["results"]] == ["file-tides"]
    assert seen["again"] == {"text": "Fifteen.", "errors": []}


@pytest.mark.parametrize(("turn", "has_search"), [("stored", True), ("not-stored", False)])
def test_the_next_turn_of_the_ai_sdk_has_what_it_sends(
    turn: str, has_search: bool, node: Performance
) -> None:
    _, _, third = node.bodies(turn)
    assert roles(third)[-1] == "user"
    assert any(TEXT in str(message["content"]) for message in third["messages"])
    assert ("tool" in roles(third)) == has_search


@pytest.mark.parametrize("turn", ["agents", "pydantic"])
def test_python_clients_read_a_search_and_go_on(turn: str, python: Performance) -> None:
    seen = python.seen(turn)
    assert seen["text"] == TEXT
    assert seen["again"] == "Fifteen."
    _, _, third = python.bodies(turn)
    assert any(TEXT in str(message["content"]) for message in third["messages"])


def test_openai_agents_replays_the_search_with_its_results(python: Performance) -> None:
    seen = python.seen("agents")
    assert seen["files"] == ["file-tides"]
    assert seen["notes"] == [["file_citation", "file-tides", TEXT.index(".")]]
    _, _, third = python.bodies("agents")
    told = [str(one["content"]) for one in third["messages"] if one["role"] == "tool"]
    assert len(told) == 1
    assert "tidal range of the Severn" in told[0]


def test_pydantic_ai_has_the_search_in_its_history(python: Performance) -> None:
    kinds = python.seen("pydantic")["kinds"]
    assert {"builtin-tool-call", "builtin-tool-return"} <= set(kinds)
