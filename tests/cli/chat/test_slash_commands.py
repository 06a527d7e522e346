"""What can be said to the chat itself."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from antiphon.backends.scripted import ScriptedBackend
from antiphon.cli.chat.slash_commands import COMMANDS, complete
from antiphon.testing import ScriptedUpstream, Status
from tests.cli.canned import Answer, Canned, Json, canned_server, hello_events, sse
from tests.cli.chat.chatting import END, calling, chat, chat_with, heard, saying
from tests.cli.processes import Served


@pytest.fixture
def look() -> str:
    """A file that defines a tool."""
    Path("look.json").write_text('{"type": "function", "name": "look"}')
    return "look.json"


def _read(name: str) -> str:
    return Path(name).read_text()


def test_help_names_every_command(echo: Served) -> None:
    shown = chat(echo.base_url, "/help").stdout
    assert [f"/{command.name}" for command in COMMANDS] == re.findall(r"^/[a-z]+", shown, re.M)


@pytest.mark.parametrize("line", ["/quit", "/QUIT", "/exit"])
def test_quit_leaves(echo: Served, line: str) -> None:
    result = chat(echo.base_url, line, "hello")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("/frok", "there is no command /frok; did you mean /fork?"),
        ("/xyz", "there is no command /xyz; /help lists the commands."),
        ("/", "there is no command /; /help lists the commands."),
        ("/usr/bin", "To send a text that begins with /, begin it with //"),
        ("/new York", "/new takes no argument"),
        ("/fork", "there are no turns yet"),
        ("/save", "there is nothing to save yet"),
        ("/thinking maybe", "use /thinking on or /thinking off"),
    ],
)
def test_what_cannot_be_done_is_told(echo: Served, line: str, complaint: str) -> None:
    result = chat(echo.base_url, line, "hello")
    assert complaint in result.stderr.splitlines()[0]
    assert (result.exit_code, result.stdout) == (1, "hello\n")


def test_two_slashes_send_a_text_that_begins_with_one(echo: Served) -> None:
    assert chat(echo.base_url, "//help me").stdout == "/help me\n"


def test_a_block_is_never_a_command(echo: Served) -> None:
    assert chat(echo.base_url, '"""', "/help", '"""').stdout == "/help\n"


# The model.


async def test_the_models_are_listed_and_the_current_one_is_marked() -> None:
    backend = ScriptedBackend(models=["small", "large"])
    result = await chat_with(backend, "/model", "hi", "/model", "/model large", "/model")
    assert result.stdout == (
        "  small\n  large\nthe server chooses; /model NAME sets a model\n"
        "hi\n* small\n  large\n"
        "  small\n* large\n"
    )


async def test_the_conversation_goes_on_with_another_model() -> None:
    backend = ScriptedBackend([saying("one"), saying("two")], models=["small", "large"])
    result = await chat_with(backend, "first", "/model large", "second")
    assert [plan.model for plan in backend.plans] == ["small", "large"]
    assert heard(backend, 1) == ["first", "one", "second"]
    assert "large · in 3" in result.stderr


async def test_a_model_that_is_not_listed_is_refused() -> None:
    backend = ScriptedBackend(models=["small", "large"])
    result = await chat_with(backend, "/model large", "/model smal", "/model gpt", "/status")
    assert "Error: the server does not list smal; did you mean small?\n" in result.stderr
    assert "Error: the server does not list gpt; /model lists the models\n" in result.stderr
    assert "\nmodel         large\n" in result.stdout
    assert result.exit_code == 1


def _growing_list() -> Answer:
    """Return the answer of a server that lists one model more each time it is asked."""
    names = iter(["small", "large", "huge"])
    data: list[Json] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        data.append({"id": next(names)})
        return Canned(200, msgspec.json.encode({"data": data}))

    return answer


def test_a_model_that_was_added_while_the_chat_runs_is_accepted() -> None:
    with canned_server(_growing_list()) as base_url:
        result = chat(base_url, "/model large", "/models")
    assert result.stderr == "large is used from now on\n"
    assert result.stdout == "  small\n* large\n  huge\n"
    assert result.exit_code == 0


def test_a_list_that_cannot_be_had_again_is_an_error_and_the_old_one_still_counts() -> None:
    lists = iter([Canned(200, b'{"data": [{"id": "small"}]}')])
    with canned_server(lambda *_: next(lists, Canned(503, b"{}"))) as base_url:
        result = chat(base_url, "/model", "/model small", "/model other")
    errors = result.stderr.splitlines()
    assert "HTTP 503" in errors[0]
    assert errors[1] == "small is used from now on"
    assert "does not list other" in errors[2]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/st", ["/status"]),
        ("/mo", ["/model "]),
        ("/model ", ["/model small", "/model large"]),
        ("/model l", ["/model large"]),
        ("/thinking o", ["/thinking on", "/thinking off"]),
        ("/save l", []),
        ("hello", []),
        ("", []),
    ],
)
def test_commands_and_models_are_completed(text: str, lines: list[str]) -> None:
    assert complete(text, ["small", "large"]) == lines


def test_a_server_may_have_no_models_to_list() -> None:
    with canned_server(lambda *_: Canned(200, b'{"data": []}')) as base_url:
        result = chat(base_url, "/model", "/model any")
    assert result.stdout == "the server lists no models\n"
    assert result.stderr == "any is used from now on\n"


async def test_a_list_that_cannot_be_had_is_an_error() -> None:
    async with ScriptedUpstream(models_answer=Status(503, "busy")) as upstream:
        result = await asyncio.to_thread(chat, upstream.base_url, "/model")
    assert "Error: the server failed (HTTP 503): busy\n" in result.stderr


# The conversation.


async def test_a_new_conversation_knows_nothing_of_the_old_one() -> None:
    backend = ScriptedBackend([saying("one"), saying("two")])
    result = await chat_with(backend, "first", "/new", "second", "/fork", args=["-i", "Be kind."])
    assert heard(backend, 1) == ["second"]
    assert backend.plans[1].instructions == "Be kind."
    assert result.stdout.endswith("*  1  second\n")


async def test_a_fork_goes_on_from_the_turn_it_names() -> None:
    backend = ScriptedBackend([saying(f"answer {n}") for n in range(1, 6)])
    lines = ("one", "two", "/fork 1", "three", "/fork 2", "four", "/fork", "/fork 3", "five")
    result = await chat_with(backend, *lines)
    assert heard(backend, 2) == ["one", "answer 1", "three"]
    assert heard(backend, 3) == ["one", "answer 1", "two", "answer 2", "four"]
    assert heard(backend, 4) == ["one", "answer 1", "three", "answer 3", "five"]
    assert "continuing from turn 1: one\n" in result.stderr
    assert "   1  one\n   2  two\n   3  three  (from 1)\n*  4  four  (from 2)\n" in result.stdout


@pytest.mark.parametrize("number", ["0", "2", "x", "-1"])
def test_a_turn_that_there_is_not_cannot_be_forked(echo: Served, number: str) -> None:
    result = chat(echo.base_url, "hello", f"/fork {number}")
    assert f"Error: there is no turn {number}; /fork lists the turns\n" in result.stderr


async def test_instructions_are_shown_set_and_taken_back() -> None:
    backend = ScriptedBackend()
    lines = ("/instructions", "/instructions Be  kind.", "a", "/instructions -", "b")
    result = await chat_with(backend, *lines)
    assert [plan.instructions for plan in backend.plans] == ["Be  kind.", None]
    assert result.stderr.startswith("instructions: none\ninstructions: Be  kind.\n")


def test_thinking_says_what_it_is(echo: Served) -> None:
    result = chat(echo.base_url, "/thinking", "/thinking on", "/thinking")
    assert result.stderr.splitlines() == [
        "thinking is hidden",
        "thinking is shown",
        "thinking is shown",
    ]


async def test_the_status_tells_what_there_is_to_know(look: str) -> None:
    backend = ScriptedBackend([saying("one"), saying("two"), saying("three")])
    args = ["--tool", look, "--price", "1000/2000", "--show-thinking", "-i", "Be kind."]
    result = await chat_with(backend, "/status", "a", "b", "/fork 1", "c", "/status", args=args)
    first, last = result.stdout.partition("one\n")[0], result.stdout.rpartition("three\n")[2]
    assert "previous      no response yet\n" in first
    assert "model         the server chooses\n" in first
    assert "cost          not known\n" in first
    rows = {row[:13].strip(): row[14:] for row in last.splitlines()}
    assert rows.pop("server").endswith("/v1 (responses)")
    assert rows.pop("previous").startswith("resp_")
    assert rows == {
        "model": "scripted",
        "instructions": "Be kind.",
        "thinking": "shown",
        "tools": "look",
        "turns": "2 here, 3 in all",
        "tokens": "in 9 (0 cached) · out 15 (0 reasoning)",
        "cost": "$0.0390",
    }


# Saving.


async def test_a_conversation_is_saved_as_markdown() -> None:
    backend = ScriptedBackend([saying("one"), saying("two"), saying("three")])
    await chat_with(backend, "a", "b", "/fork 1", "c", "/save talk.md", args=["-i", "Be kind."])
    assert _read("talk.md") == (
        "# Chat with scripted\n\n> Be kind.\n\n"
        "## You\n\na\n\n## Model\n\none\n\n## You\n\nc\n\n## Model\n\nthree\n"
    )


async def test_a_conversation_is_saved_as_json_with_all_items(look: str) -> None:
    backend = ScriptedBackend([[*calling("look"), END], saying("Stars.")])
    await chat_with(backend, "look!", "stars", "/save talk.JSON", args=["--tool", look])
    saved = msgspec.json.decode(_read("talk.JSON"))
    kinds = [item["type"] for item in saved["items"]]
    assert kinds == ["message", "function_call", "function_call_output", "message"]
    assert saved["model"] == "scripted"
    assert saved["turns"] == [{"number": 1, "prompt": "look!", "response_id": saved["response_id"]}]


def test_a_file_has_a_name_of_its_own_unless_told_otherwise(echo: Served) -> None:
    result = chat(echo.base_url, "hello", "/save")
    (path,) = Path().glob("chat-*.md")
    assert f"saved to {path}\n" in result.stderr


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("taken.md", "taken.md exists already and was not changed"),
        ("nowhere/talk.md", "nowhere/talk.md cannot be written: No such file or directory"),
        ("place", "place is a directory; name a file in it"),
    ],
)
def test_a_file_that_cannot_be_written_is_told(echo: Served, name: str, complaint: str) -> None:
    Path("taken.md").write_text("precious")
    Path("place").mkdir()
    result = chat(echo.base_url, "hello", f"/save {name}")
    assert result.exit_code == 1
    assert f"Error: {complaint}\n" in result.stderr
    assert Path("taken.md").read_text() == "precious"


@pytest.mark.parametrize("name", ['"my talk.md"', "'my talk.md'", "my talk.md"])
def test_quotes_are_no_part_of_a_name(echo: Served, name: str) -> None:
    chat(echo.base_url, "hello", f"/save {name}")
    assert Path("my talk.md").exists()


# What it cost.


def _cost(shown: str) -> str:
    return next(line[14:] for line in shown.splitlines() if line.startswith("cost "))


@pytest.mark.parametrize(
    ("price", "cost"), [("0/0", "$0.0000"), ("1/2", "<$0.0001"), ("1e6/1e6", "$16.00")]
)
async def test_the_cost_is_that_of_the_status_line(price: str, cost: str) -> None:
    backend = ScriptedBackend([saying("hi"), saying("hi")])
    result = await chat_with(backend, "a", "b", "/status", args=["--price", price])
    assert _cost(result.stdout) == cost


async def test_a_cost_that_is_not_known_for_all_is_a_part() -> None:
    backend = ScriptedBackend([saying("hi"), saying("hi")], models=["free", "gpt-5"])
    result = await chat_with(backend, "a", "/model gpt-5", "b", "/status")
    assert _cost(result.stdout) == "at least <$0.0001"


def test_a_cost_that_rests_on_an_estimate_is_marked() -> None:
    events = hello_events()
    events[-1]["response"]["usage"] = None

    def answer(method: str, path: str, body: Json) -> Canned:
        return Canned(404, b"{}") if method == "GET" else sse(events)

    with canned_server(answer) as base_url:
        result = chat(base_url, "hi", "/status", args=["--price", "1000/1000"])
    assert _cost(result.stdout).startswith("~$0.00")
    assert _cost(result.stdout) in result.stderr
