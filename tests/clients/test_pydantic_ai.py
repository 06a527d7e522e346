"""pydantic-ai, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

from typing import Final

import pytest

from antiphon.testing import Call, Script
from tests.clients.stage import Performance, Scripts, calling, perform, roles, tool_messages

ROME: Final = '{"city": "Rome"}'
ASK_ROME: Final = Script(calls=[Call("weather", ROME, "call_rome")])
SCRIPTS: Final[Scripts] = {
    "text": [Script(text="Hello there.")],
    "tool-loop": [
        Script(calls=[Call("weather", ROME, "call_rome"), Call("weather", '{"city": "Oslo"}')]),
        Script(text="Sun in both."),
    ],
    "streaming": [ASK_ROME, Script(text=["Sun", " in", " Rome."])],
    "output-type": [calling("final_result", '{"name": "Ada", "age": 36}', "call_final")],
    "history": [
        Script(reasoning="Look it up.", calls=ASK_ROME.calls),
        Script(text="Sun."),
        Script(text="Still sun."),
    ],
    "previous-response": [ASK_ROME, Script(text="Sun."), Script(text="Still sun.")],
    "image": [Script(text="A square.")],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    return perform("pydantic_ai_python.py", SCRIPTS, tmp_path_factory.mktemp("pydantic-ai"))


@pytest.mark.turn("pydantic-ai", "text with instructions", transport="http")
def test_a_run_answers_with_text(played: Performance) -> None:
    seen = played.seen("text")
    assert seen["text"] == "Hello there."
    assert seen["tokens"] > 0
    (body,) = played.bodies("text")
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


@pytest.mark.turn("pydantic-ai", "tool loop with parallel calls", transport="http")
def test_a_run_calls_its_tools(played: Performance) -> None:
    assert played.seen("tool-loop") == "Sun in both."
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == {"call_rome": "sun in Rome", "call_1": "sun in Oslo"}


@pytest.mark.turn("pydantic-ai", "streaming after a tool", transport="http")
def test_a_run_streams(played: Performance) -> None:
    assert "".join(played.seen("streaming")) == "Sun in Rome."
    _, second = played.bodies("streaming")
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("pydantic-ai", "structured output by a forced tool", transport="http")
def test_an_output_type_is_returned(played: Performance) -> None:
    assert played.seen("output-type") == {"name": "Ada", "age": 36}
    (body,) = played.bodies("output-type")
    assert body["tool_choice"] == "required"


@pytest.mark.turn("pydantic-ai", "history with reasoning sent back", transport="http")
def test_history_is_sent_back(played: Performance) -> None:
    seen = played.seen("history")
    assert seen == {"texts": ["Sun.", "Still sun."], "thoughts": ["Look it up."]}
    *_, last = played.bodies("history")
    assert roles(last) == ["user", "assistant", "tool", "assistant", "user"]
    assert tool_messages(last) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("pydantic-ai", "openai_previous_response_id='auto'", transport="http")
def test_a_run_goes_on_from_a_response(played: Performance) -> None:
    assert played.seen("previous-response") == ["Sun.", "Still sun."]
    *_, last = played.bodies("previous-response")
    assert roles(last) == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.turn("pydantic-ai", "image input", transport="http")
def test_an_image_is_shown(played: Performance) -> None:
    assert played.seen("image") == "A square."
    text, image = played.bodies("image")[0]["messages"][0]["content"]
    assert text["text"] == "Which shape is this?"
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
