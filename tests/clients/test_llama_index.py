"""llama-index-llms-openai, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

import pytest

from tests.clients.install import OPENAI2_LOCK
from tests.clients.stage import Performance, perform, tool_messages
from tests.clients.turns import COMMON, OUTPUTS, check_cut_off


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    folder = tmp_path_factory.mktemp("llama-index")
    return perform("llama_index_python.py", COMMON, folder, OPENAI2_LOCK)


@pytest.mark.turn("llama-index", "text with a system message", transport="http")
def test_a_model_answers_with_text(played: Performance) -> None:
    assert played.seen("text") == "Hello there."
    (body,) = played.bodies("text")
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("llama-index", "streaming", transport="http")
def test_a_model_streams(played: Performance) -> None:
    assert played.seen("streaming") == ["one", " two", " three"]
    assert played.bodies("streaming")[0]["stream"] is True


@pytest.mark.turn("llama-index", "tool loop with parallel calls", transport="http")
def test_a_model_calls_its_tools(played: Performance) -> None:
    assert played.seen("tool-loop") == "Sun in both."
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn(
    "llama-index", "raises when the upstream is cut off in mid-stream", transport="http"
)
def test_an_answer_that_is_cut_off_is_raised(played: Performance) -> None:
    check_cut_off(played)
