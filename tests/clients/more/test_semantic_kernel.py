"""semantic-kernel, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients.install import SEMANTIC_KERNEL_LOCK
from tests.clients.stage import Performance, Scripts, perform, roles, tool_messages
from tests.clients.turns import COMMON, OUTPUTS, answers_after_result, check_cut_off

SCRIPTS: Final[Scripts] = {
    **COMMON,
    "question-again": [answers_after_result],
    "question-again-streamed": [answers_after_result],
    "chat-tool-loop": COMMON["tool-loop"],
    "chat-streamed": COMMON["tool-loop"],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    folder = tmp_path_factory.mktemp("semantic-kernel")
    return perform("semantic_kernel_python.py", SCRIPTS, folder, SEMANTIC_KERNEL_LOCK)


@pytest.mark.turn("semantic-kernel", "text with instructions", transport="http")
def test_an_agent_answers_with_text(played: Performance) -> None:
    assert played.seen("text") == "Hello there."
    (body,) = played.bodies("text")
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("semantic-kernel", "streaming", transport="http")
def test_an_agent_streams(played: Performance) -> None:
    assert played.seen("streaming") == ["one", " two", " three"]
    assert played.bodies("streaming")[0]["stream"] is True


@pytest.mark.turn("semantic-kernel", "tool loop with parallel calls", transport="http")
def test_an_agent_calls_its_tools(played: Performance) -> None:
    assert played.seen("tool-loop") == "Sun in both."
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn(
    "semantic-kernel", "raises when the upstream is cut off in mid-stream", transport="http"
)
def test_an_answer_that_is_cut_off_is_raised(played: Performance) -> None:
    check_cut_off(played)


@pytest.mark.turn("semantic-kernel", "tool loop with store_enabled", transport="http")
def test_a_stored_conversation_ends_after_two_rounds(played: Performance) -> None:
    """The client repeats the question before the result; the model must see the result last."""
    assert played.seen("question-again") == "Sun in Rome."
    _, second = played.bodies("question-again")
    assert roles(second) == ["user", "user", "assistant", "tool"]
    assert tool_messages(second) == {"call_0": "sun in Rome"}


@pytest.mark.turn("semantic-kernel", "tool loop with store_enabled, streamed", transport="http")
def test_a_streamed_conversation_ends_after_two_rounds(played: Performance) -> None:
    """The client repeats the question before the result; the model must see the result last."""
    assert "".join(played.seen("question-again-streamed")) == "Sun in Rome."
    _, second = played.bodies("question-again-streamed")
    assert roles(second) == ["user", "user", "assistant", "tool"]
    assert tool_messages(second) == {"call_0": "sun in Rome"}


@pytest.mark.turn(
    "semantic-kernel", "tool loop of its chat service, over chat completions", transport="http"
)
def test_the_chat_service_calls_its_tools(played: Performance) -> None:
    seen = played.seen("chat-tool-loop")
    assert seen["text"] == "Sun in both."
    assert seen["id"].startswith("chatcmpl-")
    first, second = played.bodies("chat-tool-loop")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["house-weather"]
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn("semantic-kernel", "tool loop of its chat service, streamed", transport="http")
def test_the_chat_service_calls_its_tools_in_streams(played: Performance) -> None:
    seen = played.seen("chat-streamed")
    assert seen["text"] == "Sun in both."
    assert seen["id"].startswith("chatcmpl-")
    _, second = played.bodies("chat-streamed")
    assert second["stream"] is True
    assert tool_messages(second) == OUTPUTS
