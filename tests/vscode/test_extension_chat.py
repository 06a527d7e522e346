"""VS Code's own chat, in agent mode, on a model that the extension offers."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from antiphon.testing import Call, Cut, Script
from tests.vscode.studio import Studio
from tests.vscode.tap import Canned
from tests.vscode.test_chat import has_in_order, reading

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

DOT: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmM"
    "IQAAAABJRU5ErkJggg=="
)
ENTRY: Final = "antiphon.antiphon.antiphon.usage"
HARBOUR: Final = "The harbour is wide and calm today. "
PATIENCE: Final = 60.0


def refusal(status: int, message: str, code: str = "refused", **headers: str) -> Canned:
    """Return the answer of a gateway that refuses a request."""
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Canned(status, json.dumps({"error": error}).encode(), headers=given)


def counted(prompt: int, completion: int, cached: int) -> dict[str, Any]:
    """Return a usage as an upstream reports it."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@pytest.mark.requirement("RFC016-metric-1")
@pytest.mark.turn("vscode-extension", "a turn, with its tokens in the status bar", transport="http")
async def test_a_turn_is_answered_and_its_tokens_are_shown(studio: Studio) -> None:
    studio.house.play(Script(text="It is **four**.", usage=counted(32_100, 7, 16_050)))

    seen = await studio.editor.ask("What is two and two?")

    assert (seen.answer, seen.errors) == ("It is four.", ())
    shown = await studio.editor.order("status", id=ENTRY, matches="32.1k")
    assert shown == "antiphon 32.1k in, 7 out · 50 % cached"
    details = await studio.editor.order(
        "hover", selector=f'.statusbar-item[id="{ENTRY}"]', shows="last turn"
    )
    assert "32,100" in details
    assert "The last input filled 27 % of 120,000 tokens." in details


@pytest.mark.requirement("RFC016-metric-1", "RFC016-metric-5")
@pytest.mark.turn(
    "vscode-extension", "the context meter shows the server's count", transport="http"
)
async def test_the_context_meter_shows_the_servers_count(studio: Studio) -> None:
    studio.house.play(Script(text="Understood.", usage=counted(32_100, 7, 0)))

    await studio.editor.ask("Remember this.")

    meter = await studio.editor.order(
        "hover", selector=".chat-context-usage-widget", shows="Window"
    )
    assert "32.1K / 128K tokens" in meter


@pytest.mark.turn("vscode-extension", "a tool of VS Code reads a file, once", transport="http")
async def test_a_tool_runs_once_and_its_result_reaches_the_model(studio: Studio) -> None:
    notes = studio.workspace / "notes.txt"
    notes.write_text("the heron waits\n", "utf-8")
    studio.house.play(reading(notes), Script(text="The notes say that the heron waits."))

    seen = await studio.editor.ask("What do the notes say?")

    assert (seen.answer, seen.errors) == ("The notes say that the heron waits.", ())
    assert len([step for step in seen.tools if "notes.txt" in step]) == 1
    called, answered = studio.tap.exchanges
    assert answered.body["previous_response_id"] == called.response_id
    (result,) = answered.body["input"]
    assert (result["type"], result["call_id"]) == ("function_call_output", "call_read")
    assert "the heron waits" in result["output"]


@pytest.mark.turn("vscode-extension", "two tools at a time, each once", transport="http")
async def test_two_parallel_tools_run_once_each(studio: Studio) -> None:
    files = [studio.workspace / name for name in ("heron.txt", "crane.txt")]
    for file in files:
        file.write_text(f"a {file.stem}\n", "utf-8")
    calls = [call for file in files for call in reading(file).calls]
    named = [Call(call.name, call.arguments, f"call_{place}") for place, call in enumerate(calls)]
    studio.house.play(Script(calls=named), Script(text="A heron and a crane."))

    seen = await studio.editor.ask("Which birds are there?")

    assert (seen.answer, seen.errors) == ("A heron and a crane.", ())
    assert [len([step for step in seen.tools if file.name in step]) for file in files] == [1, 1]
    results = studio.tap.exchanges[-1].body["input"]
    assert [result["call_id"] for result in results] == ["call_0", "call_1"]
    assert [result["output"].strip() for result in results] == ["a heron", "a crane"]


@pytest.mark.turn("vscode-extension", "a second turn by previous_response_id", transport="http")
async def test_the_second_turn_sends_only_what_is_new(studio: Studio) -> None:
    studio.house.play(Script(text="Nice to meet you, Ada."), Script(text="You are Ada."))

    await studio.editor.ask("My name is Ada.")
    seen = await studio.editor.ask("Who am I?")

    assert (seen.answer, seen.errors) == ("You are Ada.", ())
    first, second = studio.tap.exchanges
    assert second.body["previous_response_id"] == first.response_id
    assert "My name is Ada." not in json.dumps(second.body["input"])


@pytest.mark.turn(
    "vscode-extension", "the chat goes on after the gateway was restarted", transport="http"
)
async def test_restarts_of_gateway_and_bridge_are_not_noticed(studio: Studio) -> None:
    studio.house.play(Script(text="Seven."), Script(text="It was seven."), Script(text="Seven!"))

    await studio.editor.ask("Remember the number seven.")
    await studio.house.restart()
    after_gateway = await studio.editor.ask("Which number?")
    await studio.probe.order("run", command="antiphon.restartBridge")
    after_bridge = await studio.editor.ask("Which one?")

    assert (after_gateway.answer, after_gateway.errors) == ("It was seven.", ())
    assert (after_bridge.answer, after_bridge.errors) == ("Seven!", ())
    first, second, third = studio.tap.exchanges
    assert (second.status, second.body["previous_response_id"]) == (200, first.response_id)
    assert (third.status, third.body["previous_response_id"]) == (200, second.response_id)


@pytest.mark.turn(
    "vscode-extension",
    "a gateway that has forgotten the chat is sent all of it again",
    transport="http",
)
async def test_a_lost_store_costs_one_silent_retry(studio: Studio) -> None:
    notes = studio.workspace / "harbour.txt"
    notes.write_text("three boats\n", "utf-8")
    studio.house.play(
        reading(notes, thought="The file will tell."),
        Script(text="There are three boats."),
        Script(text="Three, as I said."),
    )

    await studio.editor.ask("How many boats are there?")
    await studio.house.stop()
    for path in studio.house.folder.glob("antiphon.db*"):
        path.unlink()
    await studio.house.start()
    seen = await studio.editor.ask("Say it again.")

    assert (seen.answer, seen.errors) == ("Three, as I said.", ())
    *_, refused, resent = studio.tap.exchanges
    assert (refused.status, refused.error_code) == (400, "previous_response_not_found")
    assert (resent.status, "previous_response_id" in resent.body) == (200, False)
    assert has_in_order(
        studio.house.asked[-1],
        ("user", "How many boats are there?"),
        ("assistant", "read_file"),
        ("tool", "three boats"),
        ("assistant", "There are three boats."),
        ("user", "Say it again."),
    )


@pytest.mark.turn("vscode-extension", "an answer is stopped, and so is the model", transport="http")
async def test_stopping_an_answer_stops_the_model(studio: Studio) -> None:
    studio.house.play(Script(text=["One. ", "Two. ", *["More. "] * 2_000], delay=0.05))

    seen = await studio.editor.order("stop", text="Count.", after="Two.")

    (asked,) = studio.house.upstream.requests
    await asyncio.wait_for(asked.client_left.wait(), PATIENCE)
    assert seen["answer"].startswith("One. Two.")
    assert seen["errors"] == []
    assert asked.chunks_sent < 2_000


@pytest.mark.turn("vscode-extension", "the model's thinking is shown", transport="http")
async def test_thinking_is_shown(studio: Studio) -> None:
    studio.house.play(Script(reasoning="Two and two are pairs.", text="Four."))

    seen = await studio.editor.ask("What is two and two?")

    assert (seen.answer, seen.errors) == ("Four.", ())
    assert "Two and two are pairs." in await studio.editor.unfold()


@pytest.mark.turn("vscode-extension", "a picture is sent to the model", transport="http")
async def test_a_pasted_picture_reaches_the_model(studio: Studio) -> None:
    studio.house.play(Script(text="A red dot."))

    await studio.editor.order("paste", picture=DOT)
    seen = await studio.editor.ask("What is in the picture?")

    assert (seen.answer, seen.errors) == ("A red dot.", ())
    content = [part for item in studio.tap.exchanges[-1].body["input"] for part in item["content"]]
    (image,) = [part["image_url"] for part in content if part["type"] == "input_image"]
    assert base64.b64decode(image.partition(",")[2]) == base64.b64decode(DOT)


async def test_a_refused_request_shows_the_servers_reason(studio: Studio) -> None:
    studio.tap.canned.append(refusal(400, "This input is not valid here."))

    seen = await studio.editor.ask("Is this valid?")

    (error,) = seen.errors
    assert error.endswith("The server refused (HTTP 400): This input is not valid here.")


async def test_a_key_that_is_missing_can_be_set_with_a_button(studio: Studio) -> None:
    studio.tap.canned.append(refusal(401, "an API key is required"))

    seen = await studio.editor.ask("Who are you?")
    await studio.editor.order("notified", text="an API key is required", button="Set Key")
    await studio.editor.order("fill", prompt="secret storage", text="one-secret-key")
    studio.house.play(Script(text="Now I know you."))
    after = await studio.editor.ask("And now?")

    (error,) = seen.errors
    assert "The server does not accept the key" in error
    assert error.endswith(
        "Set the key of the server, and check that it may be used for this model."
    )
    assert (after.answer, after.errors) == ("Now I know you.", ())
    assert studio.tap.keys[-1] == "Bearer one-secret-key"
    assert "one-secret-key" not in _logs(studio.home)


def _logs(home: Path) -> str:
    found = (home / "data" / "logs").rglob("*.log")
    return "".join(path.read_text("utf-8", "replace") for path in found)


async def test_a_limit_is_waited_for(studio: Studio) -> None:
    studio.tap.canned.append(refusal(429, "Too fast.", "rate_limit_exceeded", retry_after="1"))
    studio.house.play(Script(text="Now it works."))

    seen = await studio.editor.ask("Quickly?")

    assert (seen.answer, seen.errors) == ("Now it works.", ())
    assert [exchange.status for exchange in studio.tap.exchanges] == [429, 200]


@pytest.mark.turn(
    "vscode-extension",
    "an answer that was cut off is shown as such, and the chat goes on",
    transport="http",
)
async def test_a_cut_answer_is_told_and_the_next_turn_goes_on(studio: Studio) -> None:
    studio.house.play(
        Script(text="Blue."),
        Script(text="Well, to be honest,", faults=[Cut(after=3)]),
        Script(text="Still blue."),
    )

    await studio.editor.ask("What is your favourite colour?")
    cut = await studio.editor.ask("Why?")
    seen = await studio.editor.ask("And now?")

    (error,) = cut.errors
    assert error.endswith("its answer is cut off. Ask again.")
    assert (seen.answer, seen.errors) == ("Still blue.", ())
    first, _, last = studio.tap.exchanges
    assert last.body["previous_response_id"] == first.response_id


@pytest.mark.requirement("RFC016-metric-5")
@pytest.mark.turn(
    "vscode-extension",
    "a conversation that gets too long is summarised, and goes on",
    transport="http",
)
async def test_a_conversation_that_gets_too_long_is_summarised(studio: Studio) -> None:
    def play(body: dict[str, Any]) -> Script:
        if not body.get("tools"):
            return Script(text="<summary>They spoke about the harbour.</summary>")
        return Script(text=HARBOUR * 800)

    await studio.editor.order("choose", model="Small model")
    studio.house.play(*[play] * 5)
    seen = [await studio.editor.ask(f"Tell me more, number {place}.") for place in range(4)]
    studio.house.play()

    assert all(one.answer.startswith(HARBOUR.strip()) and not one.errors for one in seen)
    *_, before, summary, after = studio.tap.exchanges
    assert "previous_response_id" in before.body
    assert "tools" not in summary.body
    assert "previous_response_id" not in after.body
    assert "They spoke about the harbour." in json.dumps(after.body["input"])
    assert len(json.dumps(after.body["input"])) < 20_000
