"""Calls that a server ran, whatever a client sends of them, are calls with their results."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from antiphon.plans.plan import NO_TOOLS
from antiphon.protocol.hosted import is_hosted
from antiphon.protocol.items import Item
from antiphon.wires.chat.messages import write_messages
from antiphon.wires.chat.profiles import GENERIC

KINDS: Final = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "computer_call",
    "computer_call_output",
    "program",
    "program_output",
)
_FIELDS: Final = (
    *("id", "call_id", "status", "action", "actions", "queries", "results", "code", "outputs"),
    *("result", "output_format", "revised_prompt", "server_label", "name", "arguments", "output"),
    *("error", "tools", "approval_request_id", "approve", "reason"),
)
_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "a", "image", "logs", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "url", "logs", "image_url", "name"]), inner)
    ),
    max_leaves=4,
)


def written(*items: Item) -> list[dict[str, Any]]:
    return write_messages(items, NO_TOOLS, GENERIC, ())[0]


def test_these_are_the_kinds() -> None:
    assert all(is_hosted({"type": kind}) for kind in KINDS)
    assert not is_hosted({"type": "message"})
    assert not is_hosted({"type": "function_call"})


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(_FIELDS), _JSON))
def test_whatever_its_fields_hold_a_model_gets_calls_with_results(
    kind: str, fields: dict[str, Any]
) -> None:
    due: list[str] = []
    for message in written({**fields, "type": kind}):
        if message["role"] == "tool":
            assert message["tool_call_id"] == due.pop(0)
            assert isinstance(message["content"], str)
        else:
            assert not due
            calls = message.get("tool_calls") or []
            assert all(isinstance(call["function"]["arguments"], str) for call in calls)
            due = [call["id"] for call in calls]
    assert not due


def test_calls_that_a_server_ran_one_after_the_other_stay_apart() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "a"}}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    again = search | {"id": "ws_2"}
    answer = {"type": "message", "role": "assistant", "content": "so"}
    roles = [message["role"] for message in written(search, thought, again, answer)]
    assert roles == ["assistant", "tool", "assistant", "tool", "assistant"]


def test_an_image_by_file_id_in_a_result_is_reported() -> None:
    shot = {"type": "computer_screenshot", "file_id": "file_1"}
    call: Item = {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}}
    output: Item = {"type": "computer_call_output", "call_id": "c", "output": shot}
    _, report = write_messages([call, output], NO_TOOLS, GENERIC, ())
    assert report == ["input[1].output[0] (input_image): only images by URL can be sent"]
