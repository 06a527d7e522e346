"""openai-agents for Python, unmodified: what its user sees, and what the upstream was sent."""

from __future__ import annotations

import json
from typing import Final

import pytest

from antiphon.testing import Call, Cut, Script
from tests.clients.stage import Performance, Scripts, calling, perform, roles, tool_messages

ROME: Final = '{"city": "Rome"}'
ASK_ROME: Final = Script(calls=[Call("weather", ROME, "call_rome")])
ASK_AGAIN: Final = Script(calls=[Call("weather", ROME, "call_again")])
PATCH: Final = {"type": "create_file", "path": "notes.txt", "diff": "+one\n+two\n"}
SCRIPTS: Final[Scripts] = {
    "tool-loop": [
        Script(calls=[Call("weather", ROME, "call_rome"), Call("weather", '{"city": "Oslo"}')]),
        Script(text="Sun in both."),
    ],
    "streaming": [ASK_ROME, Script(text="Sun in Rome.")],
    "cut-off": [Script(text="one two three four", faults=[Cut(after=3)])],
    "handoff": [
        Script(calls=[Call("transfer_to_poet", "{}", "call_poet")]),
        Script(text="The sea, the sea."),
    ],
    "output-type": [Script(text='{"name": "Ada", "age": 36}')],
    "previous-response": [Script(text="Hello, Ada."), Script(text="Ada.")],
    "conversation-id": [ASK_ROME, Script(text="Sun."), Script(text="Still sun.")],
    "conversation-session": [
        ASK_ROME,
        Script(text="Sun."),
        ASK_AGAIN,
        Script(text="Still sun."),
    ],
    "gpt-compaction": [
        Script(text="Hello, Ada."),
        Script(text="A fine city."),
        Script(text="Ada lives in Rome."),
        Script(text="You are Ada of Rome."),
    ],
    "gpt-compaction-of-input": [
        Script(text="Hello, Ada."),
        Script(text="A fine city."),
        Script(text="Ada lives in Rome."),
        Script(text="You are Ada of Rome."),
    ],
    "custom-tool": [
        calling("sums", '{"input": "2 + 3"}', "call_sum"),
        Script(text="Five."),
    ],
    "shell": [calling("shell", '{"commands": ["ls"]}', "call_ls"), Script(text="One file.")],
    "local-shell": [
        calling("shell", '{"command": ["ls", "-a"]}', "call_ls"),
        Script(text="One file."),
    ],
    "apply-patch": [
        calling("apply_patch", json.dumps(PATCH), "call_patch"),
        Script(text="Written."),
    ],
    "namespace": [calling("weather", ROME, "call_rome"), Script(text="Sun in Rome.")],
    "websocket": [ASK_ROME, Script(text="Sun."), ASK_AGAIN, Script(text="Still sun.")],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    return perform("agents_python.py", SCRIPTS, tmp_path_factory.mktemp("agents"))


@pytest.mark.turn("agents", "tool loop with parallel calls", transport="http")
def test_a_run_calls_its_tools_and_answers(played: Performance) -> None:
    seen = played.seen("tool-loop")
    assert seen["text"] == "Sun in both."
    assert seen["items"] == [
        "tool_call_item",
        "tool_call_item",
        "tool_call_output_item",
        "tool_call_output_item",
        "message_output_item",
    ]
    first, second = played.bodies("tool-loop")
    assert roles(first) == ["system", "user"]
    assert first["tools"][0]["function"]["name"] == "weather"
    assert tool_messages(second) == {"call_rome": "sun in Rome", "call_1": "sun in Oslo"}


@pytest.mark.turn("agents", "streaming with a tool", transport="http")
def test_a_streamed_run_tells_of_items_and_text(played: Performance) -> None:
    seen = played.seen("streaming")
    assert seen["text"] == "".join(seen["pieces"]) == "Sun in Rome."
    assert seen["items"] == ["tool_called", "tool_output", "message_output_created"]
    _, second = played.bodies("streaming")
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


def test_a_streamed_run_that_is_cut_off_raises_with_the_response_id(played: Performance) -> None:
    seen = played.seen("cut-off")
    assert "".join(seen["pieces"]) == "one two"
    assert seen["code"] == "upstream_closed"
    assert "GET /v1/responses/resp_" in seen["message"]


@pytest.mark.turn("agents", "handoff to another agent", transport="http")
def test_a_handoff_ends_at_the_other_agent(played: Performance) -> None:
    seen = played.seen("handoff")
    assert (seen["agent"], seen["text"]) == ("Poet", "The sea, the sea.")
    assert seen["items"] == ["handoff_call_item", "handoff_output_item", "message_output_item"]
    first, second = played.bodies("handoff")
    assert first["messages"][0]["content"] == "Hand poems over."
    assert second["messages"][0]["content"] == "Answer in verse."
    assert list(tool_messages(second)) == ["call_poet"]


@pytest.mark.turn("agents", "structured output (output_type)", transport="http")
def test_an_output_type_is_returned(played: Performance) -> None:
    assert played.seen("output-type") == {"name": "Ada", "age": 36}
    asked = played.bodies("output-type")[0]["response_format"]
    assert set(asked["json_schema"]["schema"]["properties"]) == {"name", "age"}


@pytest.mark.turn("agents", "previous_response_id", transport="http")
def test_a_run_goes_on_from_a_response(played: Performance) -> None:
    assert played.seen("previous-response") == "Ada."
    _, second = played.bodies("previous-response")
    assert roles(second) == ["user", "assistant", "user"]


@pytest.mark.turn("agents", "conversation_id", transport="http")
def test_runs_share_a_conversation(played: Performance) -> None:
    assert played.seen("conversation-id") == ["Sun.", "Still sun."]
    *_, last = played.bodies("conversation-id")
    assert roles(last) == ["user", "assistant", "tool", "assistant", "user"]
    assert tool_messages(last) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("agents", "OpenAIConversationsSession", transport="http")
def test_a_conversation_session_keeps_what_was_said(played: Performance) -> None:
    seen = played.seen("conversation-session")
    assert seen["texts"] == ["Sun.", "Still sun."]
    assert seen["items"] == ["message", "function_call", "function_call_output", "message"] * 2
    assert (seen["popped"], seen["left"]) == ("message", 7)
    *_, last = played.bodies("conversation-session")
    assert tool_messages(last) == {"call_rome": "sun in Rome", "call_again": "sun in Rome"}


@pytest.mark.turn("agents", "OpenAIResponsesCompactionSession", transport="http")
def test_a_compaction_session_goes_on_from_the_summary(played: Performance) -> None:
    _check_compaction(played, "gpt-compaction")


@pytest.mark.turn("agents", "OpenAIResponsesCompactionSession with store=False", transport="http")
def test_a_compaction_session_sends_what_is_not_stored(played: Performance) -> None:
    _check_compaction(played, "gpt-compaction-of-input")


def _check_compaction(played: Performance, turn: str) -> None:
    seen = played.seen(turn)
    assert seen["texts"] == ["Hello, Ada.", "A fine city.", "You are Ada of Rome."]
    assert "compaction" in seen["items"]
    assert len(played.bodies(turn)) == 4
    *_, last = played.bodies(turn)
    said = json.dumps(last["messages"])
    assert "Ada lives in Rome." in said
    assert "A fine city." not in said


@pytest.mark.turn("agents", "CustomTool with a grammar", transport="http")
def test_a_custom_tool_hears_free_text(played: Performance) -> None:
    assert played.seen("custom-tool") == {"text": "Five.", "heard": ["2 + 3"]}
    _, second = played.bodies("custom-tool")
    assert tool_messages(second) == {"call_sum": "5"}


@pytest.mark.turn("agents", "ShellTool with a local executor", transport="http")
def test_a_shell_tool_is_run_here(played: Performance) -> None:
    assert played.seen("shell") == {"text": "One file.", "heard": [["ls"]]}
    _, second = played.bodies("shell")
    assert "notes.txt" in tool_messages(second)["call_ls"]


@pytest.mark.turn("agents", "LocalShellTool", transport="http")
def test_a_local_shell_is_run_here(played: Performance) -> None:
    assert played.seen("local-shell") == {"text": "One file.", "heard": [["ls", "-a"]]}
    _, second = played.bodies("local-shell")
    assert "notes.txt" in tool_messages(second)["call_ls"]


@pytest.mark.turn("agents", "ApplyPatchTool with an editor", transport="http")
def test_a_patch_is_applied_here(played: Performance) -> None:
    seen = played.seen("apply-patch")
    assert seen == {"text": "Written.", "done": [list(PATCH.values())]}
    _, second = played.bodies("apply-patch")
    assert "did notes.txt" in tool_messages(second)["call_patch"]


@pytest.mark.turn("agents", "tools in a namespace", transport="http")
def test_a_tool_of_a_namespace_is_called(played: Performance) -> None:
    seen = played.seen("namespace")
    assert seen["text"] == "Sun in Rome."
    assert seen["items"] == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    _, second = played.bodies("namespace")
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("agents", "two runs with tools over one socket", transport="websocket")
def test_runs_over_a_socket_go_on_from_each_other(played: Performance) -> None:
    seen = played.seen("websocket")
    assert seen["texts"] == ["Sun.", "Still sun."]
    assert seen["events"] > 0
    *_, last = played.bodies("websocket")
    assert tool_messages(last) == {"call_rome": "sun in Rome", "call_again": "sun in Rome"}
