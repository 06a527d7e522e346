"""Real clients with tools that the gateway runs: what they read, and what they send back.

The AI SDK sends hosted items back as references if they are stored, and drops most of them if
they are not. openai-agents sends whole items, pydantic-ai the text alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest

from antiphon.testing import Call, Script
from antiphon.tools.base import ToolRunner
from antiphon.tools.image_api import ImagesUpstream
from antiphon.tools.images import ImageGeneration
from antiphon.transport.secret import Secret
from tests.clients.stage import Performance, perform, roles
from tests.images_upstream import KEY, images_upstream
from tests.tools.web.sessions import make_runner
from tests.web import loopback_web

SEARCH: Final = Call("web_search", '{"query": "severn tidal range"}')
IMAGE: Final = Call("image_generation", '{"prompt": "a bore"}')
TURN: Final = [
    Script(calls=[SEARCH, IMAGE]),
    Script(text=["About fifteen metres【", "1】."]),
    Script(text="Fifteen."),
]


@asynccontextmanager
async def hosting() -> AsyncIterator[Sequence[ToolRunner]]:
    async with loopback_web() as web, images_upstream() as images:
        pictures = ImageGeneration(ImagesUpstream(images.url, Secret(KEY), model=None), seconds=60)
        yield [make_runner(web), pictures]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    scripts = {"stored": TURN, "not-stored": TURN}
    folder = tmp_path_factory.mktemp("ai-sdk-hosted")
    return perform("ai_sdk_hosted.mjs", scripts, folder, tools=hosting)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    scripts = {"agents": TURN, "pydantic": TURN}
    folder = tmp_path_factory.mktemp("python-hosted")
    return perform("hosted_python.py", scripts, folder, tools=hosting)


@pytest.mark.turn("ai-sdk", "web search and image by the gateway, cited", transport="http")
@pytest.mark.parametrize("turn", ["stored", "not-stored"])
def test_the_ai_sdk_reads_a_search_an_image_and_a_citation(turn: str, node: Performance) -> None:
    seen = node.seen(turn)
    assert seen["errors"] == []
    assert seen["text"].startswith("About fifteen metres ([127.0.0.1](http://127.0.0.1:")
    assert any(url.endswith("/tides") for url in seen["sources"])
    assert {"tool-call", "tool-result", "source"} <= set(seen["kinds"])
    assert seen["again"] == {"text": "Fifteen.", "errors": []}


@pytest.mark.parametrize("turn", ["stored", "not-stored"])
def test_the_next_turn_of_the_ai_sdk_has_what_it_sends(turn: str, node: Performance) -> None:
    _, _, third = node.bodies(turn)
    assert roles(third)[-1] == "user"
    said = [str(message["content"]) for message in third["messages"]]
    assert any("About fifteen metres" in text for text in said)
    assert "tool" in roles(third)


@pytest.mark.turn("agents", "web search and image by the gateway, cited", transport="http")
def test_agents_read_hosted_items_and_go_on(python: Performance) -> None:
    _check_python_client("agents", python)


@pytest.mark.turn("pydantic-ai", "web search and image by the gateway, cited", transport="http")
def test_pydantic_ai_reads_hosted_items_and_goes_on(python: Performance) -> None:
    _check_python_client("pydantic", python)


def _check_python_client(turn: str, python: Performance) -> None:
    seen = python.seen(turn)
    assert "About fifteen metres ([127.0.0.1](http://127.0.0.1:" in str(seen["text"])
    assert "Fifteen." in str(seen["again"])
    _, _, third = python.bodies(turn)
    # pydantic-ai sends the text alone, openai-agents the items too.
    assert ("tool" in roles(third)) == (turn == "agents")
    assert any("About fifteen metres" in str(one["content"]) for one in third["messages"])
