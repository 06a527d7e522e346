"""Counting a prompt by asking the server: two ways, and what is none of the server's business."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from aiohttp import web

from antiphon.backends.chat import ChatBackend
from antiphon.protocol.errors import BackendError
from tests.building import plan_with

Json = dict[str, Any]

HELLO: Final = [{"role": "user", "content": "hello"}]
TOOL: Final = {"type": "function", "name": "f", "parameters": {"type": "object"}}


@asynccontextmanager
async def server(
    answers: dict[str, object], *, prefix: str = "/v1"
) -> AsyncIterator[tuple[str, list[tuple[str, Json]]]]:
    """Run a server with these answers by path; yield its base URL and what it was asked."""
    asked: list[tuple[str, Json]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append((request.path, await request.json()))
        value = answers.get(request.path)
        if value is None:
            return web.Response(status=404)
        return value if isinstance(value, web.Response) else web.json_response(value)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}{prefix}", asked
    finally:
        await runner.cleanup()


async def count(base_url: str, profile: str, **fields: Any) -> int | None:
    backend = ChatBackend(base_url, profile=profile)
    try:
        return await backend.count(plan_with(**{"items": HELLO, **fields}))
    finally:
        await backend.close()


TEMPLATE: Final = {"/apply-template": {"prompt": "<user>hello"}, "/tokenize": {"tokens": [1, 2, 3]}}


@pytest.mark.parametrize("prefix", ["/v1", "", "/v1/"])
async def test_llamacpp_renders_and_counts(prefix: str) -> None:
    async with server(TEMPLATE, prefix=prefix) as (base_url, asked):
        assert await count(base_url, "llamacpp", instructions="sys", tools=[TOOL]) == 3
    (_, rendered), (_, tokenized) = asked
    assert [message["role"] for message in rendered["messages"]] == ["system", "user"]
    assert rendered["tools"][0]["function"]["name"] == "f"
    assert tokenized == {"content": "<user>hello", "add_special": True, "parse_special": True}


async def test_vllm_counts_messages() -> None:
    async with server({"/tokenize": {"count": 7, "tokens": []}}) as (base_url, asked):
        extra = {"chat_template_kwargs": {"enable_thinking": False}}
        assert await count(base_url, "vllm", tools=[TOOL], temperature=0.5, extra=extra) == 7
    ((_, body),) = asked
    assert set(body) == {"model", "messages", "tools", "chat_template_kwargs"}


async def test_a_server_we_know_nothing_about_is_not_asked() -> None:
    async with server({}) as (base_url, asked):
        assert await count(base_url, "generic") is None
    assert asked == []


@pytest.mark.parametrize("profile", ["llamacpp", "vllm"])
async def test_pictures_cannot_be_counted(profile: str) -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    items = [{"role": "user", "content": [picture, {"type": "input_text", "text": "x"}]}]
    async with server({**TEMPLATE}) as (base_url, asked):
        assert await count(base_url, profile, items=items) is None
    assert asked == []


async def test_an_effort_that_may_change_the_prompt_cannot_be_counted() -> None:
    async with server({"/tokenize": {"count": 7}}) as (base_url, _):
        assert await count(base_url, "vllm", reasoning_effort="high") is None


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/apply-template": []},
        {"/apply-template": {"prompt": 1}},
        {"/apply-template": {"prompt": "x"}},
        {"/apply-template": {"prompt": "x"}, "/tokenize": {"tokens": "abc"}},
    ],
)
async def test_a_server_that_does_not_know_the_way_tells_nothing(answers: Json) -> None:
    async with server(answers) as (base_url, _):
        assert await count(base_url, "llamacpp") is None


@pytest.mark.parametrize("body", ["not json", '{"count": "7"}', "[7]"])
async def test_an_answer_that_is_none_tells_nothing(body: str) -> None:
    async with server({"/tokenize": web.Response(text=body)}) as (base_url, _):
        assert await count(base_url, "vllm") is None


async def test_a_server_that_is_away_is_the_upstreams_fault() -> None:
    with pytest.raises(BackendError):
        await count("http://127.0.0.1:9/v1", "vllm")


async def test_one_that_takes_too_long_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.backends.counting._PATIENCE", 0.0)
    async with server(TEMPLATE) as (base_url, _):
        assert await count(base_url, "llamacpp") is None
        monkeypatch.undo()
        # This also lets the server accept the connection that was given up before it closes.
        assert await count(base_url, "llamacpp") is not None
