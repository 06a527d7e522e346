"""agno, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

from typing import Final

import pytest

from tests.clients.stage import Performance, Scripts, perform, tool_messages
from tests.clients.turns import COMMON, CUT_OFF, OUTPUTS, check_cut_off

SCRIPTS: Final[Scripts] = {**COMMON, "cut-off-run": [CUT_OFF]}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    folder = tmp_path_factory.mktemp("agno")
    return perform("agno_python.py", SCRIPTS, folder)


@pytest.mark.turn("agno", "text with instructions", transport="http")
def test_an_agent_answers_with_text(played: Performance) -> None:
    assert played.seen("text") == {"text": "Hello there.", "status": "COMPLETED"}
    (body,) = played.bodies("text")
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("agno", "streaming", transport="http")
def test_an_agent_streams(played: Performance) -> None:
    seen = played.seen("streaming")
    pieces = [content for event, content in seen if event == "RunContent" and content]
    assert pieces == ["one", " two", " three"]
    assert "RunCompleted" in dict(seen)
    assert played.bodies("streaming")[0]["stream"] is True


@pytest.mark.turn("agno", "tool loop with parallel calls", transport="http")
def test_an_agent_calls_its_tools(played: Performance) -> None:
    assert played.seen("tool-loop") == {"text": "Sun in both.", "status": "COMPLETED"}
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == OUTPUTS


@pytest.mark.turn("agno", "raises when the upstream is cut off in mid-stream", transport="http")
def test_an_answer_that_is_cut_off_is_raised(played: Performance) -> None:
    check_cut_off(played)


@pytest.mark.turn("agno", "a run that is cut off in mid-stream ends in RunError", transport="http")
def test_a_run_that_is_cut_off_ends_in_an_error(played: Performance) -> None:
    event, message = played.seen("cut-off-run")[-1]
    assert event == "RunError"
    assert "its answer is cut off" in message
