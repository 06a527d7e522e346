"""Images for a chat model, whole: client, gateway, upstream and an Images API over HTTP."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import openai
import pytest

from antiphon.protocol.codec import encode_event
from antiphon.protocol.machines.referee import judge_stream
from antiphon.testing import Call, ChatBackend, Script, ScriptedUpstream, serve_gateway
from antiphon.testing.gateway import Gateway
from antiphon.tools.image_api import ImagesUpstream
from antiphon.tools.images import ImageGeneration
from antiphon.transport.secret import Secret
from tests import images_upstream as double
from tests.asking import ask, ask_stream, terminal
from tests.faults.house import PATIENCE
from tests.images_upstream import IMAGE, KEY, ImagesDouble

TOOL: Final[dict[str, Any]] = {"type": "image_generation", "partial_images": 2}
SCRIPTS: Final = [
    Script(calls=[Call("image_generation", '{"prompt": "a cat"}')]),
    Script(text="There it is."),
]


@asynccontextmanager
async def studio() -> AsyncIterator[tuple[Gateway, ImagesDouble, ScriptedUpstream]]:
    async with (
        asyncio.timeout(PATIENCE),
        double.images_upstream() as images,
        ScriptedUpstream(SCRIPTS) as upstream,
    ):
        runner = ImageGeneration(ImagesUpstream(images.url, Secret(KEY), model=None), seconds=60)
        backend = ChatBackend(upstream.base_url)
        async with serve_gateway(backend, default_model="echo", tools=[runner]) as gateway:
            yield gateway, images, upstream


async def test_a_stream_shows_partial_images_and_then_the_image() -> None:
    async with studio() as (gateway, _, upstream):
        events = await ask_stream(gateway, tools=[TOOL])
    assert judge_stream(events) == []
    names = [event.type for event in events]
    assert names[2:9] == [
        "response.output_item.added",
        "response.image_generation_call.in_progress",
        "response.image_generation_call.generating",
        "response.image_generation_call.partial_image",
        "response.image_generation_call.partial_image",
        "response.image_generation_call.completed",
        "response.output_item.done",
    ]
    image, message = terminal(events).output
    assert (image["status"], image["result"]) == ("completed", IMAGE)
    assert message["content"][0]["text"] == "There it is."
    # The model learns that it was made, and is not sent megabytes.
    assert IMAGE not in upstream.requests[1].body.decode()


@pytest.mark.parametrize("mishap", ["refused", "broken stream"])
async def test_a_failure_is_an_item_and_not_a_failed_response(mishap: double.Mishap) -> None:
    async with studio() as (gateway, images, upstream):
        images.mishap = mishap
        events = await ask_stream(gateway, tools=[TOOL])
        shown = upstream.requests[1].body.decode()
    assert judge_stream(events) == []
    response = terminal(events)
    assert response.status == "completed"
    assert (response.output[0]["status"], response.output[0]["result"]) == ("failed", "")
    assert "error: the images upstream" in shown
    assert KEY.encode() not in b"".join(map(encode_event, events)) + shown.encode()


async def test_a_large_image_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    large = base64.b64encode(bytes(3 * 1024 * 1024)).decode()
    monkeypatch.setattr(double, "IMAGE", large)
    async with studio() as (gateway, _, _):
        answer = await ask(gateway, tools=[{"type": "image_generation"}])
    assert answer.json["output"][0]["result"] == large


async def test_the_openai_sdk_reads_the_stream() -> None:
    async with studio() as (gateway, _, _):
        client = openai.AsyncOpenAI(base_url=gateway.base_url, api_key="none")
        tool: Any = TOOL
        async with client.responses.stream(model="echo", input="a cat", tools=[tool]) as stream:
            kinds = [event.type async for event in stream]
            response = await stream.get_final_response()
        await client.close()
    assert kinds.count("response.image_generation_call.partial_image") == 2
    image = response.output[0]
    assert image.type == "image_generation_call"
    assert image.result == IMAGE


async def test_without_an_images_upstream_the_tool_is_reported() -> None:
    async with (
        asyncio.timeout(PATIENCE),
        ScriptedUpstream(Script(text="No.")) as upstream,
        serve_gateway(ChatBackend(upstream.base_url), default_model="echo") as gateway,
    ):
        answer = await ask(gateway, tools=[TOOL])
    assert answer.json["antiphon"]["degraded"] == [
        "tools[0] (image_generation): it cannot be run here"
    ]
