"""Two real llama.cpp servers: one is killed in mid-stream, and the other goes on with its text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.testing import serve_gateway
from antiphon.testing.gateway import Gateway
from tests.asking import ask
from tests.backends.test_llamacpp import SERVER
from tests.engine.run.test_continuation import streaming

pytestmark = pytest.mark.slow

ASKED: dict[str, Any] = {
    "input": "Write a short story about a lighthouse keeper and a storm.",
    "temperature": 0,
    "max_output_tokens": 96,
    "store": False,
}


@contextmanager
def llama_server() -> Iterator[tuple[str, int]]:
    """Run a server; yield its base URL and the id of its process."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address = next(line for line in process.stdout if line.startswith("http"))
        try:
            yield f"{address.strip()}/v1", process.pid
        finally:
            process.kill()


async def stream_and_kill(gateway: Gateway, victim: int, after: int) -> dict[str, Any]:
    """Return the last event of a stream; kill the process when so many deltas have come."""
    deltas = 0
    body = {**ASKED, "model": "route", "stream": True}
    url = f"{gateway.base_url}/responses"
    last: dict[str, Any] = {}
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as answer:
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            last = msgspec.json.decode(line[6:])
            deltas += last["type"] == "response.output_text.delta"
            if deltas == after:
                os.kill(victim, signal.SIGKILL)
    return last


@pytest.mark.parametrize(
    "after",
    [pytest.param(1, marks=pytest.mark.heavy), 7, pytest.param(20, marks=pytest.mark.heavy)],
)
async def test_a_killed_server_is_continued_with_the_same_text(after: int) -> None:
    with llama_server() as (first, victim), llama_server() as (second, _):
        backends = {
            name: ChatBackend(url, profile="llamacpp")
            for name, url in (("a", first), ("b", second))
        }
        models = [model.id for model in await backends["b"].models()]
        routes = {
            "route": streaming("a", "b", models=[models[0]] * 2),
            "whole": streaming("b", models=[models[0]]),
        }
        async with serve_gateway(backends, routes=routes) as gateway:
            whole = await ask(gateway, **ASKED, model="whole")
            last = await stream_and_kill(gateway, victim, after)

    response = last["response"]
    text = response["output"][0]["content"][0]["text"]
    assert text == whole.json["output"][0]["content"][0]["text"]
    assert len(response["output"]) == 1
    attempts = response["antiphon"]["attempts"]
    assert [one["provider"] for one in attempts] == ["a", "b"]
    assert attempts[0]["told_characters"] > 0
