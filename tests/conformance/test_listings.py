"""Lists, held against the SDK's types: the items of a response, and the models."""

from __future__ import annotations

import json
from typing import Final

import pytest
from openai.types import Model
from openai.types.responses import ResponseItemList

from tests.conformance.house import open_house
from tests.conformance.judges import Json
from tests.conformance.model import MODEL
from tests.conformance.wire import ask, fetch

USER: Final = {"role": "user", "content": "Hello."}
INPUTS: Final[dict[str, list[Json]]] = {
    "messages of strings": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        USER,
        {"role": "assistant", "content": "Hi."},
        USER,
    ],
    "a message of parts": [{"role": "user", "content": [{"type": "input_text", "text": "Hi."}]}],
    "reasoning": [USER, {"type": "reasoning", "summary": []}, USER],
    "an image": [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png,"}]}
    ],
    "an answer of parts": [
        {"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
        USER,
    ],
    "a call": [
        USER,
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ],
}


@pytest.mark.parametrize("name", INPUTS)
async def test_listed_items_are_whole(name: str) -> None:
    async with open_house() as house:
        answer = await ask(house.base_url, {"model": MODEL, "input": INPUTS[name]})
        page = await fetch(house.base_url, f"/responses/{answer.json['id']}/input_items")
    ResponseItemList.model_validate_json(page.body, strict=True)


async def test_listed_models_are_whole() -> None:
    async with open_house() as house:
        listed = await fetch(house.base_url, "/models")
        single = await fetch(house.base_url, f"/models/{MODEL}")
    assert listed.json["object"] == "list"
    assert listed.json["data"] == [single.json]
    Model.model_validate_json(json.dumps(single.json), strict=True)
