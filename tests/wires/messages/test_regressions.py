"""What other gateways in front of the Messages API got wrong, each with a test of its name.

The defects are public; the numbers are those of the projects' issues and pull requests. What a
test elsewhere shows, or the design excludes, is listed here and not repeated:

- litellm #15601, CLIProxyAPI #1078 (thinking lost before a call), #2172 (a signed block changed):
  a signature is our seal, and what it opens to is what the model wrote, whatever a client did to
  the text: `test_a_tool_loop_reaches_the_model_with_its_thinking`.
- CLIProxyAPI #1584 (our signatures sent to another server): seals are opened or left out before a
  wire writes its request; none writes one.
- litellm #37849 (signatures in ids): an id is made of the call id alone (`ids`).
- bifrost #5185 (a forced summary of thinking): nothing is asked for that the caller did not ask.
- litellm #36540, #23712 (results dropped): `test_no_result_is_dropped`.
- bifrost #5097 (ids with other characters): `test_a_call_id_comes_back`.
- ollama #16372, ai-toolbox #356 (system messages refused or moved), llama.cpp #21793 (a billing
  header in the prompt), sglang #36877 (a moving cache_control):
  `test_a_turn_is_rendered_as_the_beginning_of_the_next`.
- codex-proxy #587, envoy #2241 (cached tokens counted twice):
  `test_usage_does_not_count_cached_tokens_twice`.
- bifrost #970 (counting runs a model): `test_tokens_are_counted_without_a_model`.
- imp #1553, portkey #1797 (a cut that ends like an answer), gptel #1512 (an error that is
  swallowed): `test_a_failure_is_an_error_for_the_sdk`.
- litellm #22249 (settings of one request in the next): reading is a function of the body.
- tale #3398 (a window that the client does not know): `max_input_tokens` in the list of models.
- more than four cache breakpoints, doubled `message_start`: matters of a Messages upstream.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from antiphon.plans.plan import make_plan
from antiphon.protocol.deltas import CallMade, CallOpened, Delta, ReasoningGrew, Stopped, TextGrew
from antiphon.protocol.items import Item
from antiphon.wires.chat.profiles import PROFILES
from antiphon.wires.chat.request import write_request
from antiphon.wires.messages.answer import whole_message
from antiphon.wires.messages.ask import read_ask
from antiphon.wires.messages.history import read_messages
from tests.building import STOP, assessed, build
from tests.wires.messages.judge import SHOWN, encode, read_stream

TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {"a": {}}}}


def sent(**body: Any) -> dict[str, Any]:
    """Return what a chat server is sent for a Messages body."""
    request = read_ask({"model": "m", "max_tokens": 99, **body})
    plan = make_plan(request, assessed(request, request.items), request.items, "m")
    return write_request(plan, PROFILES["vllm"])[0]


def test_thinking_comes_back_before_its_call() -> None:
    """litellm #15601; the signature arrives in a delta alone: req_llm #626."""
    deltas: list[Delta] = [ReasoningGrew("hm"), CallMade("look", '{"a":1}', "call_1"), STOP]
    message = read_stream([encode(build(deltas, seal=lambda item, state: "sealed"))])

    items = read_messages([{"role": "assistant", "content": message["content"]}])

    assert [item["type"] for item in items] == ["reasoning", "function_call"]
    assert items[0]["encrypted_content"] == "sealed"


def test_arguments_that_come_whole_are_sent_as_deltas() -> None:
    """litellm #25321: `input` was empty where an upstream sends arguments at once."""
    message = read_stream([encode(build([CallMade("look", '{"a":1}', "call_1"), STOP]))])
    assert message["content"][0]["input"] == {"a": 1}


def test_a_call_without_parameters_has_an_input() -> None:
    """vscode-copilot #8040: no delta of arguments at all."""
    message = read_stream([encode(build([CallOpened(0, "look", "call_1"), STOP]))])
    assert message["content"][0]["input"] == {}


def test_results_belong_to_their_ids_in_any_order() -> None:
    """CLIProxyAPI #5199: results were paired by position."""
    use = {"type": "tool_use", "name": "look", "input": {}}
    calls = [{**use, "id": "toolu_1"}, {**use, "id": "toolu_2", "input": {"a": 2}}]
    result = {"type": "tool_result"}
    results = [
        {**result, "tool_use_id": "toolu_2", "content": "two"},
        {**result, "tool_use_id": "toolu_1", "content": "one"},
    ]
    body = sent(
        messages=[
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": results},
        ]
    )
    answers = {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}
    assert answers == {"1": "one", "2": "two"}


@pytest.mark.parametrize("call_id", ["functions.look:0", "call_1", "x" * 300, "ü"])
def test_no_foreign_id_reaches_a_client_and_none_is_too_long(call_id: str) -> None:
    """bifrost #5097, llmgateway #3389; call ids over 64 characters: cursor-byok #364."""
    response = _response(CallMade("look", "{}", call_id), STOP)
    (block,) = whole_message(response, SHOWN)["content"]

    assert re.fullmatch(r"toolu_[a-zA-Z0-9_-]+", block["id"])
    (call,) = read_messages([{"role": "assistant", "content": [block]}])
    assert call["call_id"] == response.output[0]["call_id"]
    assert len(call["call_id"]) <= 64


def test_the_schema_of_a_tool_reaches_the_model() -> None:
    """litellm #36229: `input_schema` was dropped, and calls came without arguments."""
    body = sent(messages=[{"role": "user", "content": "go"}], tools=[TOOL])
    assert body["tools"][0]["function"]["parameters"] == TOOL["input_schema"]


def test_text_blocks_of_another_api_are_text() -> None:
    """litellm #23841: `input_text` was dropped."""
    for role, kind in (("user", "input_text"), ("assistant", "output_text")):
        (item,) = read_messages([{"role": role, "content": [{"type": kind, "text": "x"}]}])
        assert [part["text"] for part in item["content"]] == ["x"]


def test_an_answer_comes_once() -> None:
    """litellm #41109: the whole text came again at the end."""
    data = encode(build([TextGrew("only once"), STOP]))
    assert data.count(b"only once") == 1


@pytest.mark.parametrize("most", [1, 32_000])
def test_the_length_of_an_answer_is_what_the_caller_allows(most: int) -> None:
    """bifrost #6132, pydantic-ai #7468: it was dropped, or another one took its place."""
    hello = [{"role": "user", "content": "go"}]
    assert sent(messages=hello, max_tokens=most)["max_tokens"] == most
    assert "max_tokens" not in sent(messages=hello, max_tokens=None)


def test_an_incomplete_answer_has_its_usage() -> None:
    """litellm #34352; as an HTTP 500: #37710."""
    response = _response(TextGrew("x"), Stopped("length"))
    message = whole_message(response, SHOWN)
    assert (message["stop_reason"], message["usage"]["output_tokens"]) == ("max_tokens", 5)


def _response(*deltas: Any) -> Any:
    last: Any = build(deltas)[-1]
    return last.response


def test_a_block_that_nobody_knows_is_carried() -> None:
    block: Item = {"type": "container_upload", "file_id": "file_1"}
    (item,) = read_messages([{"role": "user", "content": [block]}])
    assert msgspec.json.decode(item["content"][0]["text"]) == block
