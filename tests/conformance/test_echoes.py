"""What a response repeats of its request: every field, valid in both dialects."""

from __future__ import annotations

from typing import Final, get_args

import pytest

from antiphon.protocol.codec import Dialect
from tests.conformance.house import open_house
from tests.conformance.judges import Json, response_problems
from tests.conformance.model import MODEL
from tests.conformance.turns import TOOLS
from tests.conformance.wire import ask

SCHEMA: Final = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
FORCED: Final = {"type": "function", "name": "get_time"}

REQUESTS: Final[dict[str, Json]] = {
    "instructions": {"instructions": "Be brief."},
    "metadata": {"metadata": {"a": "b"}},
    "sampling": {"temperature": 0.5, "top_p": 0.5},
    "integers for floats": {"temperature": 1, "top_p": 1},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": -0.5},
    "logprobs": {"top_logprobs": 3, "include": ["message.output_text.logprobs"]},
    "limits": {"max_output_tokens": 64, "max_tool_calls": 3},
    "keys": {"safety_identifier": "a", "prompt_cache_key": "b", "user": "c"},
    "truncation": {"truncation": "auto"},
    "service tier": {"service_tier": "flex"},
    "not stored": {"store": False},
    "tools": {"tools": TOOLS},
    "a bare tool": {"tools": [{"type": "function", "name": "f"}], "tool_choice": "none"},
    "a tool of another kind": {"tools": [{"type": "web_search"}]},
    "one call at a time": {"tools": TOOLS, "parallel_tool_calls": False},
    "no calls": {"tools": TOOLS, "tool_choice": "none"},
    "a forced call": {"tools": TOOLS, "tool_choice": FORCED},
    "allowed tools": {
        "tools": TOOLS,
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [FORCED]},
    },
    "allowed tools without a mode": {
        "tools": TOOLS,
        "tool_choice": {"type": "allowed_tools", "tools": [FORCED]},
    },
    "plain text": {"text": {"format": {"type": "text"}, "verbosity": "low"}},
    "only verbosity": {"text": {"verbosity": "high"}},
    "a JSON object": {"text": {"format": {"type": "json_object"}}},
    "a schema": {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
    "a strict schema": {
        "text": {
            "format": {
                "type": "json_schema",
                "name": "n",
                "description": "A name.",
                "schema": SCHEMA,
                "strict": True,
            }
        }
    },
    "effort": {"reasoning": {"effort": "low"}},
    "no effort": {"reasoning": {"effort": "none"}},
    "minimal effort": {"reasoning": {"effort": "minimal"}},
    "a summary": {"reasoning": {"effort": "high", "summary": "detailed"}},
    "nulls": dict.fromkeys(
        (
            "instructions",
            "max_output_tokens",
            "metadata",
            "parallel_tool_calls",
            "previous_response_id",
            "reasoning",
            "service_tier",
            "store",
            "temperature",
            "text",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "truncation",
        )
    ),
    "fields nobody knows": {"brand_new": {"deep": True}},
}


@pytest.mark.requirement("003-ignored-1", "RFC016-types-1")
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_the_echo_is_valid(name: str, dialect: Dialect) -> None:
    body = {"model": MODEL, "input": "What time is it in Tokyo?", **REQUESTS[name]}
    async with open_house() as house:
        answer = await ask(house.base_url, body, dialect=dialect)
    assert answer.status == 200, answer.body
    assert response_problems(answer.json, dialect) == []
