"""Any JSON as a chat request: it is read, or refused with a name; nothing else happens."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import check_item
from antiphon.wires.chat.ask import read_chat

WORDS = st.sampled_from(
    [
        *("text", "function", "custom", "tool", "user", "assistant", "system", "image_url"),
        *("file", "video_url", "refusal", "auto", "required", "allowed_tools", "json_schema"),
        *("reasoning.encrypted", "antiphon-1", "grammar", "c1", "f", "{}", "", "shell"),
    ]
)
NAMES = st.sampled_from(
    [
        *("type", "role", "content", "name", "function", "custom", "arguments", "input", "id"),
        *("tool_calls", "tool_call_id", "function_call", "reasoning_content", "reasoning"),
        *("reasoning_details", "format", "data", "annotations", "url_citation", "text", "refusal"),
        *("image_url", "url", "detail", "file", "video_url", "parameters", "schema", "grammar"),
        *("json_schema", "tools", "mode", "allowed_tools", "index", "cache_control"),
    ]
)
FIELDS = st.sampled_from(
    [
        *("model", "tools", "functions", "tool_choice", "function_call", "max_tokens", "store"),
        *("response_format", "reasoning_effort", "reasoning", "verbosity", "logprobs", "stream"),
        *("stream_options", "n", "modalities", "web_search_options", "metadata", "temperature"),
        *("parallel_tool_calls", "top_logprobs", "user", "stop", "input", "max_completion_tokens"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=12,
)
MESSAGES = st.lists(
    st.dictionaries(NAMES, VALUES, max_size=5).flatmap(
        lambda fields: st.sampled_from(["user", "assistant", "tool", "function", "system"]).map(
            lambda role: {**fields, "role": role}
        )
    ),
    max_size=4,
)


USER = [{"role": "user", "content": "hi"}]


@given(st.dictionaries(FIELDS, VALUES, max_size=5), MESSAGES | VALUES | st.just(USER))
def test_any_body_is_read_or_refused_with_a_name(body: dict[str, Any], messages: Any) -> None:
    try:
        ask = read_chat({**body, "messages": messages}, seals=True)
    except InvalidRequest as error:
        assert error.message
        assert "input[" not in (error.param or "")
        return
    for number, item in enumerate(ask.request.items):
        check_item(item, f"input[{number}]")
    assert ask.request.previous_response_id is None
    assert not ask.request.background
