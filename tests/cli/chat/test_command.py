"""`antiphon chat` through a pipe: what is sent, what is shown where, and how it ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from antiphon.backends.scripted import ScriptedBackend
from antiphon.cli import main
from antiphon.client.errors import ClientError
from antiphon.gateway.assemble import ServerSettings
from antiphon.protocol.deltas import ReasoningGrew, RefusalGrew, Stopped, TextGrew
from antiphon.protocol.errors import BackendError
from antiphon.testing import Call, Script, ScriptedUpstream, serve_gateway
from tests.building import COUNTED
from tests.cli.canned import Answer, Canned, Json, canned_server, hello_events, sse
from tests.cli.chat.chatting import END, calling, canned_stream, chat, chat_with, heard, saying
from tests.cli.processes import WATCHDOG_SECONDS, Served, closed_port, command, environment

_LOOK = '{"type": "function", "name": "look", "parameters": {"type": "object"}}'


def _cancelled() -> Canned:
    """Return a stream whose response somebody cancelled."""
    *events, last = hello_events()
    last["response"]["status"] = "cancelled"
    return sse([*events, {**last, "type": "response.incomplete"}])


_CANCELLED = _cancelled()


@pytest.fixture
def look() -> str:
    """A file that defines a tool."""
    Path("look.json").write_text(_LOOK)
    return "look.json"


def test_help_tells_how_to_begin(runner: CliRunner) -> None:
    shown = runner.invoke(main, ["chat", "--help"])
    assert shown.exit_code == 0
    assert "Example:  antiphon chat" in shown.output


def test_each_line_is_a_question_and_stdout_holds_the_answers(echo: Served) -> None:
    result = chat(echo.base_url, "hello there", "", "and again")
    assert (result.exit_code, result.stdout) == (0, "hello there\nand again\n")


def test_the_status_line_is_on_stderr_without_colours(echo: Served) -> None:
    result = chat(echo.base_url, "hello there")
    assert result.stderr == "scripted · in 2 · out 2\n"


async def test_the_second_turn_goes_on_from_the_first() -> None:
    backend = ScriptedBackend([saying("one"), saying("two")])
    await chat_with(backend, "first", "second", args=["-i", "Be kind."])
    assert heard(backend, 1) == ["first", "one", "second"]
    assert [plan.instructions for plan in backend.plans] == ["Be kind."] * 2


def test_the_server_is_sent_what_is_new() -> None:
    bodies: list[Json] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        bodies.append(body)
        return canned_stream([TextGrew("hi"), *END], f"resp_{len(bodies)}")

    with canned_server(_without_models(answer)) as base_url:
        chat(base_url, "first", "second", args=["-m", "m1"])
    assert bodies == [
        {"model": "m1", "input": "first", "stream": True},
        {"model": "m1", "input": "second", "previous_response_id": "resp_1", "stream": True},
    ]


def test_a_thread_that_the_server_lost_is_mended_unseen() -> None:
    bodies: list[Json] = []
    gone = {"error": {"message": "lost", "code": "previous_response_not_found"}}

    def answer(method: str, path: str, body: Json) -> Canned:
        bodies.append(body)
        if "previous_response_id" in body:
            return Canned(400, msgspec.json.encode(gone))
        return canned_stream([TextGrew("hi"), *END])

    with canned_server(_without_models(answer)) as base_url:
        result = chat(base_url, "first", "second")
    assert (result.exit_code, result.stdout) == (0, "hi\nhi\n")
    assert "lost" not in result.stderr
    assert [len(body["input"]) for body in bodies[1:]] == [len("second"), 3]


async def test_a_chat_goes_on_from_a_response_of_another_one() -> None:
    backend = ScriptedBackend([saying("one"), saying("two"), saying("three")])
    async with serve_gateway(backend) as gateway:
        first = await asyncio.to_thread(chat, gateway.base_url, "first", "/status")
        previous = first.stdout.split()[-1]
        args = ["--previous", previous]
        await asyncio.to_thread(chat, gateway.base_url, "second", "third", args=args)
    assert heard(backend, 2) == ["first", "one", "second", "two", "third"]


def test_an_unknown_response_cannot_be_gone_on_from(echo: Served) -> None:
    result = chat(echo.base_url, "hi", args=["-p", "resp_gone"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the server refused (HTTP 400): ")


# Thinking.


@pytest.mark.parametrize(
    ("args", "lines", "thinking"),
    [
        ([], [], ""),
        (["--show-thinking"], [], "hm\n"),
        ([], ["/thinking on"], "hm\n"),
        (["--show-thinking"], ["/thinking off"], ""),
    ],
    ids=["default", "asked", "turned-on", "turned-off"],
)
async def test_thinking_is_shown_only_when_asked_for(
    args: list[str], lines: list[str], thinking: str
) -> None:
    backend = ScriptedBackend([[ReasoningGrew("hm"), TextGrew("yes"), END]])
    result = await chat_with(backend, *lines, "why?", args=args)
    assert result.stdout == "yes\n"
    assert ("hm\n" in result.stderr) == bool(thinking)


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        (["-m", "gpt-5", "--show-thinking"], {"summary": "auto"}),
        (["-m", "gpt-5"], None),
        (["-m", "gpt-4o", "--show-thinking"], None),
        (["-m", "nobody-knows", "--show-thinking"], None),
        (["--show-thinking"], None),
    ],
)
def test_models_known_to_think_are_asked_for_a_summary(args: list[str], asked: Json | None) -> None:
    bodies: list[Json] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        bodies.append(body)
        return canned_stream([TextGrew("hi"), *END])

    with canned_server(_without_models(answer)) as base_url:
        chat(base_url, "why?", args=args)
    assert bodies[0].get("reasoning") == asked


# Tools.


@pytest.mark.requirement("22-D4")
async def test_a_tool_is_not_run_but_its_result_is_asked_for(look: str) -> None:
    script = [
        [*calling("look", '{"where": "up"}'), *calling("look", '{"where": "down"}', index=1), END],
        saying("Stars and stones."),
    ]
    backend = ScriptedBackend(script)
    result = await chat_with(backend, "what is there?", "stars", "stones", args=["--tool", look])
    assert result.stdout == "Stars and stones.\n"
    assert '→ look(where="up")\n→ look(where="down")\n' in result.stderr
    outputs = [i["output"] for i in backend.plans[1].items if i["type"] == "function_call_output"]
    assert outputs == ["stars", "stones"]


async def test_an_empty_line_declines_a_call(look: str) -> None:
    backend = ScriptedBackend([[*calling("look"), END], saying("As you like.")])
    result = await chat_with(backend, "look!", "", args=["--tool", look])
    assert result.exit_code == 0
    assert backend.plans[1].items[-1]["output"] == "The user declined to run this tool."


async def test_the_turn_after_a_tool_knows_of_it(look: str) -> None:
    backend = ScriptedBackend([[*calling("look"), END], saying("Stars."), saying("Yes.")])
    await chat_with(backend, "look!", "stars", "really?", args=["--tool", look])
    kinds = [item["type"] for item in backend.plans[2].items]
    assert kinds == ["message", "function_call", "function_call_output", "message", "message"]


async def test_input_that_ends_before_a_result_is_an_error(look: str) -> None:
    backend = ScriptedBackend([[*calling("look"), END]])
    result = await chat_with(backend, "look!", args=["--tool", look])
    assert result.exit_code == 1
    assert "Error: the input ended before the result of look\n" in result.stderr


async def test_a_call_of_an_incomplete_answer_is_not_gone_on_from(look: str) -> None:
    cut = [*calling("look"), COUNTED, Stopped("length")]
    backend = ScriptedBackend([cut, saying("Fresh.")])
    result = await chat_with(backend, "look!", "hello", args=["--tool", look])
    assert "Error: the answer is incomplete: max_output_tokens\n" in result.stderr
    assert heard(backend, 1) == ["hello"]


async def test_arguments_that_are_no_json_are_an_error(look: str) -> None:
    wrong = [*calling("look", '{"where'), END]
    backend = ScriptedBackend([wrong, wrong, saying("Fresh.")])  # the gateway asks once more
    result = await chat_with(backend, "look!", "hello", args=["--tool", look])
    assert "cannot be run: its arguments are no JSON object" in result.stderr
    assert result.stdout == "Fresh.\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "--tool: bad.json cannot be read"),
        ("[1]", "--tool: bad.json: tool 'tools[0]': it must be a dict with a type"),
        (f"[{_LOOK}, {_LOOK}]", "--tool: bad.json: tool 'look': there are two functions of this"),
    ],
)
def test_a_tool_that_cannot_be_used_is_refused_at_once(content: str, complaint: str) -> None:
    Path("bad.json").write_text(content)
    result = chat("http://127.0.0.1:1/v1", args=["--tool", "bad.json"])
    assert result.exit_code == 2
    assert complaint in result.stderr


# What it costs.


async def test_a_price_that_nobody_knows_can_be_given() -> None:
    result = await chat_with(ScriptedBackend([saying("hi")]), "x", args=["--price", "1000/2000"])
    assert result.stderr == "scripted · in 3 · out 5 · $0.0130\n"


async def test_known_prices_and_windows_need_no_flag() -> None:
    backend = ScriptedBackend([saying("hi")], models=["gpt-5"])
    result = await chat_with(backend, "x", args=["--price", "1000/2000"])
    assert result.stderr == "gpt-5 · in 3 · out 5 · context 0% · <$0.0001\n"


@pytest.mark.parametrize("price", ["1", "a/b", "1/2/3", "-1/2", "nan/1", "1/inf"])
def test_a_price_that_is_none_is_refused(price: str) -> None:
    result = chat("http://127.0.0.1:1/v1", args=[f"--price={price}"])
    assert result.exit_code == 2
    assert "write IN/OUT" in result.stderr


def test_tokens_that_nobody_counted_are_estimated() -> None:
    events = hello_events()
    events[-1]["response"]["usage"] = None
    with canned_server(_without_models(lambda *_: sse(events))) as base_url:
        result = chat(base_url, "what is this?")
    assert result.stderr == "m · in ~4 · out ~2\n"


# Servers that speak only chat completions.


async def test_a_chat_server_is_sent_the_whole_conversation() -> None:
    async with ScriptedUpstream([Script(text="one"), Script(text="two")]) as upstream:
        args = ["--wire-api", "chat"]
        result = await asyncio.to_thread(chat, upstream.base_url, "first", "second", args=args)
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\n")
    sent = upstream.requests[1].json
    assert sent["model"] == "echo"
    assert [message["content"] for message in sent["messages"]] == ["first", "one", "second"]


async def test_tools_work_with_a_chat_server(look: str) -> None:
    script = [Script(calls=[Call("look", id="call_7")]), Script(text="Stars.")]
    async with ScriptedUpstream(script) as upstream:
        args = ["--wire-api", "chat", "-m", "echo", "--tool", look, "--show-thinking"]
        result = await asyncio.to_thread(chat, upstream.base_url, "look!", "stars", args=args)
    assert result.stdout == "Stars.\n"
    assert upstream.requests[1].json["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "call_7",
        "content": "stars",
    }


async def test_a_chat_server_without_a_list_needs_a_model() -> None:
    async with ScriptedUpstream(models=[]) as upstream:
        result = await asyncio.to_thread(chat, upstream.base_url, args=["--wire-api", "chat"])
    assert result.exit_code == 2
    assert "name one with --model" in result.stderr


def test_a_chat_server_whose_list_fails_needs_a_model() -> None:
    with canned_server(lambda *_: Canned(404, b"{}")) as base_url:
        result = chat(base_url, args=["--wire-api", "chat"])
    assert result.exit_code == 1
    assert "HTTP 404" in result.stderr


def test_a_chat_server_keeps_nothing_to_go_on_from() -> None:
    result = chat("http://127.0.0.1:1/v1", args=["--wire-api", "chat", "-p", "resp_1"])
    assert result.exit_code == 2


# What goes wrong.


def test_nobody_there_says_to_start_a_server() -> None:
    with closed_port() as port:
        result = chat(f"http://127.0.0.1:{port}/v1", "hi")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"start one with `antiphon serve --port {port}`" in result.stderr


async def test_a_server_that_wants_a_key_says_so_at_once() -> None:
    settings = ServerSettings(require_keys=True)
    async with serve_gateway(ScriptedBackend(), settings=settings) as gateway:
        result = await asyncio.to_thread(chat, gateway.base_url, "hi")
    assert result.exit_code == 1
    assert "HTTP 401" in result.stderr
    assert "ANTIPHON_API_KEY" in result.stderr


@pytest.mark.parametrize(
    ("answer", "shown", "complaint"),
    [
        (Canned(400, b'{"error": {"message": "Not\\nso."}}'), "", "refused (HTTP 400): Not so."),
        (sse(hello_events()[:6], end=b""), "Hello\n", "cut off: the stream ended without a term"),
        (
            sse(hello_events()[:5], end=b"", cut=True),
            "Hel\n",
            "Error: the answer is cut off: the server closed the connection",
        ),
        (Canned(200, b"<p>hi", {"Content-Type": "text/html"}), "", "check the base URL"),
        (canned_stream([TextGrew("Hel")]), "Hel\n", "the response failed: "),
        (
            canned_stream([TextGrew("Hel"), COUNTED, Stopped("length")]),
            "Hel\n",
            "the answer is incomplete: max_output_tokens",
        ),
        (_CANCELLED, "Hello\n", "Error: the response was cancelled by the server"),
    ],
    ids=["refused", "ended", "cut", "html", "failed", "incomplete", "cancelled"],
)
def test_a_turn_that_breaks_is_one_sentence_and_the_chat_goes_on(
    answer: Canned, shown: str, complaint: str
) -> None:
    answers = iter([answer, canned_stream([TextGrew("Fine."), *END])])
    with canned_server(_without_models(lambda *_: next(answers))) as base_url:
        result = chat(base_url, "hi", "and now?")
    assert result.stdout == f"{shown}Fine.\n"
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert complaint in sentence
    assert result.exit_code == 1


async def test_a_failed_turn_is_not_gone_on_from() -> None:
    backend = ScriptedBackend([[TextGrew("Oh"), BackendError("dead")], saying("Fine.")])
    result = await chat_with(backend, "first", "second")
    assert heard(backend, 1) == ["second"]
    assert "scripted · failed · in " in result.stderr


async def test_an_answer_that_was_cut_at_its_limit_can_be_gone_on_from() -> None:
    backend = ScriptedBackend([[TextGrew("Half"), COUNTED, Stopped("length")], saying("a loaf.")])
    await chat_with(backend, "first", "go on")
    assert heard(backend, 1) == ["first", "Half", "go on"]


def test_a_final_text_that_differs_from_the_stream_is_told() -> None:
    events = hello_events()
    events[-1]["response"]["output"][0]["content"][0]["text"] = "Goodbye"
    with canned_server(_without_models(lambda *_: sse(events))) as base_url:
        result = chat(base_url, "hi", "/save talk.json")
    assert result.stdout == "Hello\n"
    assert "is not that of the response" in result.stderr
    assert b"Goodbye" in Path("talk.json").read_bytes()


def test_a_cancelled_response_is_not_gone_on_from() -> None:
    bodies: list[Json] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        bodies.append(body)
        return _CANCELLED if len(bodies) == 1 else sse(hello_events())

    with canned_server(_without_models(answer)) as base_url:
        chat(base_url, "one", "two")
    assert "previous_response_id" not in bodies[1]


async def test_an_answer_without_text_says_so() -> None:
    result = await chat_with(ScriptedBackend([[ReasoningGrew("hm"), END]]), "x")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "(no text)\n" in result.stderr


def test_a_server_without_chat_completions_says_what_to_leave_out() -> None:
    error = {"message": "there is nothing here", "code": "unknown_url"}
    missing = Canned(404, msgspec.json.encode({"error": error}))
    with canned_server(lambda *_: missing) as base_url:
        result = chat(base_url, "hi", args=["--wire-api", "chat", "--model", "m"])
    assert result.exit_code == 1
    assert "leave out --wire-api chat\n" in result.stderr


async def test_a_chat_server_asked_for_responses_says_what_to_pass() -> None:
    async with ScriptedUpstream() as upstream:
        result = await asyncio.to_thread(chat, upstream.base_url, "hi")
    assert "use `antiphon chat --wire-api chat`\n" in result.stderr


async def test_a_refusal_is_an_answer() -> None:
    result = await chat_with(ScriptedBackend([[RefusalGrew("I will not."), END]]), "x")
    assert (result.exit_code, result.stdout) == (0, "I will not.\n")


def test_every_error_of_the_client_has_a_sentence() -> None:
    from antiphon.cli.remote import Server, explain

    assert explain(ClientError("two\n words"), Server("http://x/v1")) == "two words"


def _without_models(answer: Answer) -> Answer:
    """Return the answer of a server that has no list of models."""

    def wrapped(method: str, path: str, body: Json) -> Canned:
        return Canned(404, b"{}") if method == "GET" else answer(method, path, body)

    return wrapped


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_line_that_is_not_utf8_is_refused_and_the_others_are_asked(
    echo: Served, tmp_path: Path, locale: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "chat", "--base-url", echo.base_url],
        env=environment(tmp_path, {"LC_ALL": locale}),
        input=b"one\ncaf\xe9\nthree\n",
        capture_output=True,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, b"one\nthree\n")
    assert b"Error: the line is not valid UTF-8 (byte 0xe9); convert it first\n" in done.stderr


def test_a_pipe_does_not_wait_for_the_line_editor_to_load(echo: Served, tmp_path: Path) -> None:
    done = command(
        *("chat", "--base-url", echo.base_url),
        home=tmp_path,
        extra={"PYTHONPROFILEIMPORTTIME": "1"},
        stdin="hi\n",
    )
    assert done.stdout == "hi\n"
    assert "antiphon.cli.chat.loop" in done.stderr
    assert "prompt_toolkit" not in done.stderr
