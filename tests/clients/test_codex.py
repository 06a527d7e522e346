"""Codex does one turn: it calls tools, sees images, keeps to a schema, thinks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from antiphon.testing import Script
from tests.clients.codex import (
    SCREEN,
    Codex,
    Transport,
    items,
    messages,
    pairs,
    served,
    shell,
    texts,
)
from tests.clients.house import House, Json, content, open_house

pytestmark = pytest.mark.slow

MakeCodex = Callable[[Transport], Codex]

# One red pixel.
PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJg"
    "gg=="
)


@pytest.fixture
def codex(house: House, home: Path, work: Path) -> MakeCodex:
    return lambda transport: Codex(home, work, house.base_url, transport)


@pytest.mark.parametrize(
    "transport",
    [
        pytest.param(
            "http",
            marks=pytest.mark.turn(
                "codex", "runs a command with its shell tool and answers", transport="http"
            ),
        ),
        pytest.param(
            "websocket",
            marks=pytest.mark.turn(
                "codex", "runs a command with its shell tool and answers", transport="websocket"
            ),
        ),
    ],
)
async def test_a_command_runs_and_its_output_reaches_the_model(
    house: House, codex: MakeCodex, work: Path, transport: Transport
) -> None:
    house.play(
        Script(text="I will look.", calls=[shell("echo $((6 * 7)) > answer; cat answer")]),
        Script(text="It is forty-two."),
    )
    done = await codex(transport).ask("What is six times seven?")

    (ran,) = items(done, "command_execution")
    assert (ran["aggregated_output"], ran["exit_code"]) == ("42\n", 0)
    assert content(work / "answer") == "42\n"
    assert messages(done) == ["I will look.", "It is forty-two."]

    first, second = house.asked
    assert texts(first, "user")[-1] == "What is six times seven?"
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert texts(second, "assistant") == ["I will look."]
    ((name, _, output),) = pairs(second)
    assert name == "exec_command" and output.endswith("42\n")
    posted = (await served(house)).get("/v1/responses 200", 0)
    assert posted == (2 if transport == "http" else 0)


@pytest.mark.turn("codex", "runs two commands that the model calls at once", transport="http")
async def test_calls_made_at_once_are_all_answered_in_order(house: House, codex: MakeCodex) -> None:
    calls = [shell("echo one", "call_1"), shell("echo two", "call_2")]
    house.play(Script(calls=calls, interleave=True), Script(text="Both ran."))
    done = await codex("http").ask("Run both.")

    printed = {ran["aggregated_output"] for ran in items(done, "command_execution")}
    assert printed == {"one\n", "two\n"}
    outputs = [output.splitlines()[-1] for _, _, output in pairs(house.asked[1])]
    assert outputs == ["one", "two"]


@pytest.mark.turn("codex", "shows an image to the model (`-i`)", transport="http")
async def test_an_image_reaches_the_model_as_it_is(tmp_path: Path, home: Path, work: Path) -> None:
    (work / "dot.png").write_bytes(PIXEL)
    async with open_house(tmp_path / "house", Script(text="A red dot."), settings=SCREEN) as house:
        codex = Codex(home, work, house.base_url, "http")
        done = await codex.ask("What is this?", "-i", "dot.png")

    assert messages(done) == ["A red dot."]
    assert _images(house.asked[0]) == [PIXEL]
    assert "What is this?" in texts(house.asked[0], "user")[-1]


def _images(body: Json) -> list[bytes]:
    """Return the images that a model is shown."""
    contents = [m["content"] for m in body["messages"] if isinstance(m["content"], list)]
    urls = [
        part["image_url"]["url"]
        for content in contents
        for part in content
        if part["type"] == "image_url"
    ]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]


@pytest.mark.turn(
    "codex", "keeps its last answer to a schema (`--output-schema`)", transport="http"
)
async def test_the_schema_of_the_answer_reaches_the_model(
    house: House, codex: MakeCodex, work: Path
) -> None:
    schema = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    (work / "schema.json").write_text(json.dumps(schema))
    house.play(Script(text='{"sum": 42}'))
    done = await codex("http").ask("Add.", "--output-schema", "schema.json")

    (answer,) = messages(done)
    assert json.loads(answer) == {"sum": 42}
    asked = house.asked[0]["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["schema"] == schema


@pytest.mark.turn("codex", "shows what the model thinks", transport="http")
async def test_the_thoughts_of_the_model_are_shown_apart_from_the_answer(
    house: House, codex: MakeCodex
) -> None:
    house.play(Script(reasoning="Say it briefly.", text="Yes."))
    done = await codex("http").ask("Is it?")

    assert [item["text"] for item in items(done, "reasoning")] == ["Say it briefly."]
    assert messages(done) == ["Yes."]


@pytest.mark.turn("codex", "knows the model: no warning about missing metadata", transport="http")
async def test_codex_knows_the_model_from_the_list_of_the_gateway(
    house: House, codex: MakeCodex
) -> None:
    house.play(Script(text="Hello."))
    done = await codex("http").ask("Hello?")

    assert items(done, "error") == []
    assert "ERROR" not in done.err


@pytest.mark.turn("codex", "gives a model its thoughts back after a call", transport="http")
async def test_the_thoughts_before_a_call_reach_the_model_again(
    tmp_path: Path, home: Path, work: Path
) -> None:
    thinking = Script(reasoning="The clock will know.", calls=[shell("echo noon")])
    async with open_house(
        tmp_path / "house", thinking, Script(text="Noon."), settings='profile = "deepseek"'
    ) as house:
        done = await Codex(home, work, house.base_url, "http").ask("What time is it?")

    assert messages(done) == ["Noon."]
    (asked,) = [m for m in house.asked[1]["messages"] if m["role"] == "assistant"]
    assert asked["reasoning_content"] == "The clock will know."
