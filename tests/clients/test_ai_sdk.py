"""The AI SDK with both of its providers, unmodified: what its user sees, what went upstream."""

from __future__ import annotations

import json
from typing import Final

import pytest

from antiphon.testing import Call, Cut, Script, Status
from tests.clients.stage import Performance, Scripts, calling, perform, roles, tool_messages

ADA: Final = '{"name": "Ada", "age": 36}'
ROME: Final = '{"city": "Rome"}'
ASK_ROME: Final = Script(calls=[Call("weather", ROME, "call_rome")])
SUN: Final = Script(text="Sun in Rome.")
PATCH: Final = {"type": "create_file", "path": "notes.txt", "diff": "+one\n+two\n"}
THINKING: Final = (Script(reasoning="Look it up.", calls=ASK_ROME.calls), SUN)
BOTH: Final[Scripts] = {
    "generate-text": [Script(text="Hello there.")],
    "stream-text": [Script(text=["one", " two", " three"])],
    "cut-off": [Script(text="one two three four", faults=[Cut(after=3)])],
    "tool-loop": [
        Script(calls=[Call("weather", ROME, "call_rome"), Call("weather", '{"city": "Oslo"}')]),
        Script(text="Sun in both."),
    ],
    "stream-tool-loop": [ASK_ROME, SUN],
    "output-object": [Script(text=ADA)],
    "generate-object": [Script(text=ADA)],
    "image": [Script(text="A square.")],
    "upstream-error": [Script(faults=[Status(400, "the model is out of sorts")])],
    "reasoning": THINKING,
}
SCRIPTS: Final[Scripts] = {
    **{f"openai-{turn}": scripts for turn, scripts in BOTH.items()},
    **{f"open-{turn}": scripts for turn, scripts in BOTH.items()},
    "openai-previous-response": [Script(text="Hello, Ada."), Script(text="Ada.")],
    "openai-no-store": THINKING,
    "openai-custom-tool": [
        calling("sums", '{"input": "2 + 3"}', "call_sum"),
        Script(text="Five."),
    ],
    "openai-shell": [
        calling("shell", '{"commands": ["ls"]}', "call_ls"),
        Script(text="One file."),
    ],
    "openai-local-shell": [
        calling("shell", '{"command": ["ls", "-a"]}', "call_ls"),
        Script(text="One file."),
    ],
    "openai-apply-patch": [
        calling("apply_patch", json.dumps(PATCH), "call_patch"),
        Script(text="Written."),
    ],
    "openai-stream-custom-tool": [
        calling("sums", '{"input": "2 + 3"}', "call_sum"),
        Script(text="Five."),
    ],
    "openai-stream-shell": [
        calling("shell", '{"commands": ["ls"]}', "call_ls"),
        Script(text="One file."),
    ],
    "openai-stream-apply-patch": [
        calling("apply_patch", json.dumps({"operation": PATCH}), "call_patch"),
        Script(text="Written."),
    ],
    "openai-tool-search": [
        calling("tool_search", '{"goal": "weather"}', "call_search"),
        calling("weather", ROME, "call_rome"),
        SUN,
    ],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    return perform("ai_sdk.mjs", SCRIPTS, tmp_path_factory.mktemp("ai-sdk"))


# What both providers do.


def _check_text(played: Performance, provider: str) -> None:
    turn = f"{provider}-generate-text"
    seen = played.seen(turn)
    assert (seen["text"], seen["finishReason"]) == ("Hello there.", "stop")
    assert seen["usage"]["totalTokens"] > 0
    assert seen["warnings"] == []
    (body,) = played.bodies(turn)
    assert [m["content"] for m in body["messages"]] == ["Be short.", "Say hello."]


def _check_stream(played: Performance, provider: str) -> None:
    seen = played.seen(f"{provider}-stream-text")
    assert seen["pieces"] == ["one", " two", " three"]
    assert (seen["text"], seen["finishReason"]) == ("one two three", "stop")


@pytest.mark.parametrize("provider", ["openai", "open"])
def test_an_answer_that_is_cut_off_is_an_error(played: Performance, provider: str) -> None:
    seen = played.seen(f"{provider}-cut-off")
    assert "".join(seen["pieces"]) == "one two"
    assert "upstream_closed" in json.dumps(seen["errors"])
    assert seen["finishReason"] == "error"


def _check_tool_loop(played: Performance, provider: str) -> None:
    turn = f"{provider}-tool-loop"
    seen = played.seen(turn)
    assert seen["text"] == "Sun in both."
    assert sorted(seen["kinds"][0]) == ["tool-call", "tool-call", "tool-result", "tool-result"]
    first, second = played.bodies(turn)
    assert first["tools"][0]["function"]["parameters"]["properties"].keys() == {"city"}
    assert tool_messages(second) == {"call_rome": "sun in Rome", "call_1": "sun in Oslo"}


def _check_streamed_tool_loop(played: Performance, provider: str) -> None:
    turn = f"{provider}-stream-tool-loop"
    seen = played.seen(turn)
    assert (seen["text"], seen["errors"]) == ("Sun in Rome.", [])
    (call,) = seen["calls"]
    assert (call["toolName"], call["input"]) == ("weather", {"city": "Rome"})
    _, second = played.bodies(turn)
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


def _check_object(played: Performance, turn: str) -> None:
    assert played.seen(turn) == json.loads(ADA)
    asked = played.bodies(turn)[0]["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["schema"]["properties"].keys() == {"name", "age"}


def _check_image(played: Performance, provider: str) -> None:
    turn = f"{provider}-image"
    assert played.seen(turn) == "A square."
    text, image = played.bodies(turn)[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "Which shape is this?"}
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


def _check_unknown_model(played: Performance, provider: str) -> None:
    turn = f"{provider}-unknown-model"
    seen = played.seen(turn)
    assert (seen["name"], seen["status"]) == ("AI_APICallError", 404)
    assert turn in seen["message"]
    assert (seen["body"]["code"], seen["body"]["param"]) == ("model_not_found", "model")
    assert played.bodies(turn) == []


def _check_reasoning(played: Performance, provider: str) -> None:
    turn = f"{provider}-reasoning"
    seen = played.seen(turn)
    assert (seen["thought"], seen["text"]) == ("Look it up.", "Sun in Rome.")
    first, second = played.bodies(turn)
    assert first["reasoning_effort"] == "low"
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("ai-sdk", "generateText with instructions", transport="http")
def test_openai_generates_text(played: Performance) -> None:
    _check_text(played, "openai")


@pytest.mark.turn("ai-sdk-open-responses", "generateText with instructions", transport="http")
def test_open_responses_generates_text(played: Performance) -> None:
    _check_text(played, "open")


@pytest.mark.turn("ai-sdk", "streamText", transport="http")
def test_openai_streams_text(played: Performance) -> None:
    _check_stream(played, "openai")


@pytest.mark.turn("ai-sdk-open-responses", "streamText", transport="http")
def test_open_responses_streams_text(played: Performance) -> None:
    _check_stream(played, "open")


@pytest.mark.turn("ai-sdk", "tool loop with parallel calls", transport="http")
def test_openai_runs_its_tools_step_by_step(played: Performance) -> None:
    _check_tool_loop(played, "openai")


@pytest.mark.turn("ai-sdk-open-responses", "tool loop with parallel calls", transport="http")
def test_open_responses_runs_its_tools_step_by_step(played: Performance) -> None:
    _check_tool_loop(played, "open")


@pytest.mark.turn("ai-sdk", "tool loop, streamed", transport="http")
def test_openai_streams_a_tool_loop(played: Performance) -> None:
    _check_streamed_tool_loop(played, "openai")


@pytest.mark.turn("ai-sdk-open-responses", "tool loop, streamed", transport="http")
def test_open_responses_streams_a_tool_loop(played: Performance) -> None:
    _check_streamed_tool_loop(played, "open")


@pytest.mark.turn("ai-sdk", "structured output (Output.object, generateObject)", transport="http")
@pytest.mark.parametrize("way", ["output-object", "generate-object"])
def test_openai_returns_an_object(played: Performance, way: str) -> None:
    _check_object(played, f"openai-{way}")


@pytest.mark.turn(
    "ai-sdk-open-responses", "structured output (Output.object, generateObject)", transport="http"
)
@pytest.mark.parametrize("way", ["output-object", "generate-object"])
def test_open_responses_returns_an_object(played: Performance, way: str) -> None:
    _check_object(played, f"open-{way}")


@pytest.mark.turn("ai-sdk", "image input", transport="http")
def test_openai_shows_an_image(played: Performance) -> None:
    _check_image(played, "openai")


@pytest.mark.turn("ai-sdk-open-responses", "image input", transport="http")
def test_open_responses_shows_an_image(played: Performance) -> None:
    _check_image(played, "open")


@pytest.mark.turn("ai-sdk", "errors of the gateway", transport="http")
def test_openai_throws_what_the_gateway_says(played: Performance) -> None:
    _check_unknown_model(played, "openai")


@pytest.mark.turn("ai-sdk-open-responses", "errors of the gateway", transport="http")
def test_open_responses_throws_what_the_gateway_says(played: Performance) -> None:
    _check_unknown_model(played, "open")


@pytest.mark.turn("ai-sdk", "errors of the upstream", transport="http")
def test_openai_throws_what_the_upstream_said(played: Performance) -> None:
    seen = played.seen("openai-upstream-error")
    assert (seen["name"], seen["status"]) == ("AI_APICallError", 400)
    assert "the model is out of sorts" in seen["message"]


@pytest.mark.turn(
    "ai-sdk-open-responses", "errors of the upstream, in the body of the error", transport="http"
)
def test_open_responses_keeps_what_the_upstream_said(played: Performance) -> None:
    """It shows the message of an error only if the error names a parameter."""
    seen = played.seen("open-upstream-error")
    assert (seen["name"], seen["status"]) == ("AI_APICallError", 400)
    assert "the model is out of sorts" in seen["body"]["message"]
    assert seen["body"]["param"] is None


@pytest.mark.turn("ai-sdk", "reasoning shown and sent back in a tool loop", transport="http")
def test_openai_shows_reasoning(played: Performance) -> None:
    _check_reasoning(played, "openai")


@pytest.mark.turn(
    "ai-sdk-open-responses", "reasoning shown and sent back in a tool loop", transport="http"
)
def test_open_responses_shows_reasoning(played: Performance) -> None:
    _check_reasoning(played, "open")


# What only @ai-sdk/openai does.


@pytest.mark.turn("ai-sdk", "previousResponseId", transport="http")
def test_a_turn_goes_on_from_a_response(played: Performance) -> None:
    seen = played.seen("openai-previous-response")
    assert seen["id"].startswith("resp_")
    assert seen["text"] == "Ada."
    _, second = played.bodies("openai-previous-response")
    assert roles(second) == ["user", "assistant", "user"]


@pytest.mark.turn("ai-sdk", "store: false with encrypted reasoning", transport="http")
def test_a_tool_loop_runs_without_a_store(played: Performance) -> None:
    seen = played.seen("openai-no-store")
    assert seen["text"] == "Sun in Rome."
    assert "reasoning" in seen["kinds"][0]
    _, second = played.bodies("openai-no-store")
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("ai-sdk", "custom tool with a grammar", transport="http")
def test_a_custom_tool_hears_free_text(played: Performance) -> None:
    assert played.seen("openai-custom-tool") == {"text": "Five.", "heard": ["2 + 3"]}
    _, second = played.bodies("openai-custom-tool")
    assert tool_messages(second) == {"call_sum": "5"}


@pytest.mark.turn("ai-sdk", "shell tool, run locally", transport="http")
def test_a_shell_tool_is_run_here(played: Performance) -> None:
    assert played.seen("openai-shell") == {"text": "One file.", "heard": [["ls"]]}
    _, second = played.bodies("openai-shell")
    assert "notes.txt" in tool_messages(second)["call_ls"]


@pytest.mark.turn("ai-sdk", "localShell tool", transport="http")
def test_a_local_shell_is_run_here(played: Performance) -> None:
    assert played.seen("openai-local-shell") == {"text": "One file.", "heard": [["ls", "-a"]]}
    _, second = played.bodies("openai-local-shell")
    assert "notes.txt" in tool_messages(second)["call_ls"]


@pytest.mark.turn("ai-sdk", "applyPatch tool", transport="http")
def test_a_patch_is_applied_here(played: Performance) -> None:
    assert played.seen("openai-apply-patch") == {"text": "Written.", "done": [PATCH]}
    _, second = played.bodies("openai-apply-patch")
    assert "did notes.txt" in tool_messages(second)["call_patch"]


@pytest.mark.turn("ai-sdk", "custom tool, streamed", transport="http")
def test_the_input_of_a_custom_tool_is_streamed(played: Performance) -> None:
    seen = played.seen("openai-stream-custom-tool")
    assert seen == {"text": "Five.", "input": "2 + 3", "errors": []}
    _, second = played.bodies("openai-stream-custom-tool")
    assert tool_messages(second) == {"call_sum": "5"}


@pytest.mark.turn("ai-sdk", "shell tool, streamed", transport="http")
def test_a_shell_call_is_streamed(played: Performance) -> None:
    seen = played.seen("openai-stream-shell")
    assert (seen["text"], seen["errors"]) == ("One file.", [])
    _, second = played.bodies("openai-stream-shell")
    assert "notes.txt" in tool_messages(second)["call_ls"]


@pytest.mark.turn("ai-sdk", "applyPatch tool, streamed", transport="http")
def test_a_patch_is_streamed_with_its_path(played: Performance) -> None:
    seen = played.seen("openai-stream-apply-patch")
    assert (seen["text"], seen["errors"]) == ("Written.", [])
    assert json.loads(seen["input"])["operation"] == PATCH
    _, second = played.bodies("openai-stream-apply-patch")
    assert "did notes.txt" in tool_messages(second)["call_patch"]


@pytest.mark.turn("ai-sdk", "toolSearch run by the client", transport="http")
def test_a_tool_that_was_searched_for_is_called(played: Performance) -> None:
    seen = played.seen("openai-tool-search")
    assert seen == {"text": "Sun in Rome.", "heard": [{"goal": "weather"}]}
    first, second, third = played.bodies("openai-tool-search")
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert "weather" not in names
    assert "weather" in [tool["function"]["name"] for tool in second["tools"]]
    assert tool_messages(third).keys() == {"call_search", "call_rome"}
