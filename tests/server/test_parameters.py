"""Parameters of other APIs, and misspelt ones, at POST /v1/responses: who learns what to use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.protocol.response import MOST_NOTES
from antiphon.testing import ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from tests.asking import ask, ask_stream, terminal

IMAGE = "data:image/png;base64,iVBORw0KGgo="
FUNCTION = {"name": "f", "parameters": {"type": "object"}}


@asynccontextmanager
async def chat_gateway() -> AsyncIterator[tuple[Gateway, ScriptedUpstream]]:
    """Run a gateway before a chat server that echoes."""
    async with (
        ScriptedUpstream() as upstream,
        serve_gateway(ChatBackend(upstream.base_url)) as gateway,
    ):
        yield gateway, upstream


@pytest.mark.parametrize(
    ("field", "value", "note"),
    [
        ("max_tokens", 5, "max_tokens: unknown parameter; use max_output_tokens"),
        ("max_completion_tokens", 5, "unknown parameter; use max_output_tokens"),
        ("response_format", {"type": "json_object"}, "unknown parameter; use text.format"),
        ("temprature", 0.5, "temprature: unknown parameter; did you mean temperature?"),
        ("max_output_token", 5, "unknown parameter; did you mean max_output_tokens?"),
        (
            "reasoning",
            {"efort": "low"},
            "reasoning.efort: unknown parameter; did you mean reasoning.effort?",
        ),
        (
            "tools",
            [{"type": "function", "name": "f", "paramters": {"type": "object"}}],
            "tools[0].paramters: unknown parameter; did you mean parameters?",
        ),
        (
            "text",
            {"format": {"type": "text", "strct": True}},
            "text.format.strct: unknown parameter; did you mean text.format.strict?",
        ),
        ("blue_moon", 1, "blue_moon: unknown parameter; this backend cannot send it"),
    ],
)
async def test_an_unknown_parameter_is_reported_with_what_to_use(
    field: str, value: object, note: str
) -> None:
    async with chat_gateway() as (gateway, _):
        answer = await ask(gateway, **{field: value})
        refused = await ask(gateway, {"x-antiphon-strict": "1"}, **{field: value})

    assert answer.status == 200
    assert note in answer.headers["x-antiphon-degraded"]
    assert any(note in told for told in answer.json["antiphon"]["degraded"])
    assert refused.status == 400
    assert note in refused.error["message"]


async def test_asking_for_usage_in_a_stream_is_no_unknown_parameter() -> None:
    async with chat_gateway() as (gateway, _):
        strict = {"x-antiphon-strict": "1"}
        answer = await ask(gateway, strict, stream_options={"include_usage": True})

    assert answer.status == 200
    assert "x-antiphon-degraded" not in answer.headers


async def test_a_parameter_that_the_api_has_is_not_called_unknown() -> None:
    async with chat_gateway() as (gateway, _):
        answer = await ask(gateway, moderation={"model": "m"})

    assert answer.headers["x-antiphon-degraded"] == "moderation: this backend cannot send it"


async def test_a_body_full_of_unknown_parameters_is_reported_without_guesses() -> None:
    async with chat_gateway() as (gateway, _):
        answer = await ask(gateway, temprature=1, **{f"unknown_{n}": n for n in range(20)})

    notes = answer.json["antiphon"]["degraded"]
    assert len(notes) == 21
    assert not any("did you mean" in note for note in notes)


MANY = {f"unknown_{n}": n for n in range(MOST_NOTES * 20)}


@pytest.mark.parametrize(
    "body",
    [
        MANY,
        {"text": {"format": {"type": "text"} | MANY}},
        {"tools": [{"type": "function", **FUNCTION} | MANY]},
        {"input": [{"role": "user", "content": "hi"} | MANY]},
    ],
    ids=["parameters", "format", "tool", "item"],
)
async def test_a_body_full_of_unknown_names_gets_a_bounded_list_of_notes(
    body: dict[str, Any],
) -> None:
    async with chat_gateway() as (gateway, _):
        answer = await ask(gateway, **body)
        told = await ask_stream(gateway, **body)

    last = terminal(told)
    assert last.antiphon
    for notes in (answer.json["antiphon"]["degraded"], last.antiphon.degraded):
        assert len(notes) == MOST_NOTES + 1
        assert notes[-1] == "more than 500 things could not be honoured; the rest is not listed"


@pytest.mark.parametrize("also", [{}, {"input": "hi"}])
async def test_messages_are_refused_with_the_name_that_they_have_here(also: dict[str, Any]) -> None:
    body = {"input": None} | also | {"messages": [{"role": "user", "content": "hi"}]}
    async with chat_gateway() as (gateway, upstream):
        answer = await ask(gateway, **body)

    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("unsupported_parameter", "messages")
    assert "as input" in answer.error["message"]
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("body", "param", "advice"),
    [
        ({"tools": [{"type": "function", "function": FUNCTION}]}, "tools[0].name", "flat"),
        (
            {
                "tools": [{"type": "function", **FUNCTION}],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
            },
            "tool_choice.name",
            "beside type",
        ),
        (
            {"text": {"format": {"type": "json_schema", "json_schema": {"name": "n"}}}},
            "text.format.name",
            "beside type",
        ),
        (
            {"input": [{"role": "tool", "tool_call_id": "c", "content": "42"}]},
            "input[0].role",
            "function_call_output",
        ),
    ],
)
async def test_what_has_the_shape_of_chat_completions_is_refused_with_ours(
    body: dict[str, Any], param: str, advice: str
) -> None:
    async with chat_gateway() as (gateway, _):
        answer = await ask(gateway, **body)

    assert (answer.status, answer.error["param"]) == (400, param)
    assert advice in answer.error["message"]


@pytest.mark.parametrize(
    ("image", "sent"),
    [
        ({"url": IMAGE, "detail": "low"}, {"url": IMAGE, "detail": "low"}),
        ({"url": IMAGE}, {"url": IMAGE}),
        (IMAGE, {"url": IMAGE}),
    ],
)
async def test_an_image_of_chat_completions_reaches_the_model(image: object, sent: object) -> None:
    content = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": image}]
    async with chat_gateway() as (gateway, upstream):
        answer = await ask(gateway, input=[{"role": "user", "content": content}])

    assert answer.status == 200
    assert "x-antiphon-degraded" not in answer.headers
    (message,) = upstream.requests[0].json["messages"]
    assert message["content"][1] == {"type": "image_url", "image_url": sent}


@pytest.mark.parametrize("image", [None, 7, {}, {"url": 7}, {"url": IMAGE, "detail": "sharp"}])
async def test_an_image_of_chat_completions_that_is_none_is_refused(image: object) -> None:
    content = [{"type": "image_url", "image_url": image}]
    async with chat_gateway() as (gateway, _):
        answer = await ask(gateway, input=[{"role": "user", "content": content}])

    assert answer.status == 400
    assert answer.error["param"].startswith("input[0].content[0].image_url")
