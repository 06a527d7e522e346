"""`antiphon chat` at a terminal: Ctrl-C, the status line, what is dim, and what is harmless."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import msgspec
import pytest

from antiphon.backends.chat import ChatBackend
from antiphon.backends.scripted import ScriptedBackend, Step
from antiphon.gateway.places import data_directory
from antiphon.protocol.codec import encode_event
from antiphon.protocol.deltas import CallGrew, CallOpened, Delta, ReasoningGrew, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.protocol.items import text_of
from antiphon.testing import Script, ScriptedUpstream, Stall, serve_gateway
from tests.building import COUNTED, STOP, build
from tests.cli.canned import Canned, Json, canned_server, sse
from tests.cli.terminals import CTRL_D, ENTER, at_terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

_DIM = "\x1b[2m"
_END: list[Delta] = [COUNTED, STOP]


@pytest.mark.requirement("RFC016-usage")
async def test_a_turn_is_streamed_and_ends_with_a_dim_status_line(tmp_path: Path) -> None:
    backend = ScriptedBackend([[ReasoningGrew("hm"), TextGrew("Hello"), _END]])
    async with (
        serve_gateway(backend) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"hi{ENTER}")
        said = await terminal.until("\n> ")
        terminal.type(CTRL_D)
        code = await terminal.end()
    assert said.splitlines()[1:3] == ["Hello", f"{_DIM}scripted · in 3 · out 5\x1b[0m"]
    assert "hm" not in said
    assert code == 0


async def test_thinking_is_dim_and_the_answer_is_not(tmp_path: Path) -> None:
    backend = ScriptedBackend([[ReasoningGrew("hm"), TextGrew("Hello"), _END]])
    arguments = ("chat", "--show-thinking", "--base-url")
    async with (
        serve_gateway(backend) as gateway,
        at_terminal(*arguments, gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"hi{ENTER}")
        said = await terminal.until("\n> ")
    assert f"{_DIM}hm\x1b[0m\r\nHello\r\n" in said


async def test_ctrl_c_ends_the_turn_and_not_the_program(tmp_path: Path) -> None:
    never = asyncio.Event()
    script: list[list[Step]] = [
        [TextGrew("one"), _END],
        [TextGrew("Once upon a time, "), never],
        [TextGrew("three"), _END],
    ]
    backend = ScriptedBackend(script)
    async with (
        serve_gateway(backend) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"first{ENTER}")
        await terminal.until("\r\n> ")
        terminal.type(f"second{ENTER}")
        await terminal.until("Once upon a time")
        await terminal.interrupt()
        await backend.stopped.wait()
        assert "Once upon a time" not in await terminal.until("cancelled")
        # The question stands in the line again, and can be sent as it is or cleared.
        await terminal.until("> second")
        await terminal.interrupt()
        await terminal.until("\r\n> ")
        terminal.type(f"third{ENTER}")
        await terminal.until("three")
        await terminal.until("\n> ")
        terminal.type(CTRL_D)
        assert await terminal.end() == 0
    heard = [text_of(item["content"]) for item in backend.plans[2].items]
    assert heard == ["first", "one", "third"]


async def test_a_silent_upstream_is_left_when_the_turn_is_cancelled(tmp_path: Path) -> None:
    script = [Script(text="Well then there", faults=[Stall(after=3)]), Script(text="Here I am")]
    async with ScriptedUpstream(script) as upstream:
        backend = ChatBackend(upstream.base_url)
        async with (
            serve_gateway(backend) as gateway,
            at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
        ):
            await terminal.until("\n> ")
            terminal.type(f"hi{ENTER}")
            request = await upstream.received()
            await request.stalled.wait()
            await terminal.until("Well")
            await terminal.interrupt()
            await terminal.until("cancelled")
            await request.client_left.wait()
            terminal.type(ENTER)
            await terminal.until("Here I am")


async def test_a_cancelled_turn_can_be_sent_again_with_enter(tmp_path: Path) -> None:
    script: list[list[Step]] = [[TextGrew("never "), asyncio.Event()], [TextGrew("ever"), _END]]
    backend = ScriptedBackend(script)
    async with (
        serve_gateway(backend) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"again?{ENTER}")
        await terminal.until("never")
        await terminal.interrupt()
        await terminal.until("> again?")
        terminal.type(ENTER)
        await terminal.until("ever")
    assert [text_of(item["content"]) for item in backend.plans[1].items] == ["again?"]


async def test_ctrl_c_at_the_prompt_clears_the_line_and_twice_leaves(tmp_path: Path) -> None:
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"said{ENTER}")
        await terminal.until("out 1")
        await terminal.until("\n> ")
        # Twice with text in the line: it was cleared twice, and nobody wants to leave.
        for _ in range(2):
            terminal.type("half a line")
            await terminal.until("half a line")
            await terminal.interrupt()
            await terminal.until("\r\n> ")
        await terminal.interrupt()
        await terminal.until("Ctrl-C again")
        await terminal.until("\n> ")
        await terminal.interrupt()
        assert await terminal.end() == 0


async def test_ctrl_c_at_the_result_of_a_tool_ends_the_turn(tmp_path: Path) -> None:
    script: list[list[Step]] = [
        [CallOpened(0, "look"), CallGrew(0, "{}"), _END],
        [TextGrew("fine"), _END],
    ]
    backend = ScriptedBackend(script)
    (tmp_path / "look.json").write_text('{"type": "function", "name": "look"}')
    arguments = ("chat", "--tool", "look.json", "--base-url")
    async with (
        serve_gateway(backend) as gateway,
        at_terminal(*arguments, gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"what is there?{ENTER}")
        await terminal.until("→ look()")
        await terminal.until("result of look> ")
        await terminal.interrupt()
        assert "\r\n" in await terminal.until("cancelled")
        await terminal.until("> what is there?")
        terminal.type(f" Guess!{ENTER}")
        await terminal.until("fine")
    heard = [text_of(item["content"]) for item in backend.plans[1].items]
    assert heard == ["what is there? Guess!"]


async def test_several_calls_are_told_apart_by_number_and_arguments(tmp_path: Path) -> None:
    calls: list[Step] = [
        *(CallOpened(0, "look"), CallGrew(0, '{"where": "up"}')),
        *(CallOpened(1, "look"), CallGrew(1, '{"where": "down"}')),
    ]
    backend = ScriptedBackend([[*calls, _END], [TextGrew("fine"), _END]])
    (tmp_path / "look.json").write_text('{"type": "function", "name": "look"}')
    arguments = ("chat", "--tool", "look.json", "--base-url")
    async with (
        serve_gateway(backend) as gateway,
        at_terminal(*arguments, gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"what is there?{ENTER}")
        await terminal.until('result 1 of 2, look(where="up")> ')
        terminal.type(f'"""{ENTER}')
        await terminal.until("… ")
        # What was begun is taken back, and the result is still to be told.
        await terminal.interrupt()
        await terminal.until('\r\nresult 1 of 2, look(where="up")> ')
        terminal.type(f"stars{ENTER}")
        await terminal.until('result 2 of 2, look(where="down")> ')
        terminal.type(f"stones{ENTER}")
        await terminal.until("fine")
    outputs = [i["output"] for i in backend.plans[1].items if i["type"] == "function_call_output"]
    assert outputs == ["stars", "stones"]


async def test_a_question_that_failed_stands_in_the_line_again(tmp_path: Path) -> None:
    script: list[list[Step]] = [
        [TextGrew("Oh"), BackendError("dead")],
        [TextGrew("fine"), _END],
    ]
    async with (
        serve_gateway(ScriptedBackend(script)) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"why?{ENTER}")
        await terminal.until("Error: ")
        await terminal.until("> why?")
        terminal.type(ENTER)
        await terminal.until("fine")


async def test_answers_that_go_elsewhere_leave_the_prompt_on_the_terminal(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        async with (
            serve_gateway(ScriptedBackend()) as gateway,
            at_terminal(
                *("chat", "--base-url", gateway.base_url), home=tmp_path, stdout=log.fileno()
            ) as terminal,
        ):
            await terminal.until("Ctrl-D quits.")
            await terminal.until("\n> ")
            terminal.type(f"hello there{ENTER}")
            await terminal.until("out 2")
            await terminal.until("\n> ")
            await terminal.interrupt()
            await terminal.until("Ctrl-C again")
            await terminal.until("\n> ")
            terminal.type(CTRL_D)
            assert await terminal.end() == 0
    assert (tmp_path / "log").read_text() == "hello there\n"


async def test_nothing_that_a_server_says_controls_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x9b2J\r"
    deltas = [
        ReasoningGrew(evil),
        TextGrew(f"{evil}text"),
        CallOpened(0, f"na{evil}me"),
        CallGrew(0, '{"a": "\\u009b2J"}'),
        *_END,
    ]
    stream = sse([msgspec.json.decode(encode_event(event)) for event in build(deltas)])
    refusal = Canned(400, msgspec.json.encode({"error": {"message": f"no {evil}"}}))

    def answer(method: str, path: str, body: Json) -> Canned:
        if method == "GET":
            return Canned(200, msgspec.json.encode({"data": [{"id": f"m{evil}"}]}))
        return stream if body["input"] == "hi" else refusal

    with canned_server(answer) as base_url:
        arguments = ("chat", "--show-thinking", "--base-url", base_url)
        async with at_terminal(*arguments, home=tmp_path) as terminal:
            await terminal.until("\n> ")
            terminal.type(f"/model{ENTER}")
            await terminal.until("\n> ")
            terminal.type(f"hi{ENTER}")
            await terminal.until("result of ")
            await terminal.until("> ")
            terminal.type(ENTER)
            await terminal.until("Error: ")
            await terminal.until("\n> ")
    assert terminal.said.count("owned") == 7  # a prompt is drawn again when it is left
    assert not {"\x1b]", "\x9b", "\x07"} & set(re.findall(r"\x1b.|\x9b|\x07", terminal.raw))


async def test_what_was_typed_can_be_called_up_the_next_time(tmp_path: Path) -> None:
    async with serve_gateway(ScriptedBackend()) as gateway:
        for arguments, line in ((), f"one{ENTER}"), (("--no-history",), f"two{ENTER}"):
            given = ("chat", "--base-url", gateway.base_url, *arguments)
            async with at_terminal(*given, home=tmp_path) as terminal:
                await terminal.until("\n> ")
                terminal.type(line)
                await terminal.until("in ")
                await terminal.until("\n> ")
                terminal.type(CTRL_D)
                await terminal.end()
        async with at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal:
            await terminal.until("\n> ")
            terminal.type("\x1b[A")  # the arrow upwards
            await terminal.until("one")
            assert "two" not in terminal.said
    assert (data_directory(home=tmp_path, environ={}) / "chat_history").stat().st_mode & 0o77 == 0


async def test_a_file_is_overwritten_only_when_the_person_says_so(tmp_path: Path) -> None:
    (tmp_path / "talk.md").write_text("precious")
    async with (
        serve_gateway(ScriptedBackend()) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"hi{ENTER}")
        await terminal.until("out 1")
        terminal.type(f"/save talk.md{ENTER}")
        await terminal.until("[y/N] ")
        terminal.type(ENTER)
        await terminal.until("was not changed")
        assert (tmp_path / "talk.md").read_text() == "precious"
        terminal.type(f"/save talk.md{ENTER}")
        await terminal.until("[y/N] ")
        terminal.type(f"y{ENTER}")
        await terminal.until("saved to talk.md")
    assert "## You\n\nhi\n" in (tmp_path / "talk.md").read_text()


_MARKDOWN = "# Title\n\nSome **bold** words.\n\n```python\nprint(1)\n```\n"
_RENDERED = (
    "\x1b[1mTitle\x1b[0m\r\n\r\nSome \x1b[1mbold\x1b[0m words.\r\n\r\n"
    "\x1b[2m```python\x1b[0m\r\n\x1b[36mprint(1)\x1b[0m\r\n\x1b[2m```\x1b[0m\r\n"
)


@pytest.mark.parametrize(
    ("flags", "extra", "shown"),
    [
        ((), {}, _RENDERED),
        (("--plain",), {}, _MARKDOWN.replace("\n", "\r\n")),
        ((), {"NO_COLOR": "1"}, _MARKDOWN.replace("\n", "\r\n")),
    ],
    ids=["rendered", "plain", "no-color"],
)
async def test_markdown_is_rendered_unless_the_person_objects(
    tmp_path: Path, flags: tuple[str, ...], extra: dict[str, str], shown: str
) -> None:
    backend = ScriptedBackend([[*map(TextGrew, re.findall(r"(?s).{1,3}", _MARKDOWN)), _END]])
    async with (
        serve_gateway(backend) as gateway,
        at_terminal(
            *("chat", "--base-url", gateway.base_url, *flags), home=tmp_path, extra=extra
        ) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"hi{ENTER}")
        said = await terminal.until("\n> ")
    assert shown in said


async def test_lines_break_between_words_at_the_edge_of_the_terminal(tmp_path: Path) -> None:
    backend = ScriptedBackend([[TextGrew("one two three four five six"), _END]])
    async with (
        serve_gateway(backend) as gateway,
        at_terminal(
            *("chat", "--base-url", gateway.base_url), home=tmp_path, extra={"COLUMNS": "15"}
        ) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"hi{ENTER}")
        said = await terminal.until("\n> ")
    assert "one two three\r\nfour five six\r\n" in said


async def test_a_spinner_turns_until_the_first_word(tmp_path: Path) -> None:
    go = asyncio.Event()
    backend = ScriptedBackend([[go, TextGrew("at last"), _END]])
    async with (
        serve_gateway(backend) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"hi{ENTER}")
        await terminal.until_raw("\r⠙")
        go.set()
        await terminal.until("at last")
        await terminal.until("\n> ")
    # The line is cleared before the answer, and nothing turns after it.
    _, _, after = terminal.raw.rpartition("\x1b[Kat")
    assert after
    assert "⠋" not in after


async def test_a_pasted_text_of_several_lines_is_one_message(tmp_path: Path) -> None:
    backend = ScriptedBackend()
    pasted = '// a comment\n"""Doc."""\nlast\\'
    async with (
        serve_gateway(backend) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type(f"\x1b[200~{pasted}\x1b[201~")
        await terminal.until("last")
        assert not backend.plans
        terminal.type(ENTER)
        await terminal.until("out ")
    assert [text_of(item["content"]) for item in backend.plans[0].items] == [pasted]


async def test_tab_completes_commands_and_models_and_exit_leaves(tmp_path: Path) -> None:
    backend = ScriptedBackend(models=["small-one", "large-two"])
    async with (
        serve_gateway(backend) as gateway,
        at_terminal("chat", "--base-url", gateway.base_url, home=tmp_path) as terminal,
    ):
        await terminal.until("\n> ")
        terminal.type("/mo\t")
        await terminal.until("del")
        terminal.type(f"la\t{ENTER}")
        await terminal.until("large-two is used from now on")
        await terminal.until("\n> ")
        terminal.type(f"exit{ENTER}")
        assert await terminal.end() == 0


async def test_tab_completes_a_model_that_was_added_while_the_chat_runs(tmp_path: Path) -> None:
    lists = iter([b'{"data": [{"id": "small-one"}]}'])
    later = b'{"data": [{"id": "small-one"}, {"id": "large-two"}]}'
    with canned_server(lambda *_: Canned(200, next(lists, later))) as base_url:
        async with at_terminal("chat", "--base-url", base_url, home=tmp_path) as terminal:
            await terminal.until("\n> ")
            terminal.type(f"/models{ENTER}")
            await terminal.until("large-two")
            await terminal.until("\n> ")
            terminal.type(f"/model la\t{ENTER}")
            await terminal.until("large-two is used from now on")


@pytest.mark.parametrize(
    "extra",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
async def test_the_locale_c_is_no_reason_to_crash(tmp_path: Path, extra: dict[str, str]) -> None:
    backend = ScriptedBackend([[TextGrew("Grüße → 日本"), _END], [TextGrew("fine"), _END]])
    arguments = ("chat", "--base-url")
    async with serve_gateway(backend) as gateway:
        for _ in range(2):  # the second time there is a history
            async with at_terminal(
                *arguments, gateway.base_url, home=tmp_path, extra={"PYTHONUTF8": "", **extra}
            ) as terminal:
                await terminal.until("> ")
                terminal.type(f"Grüße{ENTER}")
                await terminal.until("out ")
                await terminal.until("\n> ")
                terminal.type(CTRL_D)
                assert await terminal.end() == 0
    for plan in backend.plans:
        assert [text_of(item["content"]) for item in plan.items] == ["Grüße"]
