"""@mastra/core, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients.install import MASTRA_LOCK
from tests.clients.stage import Performance, Scripts, perform, tool_messages
from tests.clients.turns import COMMON, OUTPUTS

SCRIPTS: Final[Scripts] = {**COMMON, "chat-streamed": COMMON["tool-loop"]}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    folder = tmp_path_factory.mktemp("mastra")
    return perform("mastra_node.mjs", SCRIPTS, folder, MASTRA_LOCK)


@pytest.mark.turn("mastra", "text with instructions", transport="http")
def test_an_agent_answers_with_text(played: Performance) -> None:
    assert played.seen("text") == "Hello there."
    (body,) = played.bodies("text")
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("mastra", "tool loop with parallel calls", transport="http")
def test_an_agent_calls_its_tools(played: Performance) -> None:
    seen = played.seen("tool-loop")
    assert seen["text"] == "Sun in both."
    assert seen["id"].startswith("chatcmpl-")
    first, second = played.bodies("tool-loop")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather"]
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn("mastra", "tool loop with parallel calls, streamed", transport="http")
def test_an_agent_calls_its_tools_in_streams(played: Performance) -> None:
    seen = played.seen("chat-streamed")
    assert "".join(seen["pieces"]) == "Sun in both."
    assert seen["id"].startswith("chatcmpl-")
    _, second = played.bodies("chat-streamed")
    assert second["stream"] is True
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn("mastra", "`error` names an answer that is cut off", transport="http")
def test_an_answer_that_is_cut_off_has_an_error(played: Performance) -> None:
    assert "its answer is cut off" in played.seen("cut-off")
    assert len(played.bodies("cut-off")) == 1, "the question was sent again"
