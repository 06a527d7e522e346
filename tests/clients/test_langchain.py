"""langchain-openai, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

from typing import Final

import pytest

from antiphon.testing import Call, Script
from tests.clients.stage import Performance, Scripts, calling, perform, tool_messages
from tests.clients.turns import COMMON, OUTPUTS

ROME: Final = '{"city": "Rome"}'
ASK_ROME: Final = Script(calls=[Call("weather", ROME, "call_rome")])
SUN: Final = Script(text="Sun in Rome.")
SCRIPTS: Final[Scripts] = {
    "text": [Script(text="Hello there.")],
    "streaming": [Script(text=["one", " two", " three"])],
    "tool-loop": [
        Script(calls=[Call("weather", ROME, "call_rome"), Call("weather", '{"city": "Oslo"}')]),
        Script(text="Sun in both."),
    ],
    "previous-response": [ASK_ROME, SUN],
    "reasoning": [Script(reasoning="Look it up.", calls=ASK_ROME.calls), SUN],
    "structured": [Script(text='{"name": "Ada", "age": 36}')],
    "chat-tool-loop": COMMON["tool-loop"],
    "chat-streamed": COMMON["tool-loop"],
    "custom-tool": [calling("sums", '{"input": "2 + 3"}', "call_sum"), Script(text="Five.")],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    return perform("langchain_python.py", SCRIPTS, tmp_path_factory.mktemp("langchain"))


@pytest.mark.turn("langchain-openai", "text with a system message", transport="http")
def test_a_chat_model_answers_with_text(played: Performance) -> None:
    seen = played.seen("text")
    assert seen["text"] == "Hello there."
    assert seen["usage"]["total_tokens"] > 0
    (body,) = played.bodies("text")
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("langchain-openai", "streaming", transport="http")
def test_a_chat_model_streams(played: Performance) -> None:
    assert played.seen("streaming") == ["one", " two", " three"]
    assert played.bodies("streaming")[0]["stream"] is True


@pytest.mark.turn("langchain-openai", "tool loop with parallel calls", transport="http")
def test_tools_are_called(played: Performance) -> None:
    assert played.seen("tool-loop") == "Sun in both."
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == {"call_rome": "sun in Rome", "call_1": "sun in Oslo"}


@pytest.mark.turn("langchain-openai", "use_previous_response_id", transport="http")
def test_a_turn_goes_on_from_a_response(played: Performance) -> None:
    assert played.seen("previous-response") == "Sun in Rome."
    _, second = played.bodies("previous-response")
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("langchain-openai", "reasoning, streamed and sent back", transport="http")
def test_reasoning_is_shown_and_sent_back(played: Performance) -> None:
    assert played.seen("reasoning") == {"thought": "Look it up.", "text": "Sun in Rome."}
    first, second = played.bodies("reasoning")
    assert first["reasoning_effort"] == "low"
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("langchain-openai", "with_structured_output", transport="http")
def test_structured_output_is_returned(played: Performance) -> None:
    assert played.seen("structured") == {"name": "Ada", "age": 36}
    asked = played.bodies("structured")[0]["response_format"]["json_schema"]
    assert asked["schema"]["properties"].keys() == {"name", "age"}


@pytest.mark.turn("langchain-openai", "custom_tool", transport="http")
def test_a_custom_tool_hears_free_text(played: Performance) -> None:
    assert played.seen("custom-tool") == "Five."
    _, second = played.bodies("custom-tool")
    assert tool_messages(second) == {"call_sum": "5"}


@pytest.mark.turn(
    "langchain-openai", "tool loop over chat completions, its default", transport="http"
)
def test_tools_are_called_without_the_flag_for_responses(played: Performance) -> None:
    seen = played.seen("chat-tool-loop")
    assert seen["text"] == "Sun in both."
    assert seen["id"].startswith("chatcmpl-")
    first, second = played.bodies("chat-tool-loop")
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather"]
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn("langchain-openai", "tool loop over chat completions, streamed", transport="http")
def test_tools_are_called_in_streams_without_the_flag(played: Performance) -> None:
    assert played.seen("chat-streamed") == {"text": "Sun in both.", "finish_reason": "stop"}
    _, second = played.bodies("chat-streamed")
    assert second["stream"] is True
    assert tool_messages(second) == OUTPUTS
