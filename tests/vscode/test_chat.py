"""VS Code's own chat, in agent mode, on a chat model behind the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing import Call, Cut, Script
from tests.vscode.conftest import Desk

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


def reading(path: Path, thought: str = "") -> Script:
    """Have the model read a file with VS Code's own tool."""
    arguments = json.dumps({"filePath": str(path), "startLine": 1, "endLine": 20})
    return Script(reasoning=thought, calls=[Call("read_file", arguments, "call_read")])


def spoken(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return who says what in a chat request, without the instructions at its begin."""
    return [
        (message["role"], json.dumps(message.get("content") or message.get("tool_calls")))
        for message in body["messages"]
        if message["role"] != "system"
    ]


def has_in_order(body: dict[str, Any], *said: tuple[str, str]) -> bool:
    """Say whether a chat request holds these roles and words, in this order."""
    rest = iter(spoken(body))
    return all(any(role == r and words in w for r, w in rest) for role, words in said)


@pytest.mark.turn("vscode", "a turn in which a tool of VS Code reads a file", transport="http")
async def test_a_tool_runs_and_its_result_reaches_the_model_and_the_panel(desk: Desk) -> None:
    notes = desk.workspace / "notes.txt"
    notes.write_text("the heron waits\n", "utf-8")
    desk.house.play(reading(notes), Script(text="The notes say that the heron waits."))

    seen = await desk.editor.ask("What do the notes say?")

    assert seen.errors == ()
    assert seen.answer == "The notes say that the heron waits."
    assert any("notes.txt" in step for step in seen.tools)
    called, answered = desk.tap.exchanges
    assert (called.status, answered.status) == (200, 200)
    (result,) = answered.body["input"]
    assert (result["type"], result["call_id"]) == ("function_call_output", "call_read")
    assert "the heron waits" in result["output"]
    assert has_in_order(
        desk.house.asked[-1],
        ("user", "What do the notes say?"),
        ("assistant", "read_file"),
        ("tool", "the heron waits"),
    )


@pytest.mark.turn("vscode", "every tool that VS Code offers reaches the model", transport="http")
async def test_every_tool_reaches_the_model_with_its_schema(desk: Desk) -> None:
    desk.house.play(Script(text="I have looked at my tools."))

    await desk.editor.ask("Which tools do you have?")

    (sent,) = desk.tap.exchanges
    offered = {tool["name"]: tool["parameters"] for tool in sent.body["tools"]}
    functions = [tool["function"] for tool in desk.house.asked[-1]["tools"]]
    assert len(offered) > 30
    assert {tool["name"]: tool["parameters"] for tool in functions} == offered


@pytest.mark.turn("vscode", "a tool of VS Code writes a file", transport="http")
async def test_a_file_is_written(desk: Desk) -> None:
    poem = desk.workspace / "poem.txt"
    arguments = json.dumps({"filePath": str(poem), "content": "rain on a tin roof\n"})
    desk.house.play(
        Script(calls=[Call("create_file", arguments, "call_write")]),
        Script(text="The poem is written."),
    )

    seen = await desk.editor.ask("Write a poem.")

    assert (seen.answer, seen.errors) == ("The poem is written.", ())
    assert poem.read_text("utf-8") == "rain on a tin roof\n"


@pytest.mark.turn("vscode", "a second turn by previous_response_id", transport="http")
async def test_the_second_turn_sends_only_what_is_new(desk: Desk) -> None:
    desk.house.play(Script(text="Nice to meet you, Ada."), Script(text="You are Ada."))

    await desk.editor.ask("My name is Ada.")
    seen = await desk.editor.ask("Who am I?")

    assert (seen.answer, seen.errors) == ("You are Ada.", ())
    first, second = desk.tap.exchanges
    assert second.body["previous_response_id"] == first.response_id
    assert "My name is Ada." not in json.dumps(second.body["input"])
    assert has_in_order(
        desk.house.asked[-1],
        ("user", "My name is Ada."),
        ("assistant", "Nice to meet you, Ada."),
        ("user", "Who am I?"),
    )


@pytest.mark.turn("vscode", "the chat goes on after the gateway was restarted", transport="http")
async def test_a_restart_of_the_gateway_is_not_noticed(desk: Desk) -> None:
    desk.house.play(Script(text="Seven it is."), Script(text="It was seven."))

    await desk.editor.ask("Remember the number seven.")
    await desk.house.restart()
    seen = await desk.editor.ask("Which number?")

    assert (seen.answer, seen.errors) == ("It was seven.", ())
    first, second = desk.tap.exchanges
    assert (second.status, second.body["previous_response_id"]) == (200, first.response_id)
    assert has_in_order(
        desk.house.asked[-1],
        ("user", "Remember the number seven."),
        ("assistant", "Seven it is."),
        ("user", "Which number?"),
    )


@pytest.mark.turn(
    "vscode",
    "a gateway that has forgotten the chat is sent all of it again, unseen by the user",
    transport="http",
)
async def test_a_lost_store_costs_one_silent_retry(desk: Desk) -> None:
    notes = desk.workspace / "harbour.txt"
    notes.write_text("three boats\n", "utf-8")
    desk.house.play(
        reading(notes, thought="The file will tell."),
        Script(text="There are three boats."),
        Script(text="Three, as I said."),
    )

    await desk.editor.ask("How many boats are there?")
    await desk.house.stop()
    for path in desk.house.folder.glob("antiphon.db*"):
        path.unlink()
    await desk.house.start()
    seen = await desk.editor.ask("Say it again.")

    assert (seen.answer, seen.errors) == ("Three, as I said.", ())
    *_, refused, resent = desk.tap.exchanges
    assert (refused.status, refused.error_code) == (400, "previous_response_not_found")
    assert resent.status == 200
    assert "previous_response_id" not in resent.body
    assert has_in_order(
        desk.house.asked[-1],
        ("user", "How many boats are there?"),
        ("assistant", "read_file"),
        ("tool", "three boats"),
        ("assistant", "There are three boats."),
        ("user", "Say it again."),
    )


@pytest.mark.turn("vscode", "the model's thinking is shown", transport="http")
async def test_thinking_is_shown(desk: Desk) -> None:
    desk.house.play(Script(reasoning="Two and two are pairs.", text="Four."))

    seen = await desk.editor.ask("What is two and two?")

    assert (seen.answer, seen.errors) == ("Four.", ())
    assert seen.thinking == ("Two and two are pairs.",)
    assert "Two and two are pairs." in await desk.editor.unfold()


@pytest.mark.turn(
    "vscode",
    "an answer that the model cut off is shown as such, and the chat continues",
    transport="http",
)
async def test_a_cut_answer_is_told_and_the_next_turn_goes_on(desk: Desk) -> None:
    desk.house.play(
        Script(text="Blue."),
        Script(text="Well, to be honest,", faults=[Cut(after=3)]),
        Script(text="Still blue."),
    )

    await desk.editor.ask("What is your favourite colour?")
    cut = await desk.editor.ask("Why?")
    seen = await desk.editor.ask("And now?")

    assert len(cut.errors) == 1
    assert "its answer is cut off" in cut.errors[0]
    assert (seen.answer, seen.errors) == ("Still blue.", ())
    first, _, last = desk.tap.exchanges
    assert last.body["previous_response_id"] == first.response_id
    assert has_in_order(
        desk.house.asked[-1],
        ("user", "What is your favourite colour?"),
        ("assistant", "Blue."),
        ("user", "Why?"),
        ("user", "And now?"),
    )
