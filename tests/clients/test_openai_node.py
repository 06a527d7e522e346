"""openai-node, unmodified: what its user sees, and what the upstream was sent for it."""

from __future__ import annotations

import json
from typing import Final

import pytest

from antiphon.testing import Call, Cut, Script
from tests.clients.stage import Performance, Scripts, calling, perform, tool_messages

ADA: Final = '{"name": "Ada", "age": 36}'
SCRIPTS: Final[Scripts] = {
    "create": [Script(text="Hello there.")],
    "create-stream": [Script(text="one two", reasoning="They greet me.")],
    "cut-off": [Script(text="one two three four", faults=[Cut(after=3)])],
    "stream": [Script(text=["one", " two", " three"])],
    "stream-again": [Script(text="one two three")],
    "parse": [Script(text=ADA)],
    "parse-call": [Script(calls=[Call("look_up", ADA)])],
    "tool-loop": [
        Script(
            calls=[
                Call("weather", '{"city": "Rome"}', "call_rome"),
                Call("weather", '{"city": "Oslo"}', "call_oslo"),
            ],
            interleave=True,
        ),
        Script(text="Sun in both."),
    ],
    "replay": [
        Script(reasoning="Look it up.", calls=[Call("weather", '{"city": "Rome"}', "call_rome")]),
        Script(text="It rains."),
    ],
    "tool-runner": [
        Script(calls=[Call("weather", '{"city": "Rome"}', "call_rome")]),
        Script(text="Sun in Rome."),
    ],
    "namespace": [calling("weather", '{"city": "Rome"}', "call_rome"), Script(text="Sun.")],
    "shell": [calling("shell", '{"commands": ["ls"]}', "call_ls"), Script(text="One file.")],
    "custom-tool": [
        Script(calls=[Call("sums", '{"input": "2 + 3"}', "call_sum")]),
        Script(text="Five."),
    ],
    "conversation": [Script(text="Hello, Ada."), Script(text="Ada.")],
    "input-items": [Script(text="Five.")],
    "background": [Script(text="In good time.")],
    "delete": [Script(text="Soon gone.")],
    "compact": [
        Script(text="Hello, Ada."),
        Script(text="The user is called Ada."),
        Script(text="Ada."),
    ],
    "input-tokens": [Script(text="unused")],
    "models": [Script(text="unused")],
    "bad-request": [Script(text="unused")],
    "websocket": [Script(text="Hello, Ada."), Script(text="Ada.")],
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Performance:
    return perform("openai_node.mjs", SCRIPTS, tmp_path_factory.mktemp("openai-node"))


@pytest.mark.turn("openai-node", "responses.create", transport="http")
def test_create_answers_with_text_usage_and_metadata(played: Performance) -> None:
    seen = played.seen("create")
    assert (seen["status"], seen["output_text"]) == ("completed", "Hello there.")
    assert seen["id"].startswith("resp_")
    assert seen["request_id"]
    assert seen["metadata"] == {"topic": "sea"}
    assert seen["usage"]["total_tokens"] == (
        seen["usage"]["input_tokens"] + seen["usage"]["output_tokens"]
    )
    (body,) = played.bodies("create")
    assert [(m["role"], m["content"]) for m in body["messages"]] == [
        ("system", "Be short."),
        ("user", "Say hello."),
    ]


@pytest.mark.turn("openai-node", "responses.create with a stream", transport="http")
def test_a_stream_carries_every_event_of_reasoning_and_text(played: Performance) -> None:
    seen = played.seen("create-stream")
    types = list(dict.fromkeys(seen["types"]))
    assert types == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.completed",
    ]
    kinds = [item["type"] for item in seen["last"]["response"]["output"]]
    assert kinds == ["reasoning", "message"]
    assert played.bodies("create-stream")[0]["stream"] is True


def test_an_answer_that_is_cut_off_is_an_error_and_what_was_produced_is_kept(
    played: Performance,
) -> None:
    seen = played.seen("cut-off")
    assert (seen["error"]["name"], seen["error"]["code"]) == ("APIError", "upstream_closed")
    assert "GET /v1/responses/resp_" in seen["error"]["message"]
    assert seen["types"][-1] == "response.output_item.done"
    assert seen["kept"] == "one two"


@pytest.mark.turn("openai-node", "responses.stream", transport="http")
def test_the_stream_helper_gathers_what_was_streamed(played: Performance) -> None:
    seen = played.seen("stream")
    assert seen["pieces"] == ["one", " two", " three"]
    assert seen["text"] == "one two three"


@pytest.mark.turn(
    "openai-node", "a stream taken up again (response_id, starting_after)", transport="http"
)
def test_a_stream_is_taken_up_again(played: Performance) -> None:
    seen = played.seen("stream-again")
    assert seen["again"] == seen["first"]
    numbers = seen["numbers"]
    assert numbers == list(range(3, 3 + len(numbers)))
    assert len(played.bodies("stream-again")) == 1


@pytest.mark.turn("openai-node", "responses.parse with a zod schema", transport="http")
def test_parse_returns_what_the_schema_describes(played: Performance) -> None:
    assert played.seen("parse") == json.loads(ADA)
    asked = played.bodies("parse")[0]["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["name"] == "person"
    assert set(asked["json_schema"]["schema"]["properties"]) == {"name", "age"}


@pytest.mark.turn(
    "openai-node", "responses.parse of a call (zodResponsesFunction)", transport="http"
)
def test_parse_returns_the_arguments_of_a_call(played: Performance) -> None:
    assert played.seen("parse-call") == json.loads(ADA)
    (tool,) = played.bodies("parse-call")[0]["tools"]
    assert tool["function"]["name"] == "look_up"
    assert set(tool["function"]["parameters"]["properties"]) == {"name", "age"}


@pytest.mark.turn(
    "openai-node", "tool loop by previous_response_id, parallel calls", transport="http"
)
def test_parallel_calls_are_answered_by_their_ids(played: Performance) -> None:
    seen = played.seen("tool-loop")
    assert [(c["type"], c["call_id"], c["arguments"]) for c in seen["calls"]] == [
        ("function_call", "call_rome", '{"city": "Rome"}'),
        ("function_call", "call_oslo", '{"city": "Oslo"}'),
    ]
    assert seen["text"] == "Sun in both."
    _, second = played.bodies("tool-loop")
    assert tool_messages(second) == {"call_rome": "sun in Rome", "call_oslo": "sun in Oslo"}


@pytest.mark.turn("openai-node", "ResponsesToolRunner", transport="http")
def test_the_tool_runner_runs_its_tools(played: Performance) -> None:
    assert played.seen("tool-runner") == "Sun in Rome."
    _, second = played.bodies("tool-runner")
    assert tool_messages(second) == {"call_rome": "sun in Rome"}


@pytest.mark.turn("openai-node", "namespace of tools", transport="http")
def test_a_call_into_a_namespace_names_it(played: Performance) -> None:
    seen = played.seen("namespace")
    call = seen["call"]
    assert (call["type"], call["namespace"], call["name"]) == (
        "function_call",
        "almanac",
        "weather",
    )
    assert seen["text"] == "Sun."
    _, second = played.bodies("namespace")
    assert tool_messages(second) == {"call_rome": "sun"}


@pytest.mark.turn("openai-node", "shell tool", transport="http")
def test_a_shell_call_makes_the_round(played: Performance) -> None:
    seen = played.seen("shell")
    assert (seen["call"]["type"], seen["call"]["action"]["commands"]) == ("shell_call", ["ls"])
    assert seen["text"] == "One file."
    _, second = played.bodies("shell")
    assert "notes.txt" in tool_messages(second)["call_ls"]


@pytest.mark.turn("openai-node", "history sent back with store: false", transport="http")
def test_output_sent_back_as_input_is_the_same_history(played: Performance) -> None:
    seen = played.seen("replay")
    assert seen["types"] == ["reasoning", "function_call"]
    assert seen["text"] == "It rains."
    first, second = played.bodies("replay")
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert tool_messages(second) == {"call_rome": "rain"}


@pytest.mark.turn("openai-node", "custom tool with a grammar", transport="http")
def test_a_custom_call_comes_as_free_text_and_its_output_goes_back(played: Performance) -> None:
    seen = played.seen("custom-tool")
    call = seen["call"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "sums", "2 + 3")
    assert "".join(seen["pieces"]) == "2 + 3"
    assert seen["text"] == "Five."
    first, second = played.bodies("custom-tool")
    assert first["tools"][0]["function"]["name"] == "sums"
    assert tool_messages(second) == {"call_sum": "5"}


@pytest.mark.turn("openai-node", "every method of conversations and their items", transport="http")
def test_a_conversation_remembers(played: Performance) -> None:
    assert played.seen("conversation") == {
        "metadata": {"topic": "land"},
        "text": "Ada.",
        "added": 1,
        "items": ["My name is Ada.", "Hello, Ada.", "What is my name?", "Ada.", "Thanks."],
        "one": "My name is Ada.",
        "left": 4,
        "deleted": True,
    }
    _, second = played.bodies("conversation")
    assert [m["content"] for m in second["messages"]] == [
        "My name is Ada.",
        "Hello, Ada.",
        "What is my name?",
    ]


@pytest.mark.turn("openai-node", "responses.inputItems.list in pages", transport="http")
def test_input_items_are_paged(played: Performance) -> None:
    assert played.seen("input-items") == ["0", "1", "2", "3", "4"]


@pytest.mark.turn("openai-node", "background, its stream, retrieve and cancel", transport="http")
def test_a_background_response_is_followed_to_its_end(played: Performance) -> None:
    seen = played.seen("background")
    assert seen["queued"] in ("queued", "in_progress")
    assert seen["last"] == "response.completed"
    assert (seen["text"], seen["cancelled"]) == ("In good time.", "completed")
    assert len(played.bodies("background")) == 1


@pytest.mark.turn("openai-node", "responses.delete", transport="http")
def test_what_was_deleted_is_not_found(played: Performance) -> None:
    assert played.seen("delete") == {
        "name": "NotFoundError",
        "status": 404,
        "code": "response_not_found",
    }


@pytest.mark.turn("openai-node", "responses.compact", transport="http")
def test_a_compacted_window_goes_on(played: Performance) -> None:
    seen = played.seen("compact")
    assert seen["types"][-1] == "compaction"
    assert seen["text"] == "Ada."
    *_, last = played.bodies("compact")
    assert "The user is called Ada." in json.dumps(last["messages"])


@pytest.mark.turn("openai-node", "responses.inputTokens.count", transport="http")
def test_input_tokens_are_counted_without_a_turn(played: Performance) -> None:
    assert played.seen("input-tokens") > 0
    assert played.bodies("input-tokens") == []


@pytest.mark.turn("openai-node", "models.list and models.retrieve", transport="http")
def test_models_are_listed_and_found(played: Performance) -> None:
    seen = played.seen("models")
    assert set(seen["listed"]) == set(SCRIPTS)
    assert seen["one"] == "models"


@pytest.mark.turn("openai-node", "errors as typed exceptions", transport="http")
def test_a_mistake_is_a_typed_error(played: Performance) -> None:
    assert played.seen("bad-request") == {
        "name": "BadRequestError",
        "status": 400,
        "code": "previous_response_not_found",
        "param": "previous_response_id",
        "type": "invalid_request_error",
    }


@pytest.mark.turn("openai-node", "ResponsesWS, two turns with store: false", transport="websocket")
def test_turns_over_a_socket_go_on_from_each_other(played: Performance) -> None:
    seen = played.seen("websocket")
    assert seen["types"] == ["response.completed", "response.completed"]
    assert seen["output"][0]["content"][0]["text"] == "Ada."
    _, second = played.bodies("websocket")
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "user"]
