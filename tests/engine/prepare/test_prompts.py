"""Prompt templates of the settings."""

from __future__ import annotations

from typing import Any

import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.engine.prepare.prompts import PromptTemplate
from antiphon.gateway.assemble import ServerSettings
from antiphon.testing.gateway import serve_gateway
from tests.asking import ask

TEMPLATES = {
    "pirate": PromptTemplate(instructions="Speak like {{ who }} of {{place}}.", version="3"),
    "plain": PromptTemplate(instructions="Be brief."),
}


async def _ask(prompt: Any, **body: Any) -> tuple[Any, ScriptedBackend]:
    backend = ScriptedBackend()
    settings = ServerSettings(prompts=TEMPLATES)
    async with serve_gateway(backend, settings=settings) as gateway:
        return await ask(gateway, prompt=prompt, **body), backend


async def test_a_template_is_filled_and_echoed_but_not_shown() -> None:
    who = {"type": "input_text", "text": "a pirate"}
    prompt = {"id": "pirate", "version": "3", "variables": {"who": who, "place": "Tortuga"}}
    answer, backend = await _ask(prompt)
    assert backend.plans[0].instructions == "Speak like a pirate of Tortuga."
    assert answer.json["prompt"] == prompt
    assert answer.json["instructions"] is None


async def test_instructions_of_the_request_come_after_the_template() -> None:
    _, backend = await _ask({"id": "plain"}, instructions="Answer in French.")
    assert backend.plans[0].instructions == "Be brief.\n\nAnswer in French."


async def test_a_template_is_enough_to_answer() -> None:
    answer, _ = await _ask({"id": "plain"}, input=None)
    assert answer.status == 200


async def test_a_value_is_never_a_template_itself() -> None:
    variables = {"who": "{{place}}", "place": "x"}
    _, backend = await _ask({"id": "pirate", "variables": variables})
    assert backend.plans[0].instructions == "Speak like {{place}} of x."


@pytest.mark.parametrize(
    ("prompt", "status", "param"),
    [
        ({"id": "other"}, 404, "prompt"),
        ({"id": 7}, 404, "prompt"),
        ({"id": "plain", "version": "2"}, 404, "prompt"),
        ({"id": "pirate", "variables": {"who": "x"}}, 400, "prompt.variables.place"),
        ({"id": "plain", "variables": {"who": "x"}}, 400, "prompt.variables.who"),
        ({"id": "plain", "variables": []}, 400, "prompt.variables"),
        ({"id": "plain", "variables": {"a": {"type": "input_image"}}}, 400, "prompt.variables.a"),
    ],
)
async def test_what_cannot_be_filled_is_refused(prompt: Any, status: int, param: str) -> None:
    answer, backend = await _ask(prompt)
    assert (answer.status, answer.json["error"]["param"]) == (status, param)
    assert backend.plans == []


async def test_a_response_without_a_template_has_no_such_field() -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        assert "prompt" not in (await ask(gateway)).json
