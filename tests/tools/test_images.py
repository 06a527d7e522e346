"""Images: a proxy to a real Images API on loopback."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from antiphon.plans.toolbox import DeclaredTool
from antiphon.protocol.errors import InvalidRequest
from antiphon.protocol.items import Item
from antiphon.tools.base import (
    Decline,
    Follow,
    HostedCall,
    HostedFunction,
    Outcome,
    Progress,
    Start,
    ToolFailed,
    ToolRequest,
    ToolSession,
)
from antiphon.tools.image_api import ImagesUpstream
from antiphon.tools.images import ImageGeneration
from antiphon.transport.secret import Secret
from tests.images_upstream import IMAGE, KEY, ImagesDouble, Mishap, images_upstream
from tests.tools.web.sessions import NoApprovals

_PICTURE = base64.b64encode(b"\x89PNG mine").decode()
_WITH_PICTURE: list[Item] = [
    {
        "role": "user",
        "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{_PICTURE}"}],
    }
]


@pytest.fixture
async def images() -> AsyncIterator[ImagesDouble]:
    async with images_upstream() as running:
        yield running


@pytest.fixture
async def runner(images: ImagesDouble) -> AsyncIterator[ImageGeneration]:
    upstream = ImagesUpstream(images.url, Secret(KEY), model="painter", seconds=60)
    made = ImageGeneration(upstream, seconds=60)
    yield made
    await made.close()


async def _begin(
    runner: ImageGeneration, items: Sequence[Item] = (), **tool: Any
) -> tuple[ToolSession, HostedFunction]:
    declared = DeclaredTool({"type": "image_generation", **tool}, "tools[0]")
    request = ToolRequest(
        owner="a",
        response_id="resp_1",
        tools=[declared],
        items=items,
        own=items,
        approvals=NoApprovals(),
    )
    session = await runner.begin(request)
    (function,) = [one async for one in session.prepare()]
    assert isinstance(function, HostedFunction)
    return session, function


async def _steps(
    begun: tuple[ToolSession, HostedFunction], **arguments: Any
) -> list[Progress | Follow | Outcome]:
    session, function = begun
    said = msgspec.json.encode({"prompt": "a cat", **arguments}).decode()
    call = HostedCall(function=function, arguments=said, call_id="c")
    start = session.decide(call)
    assert isinstance(start, Start)
    assert start.has_effects
    try:
        return [step async for step in session.run(call, start)]
    except ToolFailed as failure:
        return [session.fail(call, start, str(failure))]


def _item(steps: Sequence[Progress | Follow | Outcome]) -> Item:
    outcome = steps[-1]
    assert isinstance(outcome, Outcome)
    return outcome.item


async def test_an_image_is_made_with_the_fields_of_the_tool(
    images: ImagesDouble, runner: ImageGeneration
) -> None:
    steps = await _steps(await _begin(runner, size="1024x1024", quality="low", model="other"))
    assert images.asked == [
        (
            "/v1/images/generations",
            {
                "prompt": "a cat",
                "n": 1,
                "size": "1024x1024",
                "quality": "low",
                "model": "painter",
            },
        )
    ]
    item = _item(steps)
    assert (item["status"], item["result"]) == ("completed", IMAGE)
    assert (item["size"], item["output_format"], item["action"]) == ("1024x1024", "png", "generate")


async def test_partial_images_pass(images: ImagesDouble, runner: ImageGeneration) -> None:
    steps = await _steps(await _begin(runner, partial_images=2))
    partial = [
        step.fields["partial_image_b64"]
        for step in steps
        if isinstance(step, Progress) and step.event.endswith("partial_image")
    ]
    assert [base64.b64decode(one) for one in partial] == [b"part 0", b"part 1"]
    assert _item(steps)["result"] == IMAGE
    assert images.asked[0][1]["stream"] is True


@pytest.mark.parametrize("mishap", ["refused", "url", "html", "empty"])
@pytest.mark.parametrize("partial", [0, 1])
async def test_a_failure_has_an_empty_result_and_an_error(
    mishap: Mishap, partial: int, images: ImagesDouble, runner: ImageGeneration
) -> None:
    images.mishap = mishap
    item = _item(await _steps(await _begin(runner, partial_images=partial)))
    assert (item["status"], item["result"]) == ("failed", "")
    assert item["error"]["message"].startswith("the images upstream")
    assert KEY not in str(item)


@pytest.mark.parametrize("mishap", ["broken stream", "error event"])
async def test_a_stream_without_an_image_is_a_failure(
    mishap: Mishap, images: ImagesDouble, runner: ImageGeneration
) -> None:
    images.mishap = mishap
    item = _item(await _steps(await _begin(runner, partial_images=1)))
    assert (item["status"], item["result"]) == ("failed", "")


async def test_a_wrong_key_is_not_repeated(images: ImagesDouble) -> None:
    upstream = ImagesUpstream(images.url, Secret("another-wrong-key"), model=None, seconds=60)
    runner = ImageGeneration(upstream, seconds=60)
    item = _item(await _steps(await _begin(runner)))
    await runner.close()
    assert "HTTP 401" in item["error"]["message"]
    assert "another-wrong-key" not in str(item)


async def test_an_upstream_that_is_gone_is_a_failure() -> None:
    upstream = ImagesUpstream("http://127.0.0.1:9/v1", None, model=None, seconds=60)
    runner = ImageGeneration(upstream, seconds=60)
    item = _item(await _steps(await _begin(runner)))
    await runner.close()
    assert "cannot be reached" in item["error"]["message"]


# Editing.


async def test_the_latest_image_is_edited_if_the_model_wants(
    images: ImagesDouble, runner: ImageGeneration
) -> None:
    begun = await _begin(runner, _WITH_PICTURE, input_fidelity="high")
    assert "edit" in begun[1].parameters["properties"]
    item = _item(await _steps(begun, edit=True, prompt='a "cat"\r\n--x'))
    assert (item["result"], item["action"]) == (IMAGE, "edit")
    path, fields = images.asked[0]
    assert path == "/v1/images/edits"
    assert fields["image"] == ("image/png", b"\x89PNG mine")
    assert fields["prompt"] == 'a "cat"\r\n--x'
    assert fields["input_fidelity"] == "high"


async def test_an_edit_streams_too(images: ImagesDouble, runner: ImageGeneration) -> None:
    made: list[Item] = [{"type": "image_generation_call", "id": "ig_1", "result": _PICTURE}]
    steps = await _steps(await _begin(runner, made, action="edit", partial_images=1))
    assert len(steps) == 3
    assert images.asked[0][1]["image"] == ("image/png", b"\x89PNG mine")


async def test_editing_without_an_image_is_reported(runner: ImageGeneration) -> None:
    session, function = await _begin(runner, action="edit")
    assert session.degraded == ["tools[0].action (edit): the conversation has no image to edit"]
    assert "edit" not in function.parameters["properties"]


# The tool in the request.


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"partial_images": 4}, "tools[0].partial_images"),
        ({"partial_images": True}, "tools[0].partial_images"),
        ({"action": "paint"}, "tools[0].action"),
    ],
)
async def test_wrong_tools_are_refused(
    tool: dict[str, Any], param: str, runner: ImageGeneration
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await _begin(runner, **tool)
    assert caught.value.param == param


async def test_what_is_not_honoured_is_reported(runner: ImageGeneration) -> None:
    session, _ = await _begin(runner, input_image_mask={"image_url": "x"}, svg={})
    assert session.degraded == ["tools[0].input_image_mask"]


async def test_a_call_without_a_prompt_is_declined(runner: ImageGeneration) -> None:
    session, function = await _begin(runner)
    call = HostedCall(function=function, arguments="a cat", call_id="c")
    assert isinstance(session.decide(call), Decline)
