"""llm at its command line, unmodified: what it prints, and what the upstream was sent."""

from __future__ import annotations

from typing import Final

import pytest

from antiphon.testing import Call, Script
from tests.clients.stage import Performance, Scripts, perform, roles, tool_messages

SCRIPTS: Final[Scripts] = {
    "text": [Script(text="Hello there.")],
    "no-stream": [Script(text="Hello there.")],
    "continued": [Script(text="Hello, Ada."), Script(text="Ada.")],
    "tool-loop": [
        Script(calls=[Call("weather", '{"city": "Rome"}', "call_rome")]),
        Script(text="Sun in Rome."),
    ],
    "schema": [Script(text='{"name": "Ada", "age": 36}')],
    "image": [Script(text="A square.")],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    return perform("llm_python.py", SCRIPTS, tmp_path_factory.mktemp("llm"))


@pytest.mark.turn("llm", "a prompt with a system prompt, streamed or not", transport="http")
@pytest.mark.parametrize("turn", ["text", "no-stream"])
def test_a_prompt_is_answered(played: Performance, turn: str) -> None:
    assert played.seen(turn) == "Hello there."
    (body,) = played.bodies(turn)
    assert body["stream"] is (turn == "text")
    assert body["messages"][-1] == {"role": "user", "content": "Say hello."}
    assert roles(body) == (["system", "user"] if turn == "text" else ["user"])


@pytest.mark.turn("llm", "a conversation that goes on (-c)", transport="http")
def test_a_conversation_goes_on(played: Performance) -> None:
    assert played.seen("continued") == ["Hello, Ada.", "Ada."]
    _, second = played.bodies("continued")
    assert roles(second) == ["user", "assistant", "user"]


@pytest.mark.turn("llm", "tool loop (--functions)", transport="http")
def test_a_function_is_called(played: Performance) -> None:
    assert played.seen("tool-loop").endswith("Sun in Rome.")
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("llm", "structured output (--schema)", transport="http")
def test_a_schema_is_kept(played: Performance) -> None:
    assert played.seen("schema") == {"name": "Ada", "age": 36}
    asked = played.bodies("schema")[0]["response_format"]["json_schema"]
    assert asked["schema"]["properties"].keys() == {"name", "age"}


@pytest.mark.turn("llm", "image input (--at)", transport="http")
def test_an_image_is_shown(played: Performance) -> None:
    assert played.seen("image") == "A square."
    content = played.bodies("image")[0]["messages"][0]["content"]
    (image,) = [part for part in content if part["type"] == "image_url"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
