"""@langchain/openai, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients.stage import Performance, Scripts, perform, tool_messages
from tests.clients.turns import COMMON, OUTPUTS, check_cut_off

SCRIPTS: Final[Scripts] = {
    **COMMON,
    "chat-tool-loop": COMMON["tool-loop"],
    "chat-streamed": COMMON["tool-loop"],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    folder = tmp_path_factory.mktemp("langchain-openai-js")
    return perform("langchain_node.mjs", SCRIPTS, folder)


@pytest.mark.turn("langchain-openai-js", "text with a system message", transport="http")
def test_a_chat_model_answers_with_text(played: Performance) -> None:
    assert played.seen("text")["text"] == "Hello there."
    (body,) = played.bodies("text")
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("langchain-openai-js", "streaming", transport="http")
def test_a_chat_model_streams(played: Performance) -> None:
    assert played.seen("streaming") == ["one", " two", " three"]
    assert played.bodies("streaming")[0]["stream"] is True


@pytest.mark.turn("langchain-openai-js", "tool loop with parallel calls", transport="http")
def test_a_chat_model_calls_its_tools(played: Performance) -> None:
    assert played.seen("tool-loop") == "Sun in both."
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn(
    "langchain-openai-js", "tool loop over chat completions, its default", transport="http"
)
def test_a_chat_model_calls_its_tools_without_the_flag(played: Performance) -> None:
    seen = played.seen("chat-tool-loop")
    assert seen["text"] == "Sun in both."
    assert seen["id"].startswith("chatcmpl-")
    first, second = played.bodies("chat-tool-loop")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather"]
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn(
    "langchain-openai-js", "tool loop over chat completions, streamed", transport="http"
)
def test_a_chat_model_calls_its_tools_in_streams_without_the_flag(played: Performance) -> None:
    seen = played.seen("chat-streamed")
    assert seen["text"] == "Sun in both."
    assert seen["id"].startswith("chatcmpl-")
    _, second = played.bodies("chat-streamed")
    assert second["stream"] is True
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn(
    "langchain-openai-js", "raises when the upstream is cut off in mid-stream", transport="http"
)
def test_an_answer_that_is_cut_off_is_raised(played: Performance) -> None:
    check_cut_off(played)
