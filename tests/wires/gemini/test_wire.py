"""Models, counting and errors of a Gemini server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.genai import types

from antiphon.wires.gemini.wire import GeminiWire
from antiphon.wires.wire import Wire
from tests.building import plan_with
from tests.wires.gemini.judge import GEMINI, VERTEX, judge

HI = [{"type": "message", "role": "user", "content": "hi"}]


class Poster:
    """Answers a request to count, and keeps it."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def __call__(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((path, body))
        return self.answer


async def test_count_is_given_the_whole_request() -> None:
    post = Poster({"totalTokens": 7})
    wire: Wire = GeminiWire(GEMINI)
    plan = plan_with(items=HI, model="gemini-3-flash", instructions="be brief")
    assert await wire.count(plan, post) == 7
    [(path, body)] = post.asked
    assert path == "/models/gemini-3-flash:countTokens"
    request = dict(body["generateContentRequest"])
    assert request.pop("model") == "models/gemini-3-flash"
    judge(request)


async def test_count_of_vertex_is_given_the_parts() -> None:
    post = Poster({"totalTokens": 7})
    assert await GeminiWire(VERTEX).count(plan_with(items=HI, model="gemini-3"), post) == 7
    judge(dict(post.asked[0][1]))


async def test_server_that_cannot_count() -> None:
    assert await GeminiWire(GEMINI).count(plan_with(items=HI, model="g"), Poster({})) is None


def test_models_come_in_pages_with_what_the_server_states() -> None:
    entry = {
        "name": "models/gemini-3-flash",
        "displayName": "Gemini 3 Flash",
        "inputTokenLimit": 1048576,
        "outputTokenLimit": 65536,
        "thinking": True,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    embedding = {"name": "models/embed-1", "supportedGenerationMethods": ["embedContent"]}
    wire = GeminiWire(GEMINI)
    page = {"models": [entry, embedding, 7], "nextPageToken": "a/b="}
    (model, hidden), path = wire.read_models(json.dumps(page).encode())
    types.Model.model_validate({key: entry[key] for key in ("name", "displayName")})
    assert (model.id, model.max_input_tokens, model.max_output_tokens) == (
        "gemini-3-flash",
        1048576,
        65536,
    )
    assert model.context_length == 1048576
    assert model.reasoning_levels == ("minimal", "low", "medium", "high")
    assert model.is_chat
    assert not hidden.is_chat
    assert path == "/models?pageSize=1000&pageToken=a%2Fb%3D"
    assert wire.read_models(b"{}") == ([], None)
