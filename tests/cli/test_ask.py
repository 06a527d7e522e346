"""`antiphon ask`: what goes to stdout, what to stderr, and that nothing ends in silence."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.protocol.codec import encode_event
from antiphon.protocol.deltas import ReasoningGrew, RefusalGrew, Stopped, TextGrew
from antiphon.protocol.events import Event
from tests.building import COUNTED, STOP, build
from tests.cli.canned import Canned, Json, canned_server, hello_events, hello_response, sse
from tests.cli.processes import WATCHDOG_SECONDS, Served, closed_port, environment


def _ask(runner: CliRunner, base_url: str, *arguments: str, stdin: str = "") -> Result:
    return runner.invoke(main, ["ask", "--base-url", base_url, *arguments], input=stdin)


def test_the_answer_is_on_stdout_and_nothing_else(runner: CliRunner, echo: Served) -> None:
    result = _ask(runner, echo.base_url, "hello there")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello there\n", "")


@pytest.mark.parametrize("prompt", [["-"], []])
def test_the_question_can_be_piped_in(runner: CliRunner, echo: Served, prompt: list[str]) -> None:
    assert _ask(runner, echo.base_url, *prompt, stdin="from a pipe").stdout == "from a pipe\n"


def test_without_a_stream_the_answer_is_the_same(runner: CliRunner, echo: Served) -> None:
    assert _ask(runner, echo.base_url, "hello", "--no-stream").stdout == "hello\n"


@pytest.mark.parametrize("mode", [[], ["--no-stream"]])
def test_json_is_the_whole_response(runner: CliRunner, echo: Served, mode: list[str]) -> None:
    result = _ask(runner, echo.base_url, "hello", "--json", *mode)
    response = msgspec.json.decode(result.stdout)
    assert response["status"] == "completed"
    assert response["output"][0]["content"][0]["text"] == "hello"


def test_what_was_asked_for_is_sent(runner: CliRunner) -> None:
    seen: list[Json] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        seen.append(body)
        return sse(hello_events())

    with canned_server(answer) as base_url:
        _ask(runner, base_url, "hi", "-m", "m1", "-i", "be kind", "-p", "resp_0")
        _ask(runner, base_url, "hi", "--no-stream")
    assert seen == [
        {
            "model": "m1",
            "instructions": "be kind",
            "previous_response_id": "resp_0",
            "input": "hi",
            "stream": True,
        },
        {"input": "hi"},
    ]


def test_a_turn_goes_on_from_the_one_before(runner: CliRunner, echo: Served) -> None:
    first = msgspec.json.decode(_ask(runner, echo.base_url, "hello", "--json").stdout)
    second = _ask(runner, echo.base_url, "again", "--json", "--previous", first["id"])
    assert msgspec.json.decode(second.stdout)["previous_response_id"] == first["id"]


@pytest.mark.parametrize("flag", ["--show-thinking", "--show-reasoning"])
@pytest.mark.parametrize("mode", [[], ["--no-stream"]])
def test_thinking_is_shown_on_stderr_and_only_when_asked_for(
    runner: CliRunner, mode: list[str], flag: str
) -> None:
    events = build([ReasoningGrew("hm"), TextGrew("yes"), COUNTED, STOP])
    stream = sse([msgspec.json.decode(encode_event(event)) for event in events])
    with canned_server(lambda *_: stream) as base_url:
        quiet, shown = _ask(runner, base_url, "x", *mode), _ask(runner, base_url, "x", flag, *mode)
    assert (quiet.stdout, quiet.stderr) == ("yes\n", "")
    assert (shown.stdout, shown.stderr) == ("yes\n", "hm\n")


@pytest.mark.parametrize(
    ("model", "asked"), [("gpt-5", {"summary": "auto"}), ("gpt-4o", None), (None, None)]
)
def test_models_known_to_think_are_asked_for_a_summary(
    runner: CliRunner, model: str | None, asked: Json | None
) -> None:
    seen: list[Json] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        seen.append(body)
        return sse(hello_events())

    with canned_server(answer) as base_url:
        _ask(runner, base_url, "x", "--show-thinking", *(["-m", model] if model else []))
    assert [body.get("reasoning") for body in seen] == [asked]


def test_the_old_name_of_a_flag_is_not_shown(runner: CliRunner) -> None:
    assert "reasoning" not in runner.invoke(main, ["ask", "--help"]).output


def test_an_answer_without_text_says_so(runner: CliRunner) -> None:
    events = build([ReasoningGrew("hm"), COUNTED, STOP])
    stream = sse([msgspec.json.decode(encode_event(event)) for event in events])
    with canned_server(lambda *_: stream) as base_url:
        result = _ask(runner, base_url, "x")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "(no text)\n")


def test_a_refusal_is_an_answer(runner: CliRunner) -> None:
    events = build([RefusalGrew("I will not."), COUNTED, STOP])
    stream = sse([msgspec.json.decode(encode_event(event)) for event in events])
    with canned_server(lambda *_: stream) as base_url:
        assert _ask(runner, base_url, "x").stdout == "I will not.\n"


def test_text_that_only_the_last_event_tells_is_shown(runner: CliRunner) -> None:
    first, *_, last = hello_events()
    with canned_server(lambda *_: sse([first, last])) as base_url:
        assert _ask(runner, base_url, "x").stdout == "Hello\n"


def test_nobody_there_says_to_start_a_server(runner: CliRunner) -> None:
    with closed_port() as port:
        result = _ask(runner, f"http://127.0.0.1:{port}/v1", "hi")
    assert result.exit_code == 1
    assert result.stderr == (
        f"Error: no server answers at http://127.0.0.1:{port}/v1 (connection refused); "
        f"start one with `antiphon serve --port {port}`\n"
    )


@pytest.mark.parametrize("mode", [[], ["--no-stream"]])
def test_a_refused_request_says_why(runner: CliRunner, echo: Served, mode: list[str]) -> None:
    result = _ask(runner, echo.base_url, "hi", "-p", "resp_gone", *mode)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the server refused (HTTP 400): ")


@pytest.mark.parametrize(
    ("stream", "complaint"),
    [
        (sse(hello_events()[:-1], end=b""), "the stream ended without a terminal event"),
        (sse(hello_events()[:-1]), "the stream ended without a terminal event"),
        (sse(hello_events()[:5], end=b"", cut=True), "the server closed the connection"),
        (sse(hello_events()[:5], end=b"data: {\n\n"), "not JSON"),
        (Canned(200, b"<p>hi", {"Content-Type": "text/html"}), "text/html, not a stream of events"),
    ],
    ids=["ended", "done", "cut", "garbage", "html"],
)
def test_a_stream_that_breaks_is_an_error(
    runner: CliRunner, stream: Canned, complaint: str
) -> None:
    with canned_server(lambda *_: stream) as base_url:
        result = _ask(runner, base_url, "hi")
    assert result.exit_code == 1
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_what_came_before_the_break_is_shown(runner: CliRunner) -> None:
    with canned_server(lambda *_: sse(hello_events()[:6], end=b"")) as base_url:
        assert _ask(runner, base_url, "hi").stdout == "Hello\n"


def test_a_failed_response_is_an_error(runner: CliRunner) -> None:
    events = build([TextGrew("Hel")])
    stream = sse([msgspec.json.decode(encode_event(event)) for event in events])
    with canned_server(lambda *_: stream) as base_url:
        result = _ask(runner, base_url, "hi")
    assert result.exit_code == 1
    assert result.stdout == "Hel\n"
    assert "the response failed: " in result.stderr


def test_an_answer_that_was_cut_off_at_its_limit_is_an_error(runner: CliRunner) -> None:
    events = build([TextGrew("Hel"), COUNTED, Stopped("length")])
    stream = sse([msgspec.json.decode(encode_event(event)) for event in events])
    with canned_server(lambda *_: stream) as base_url:
        result = _ask(runner, base_url, "hi")
    assert result.exit_code == 1
    assert "the answer is incomplete: max_output_tokens" in result.stderr


def test_a_final_text_that_differs_from_the_stream_is_told(runner: CliRunner) -> None:
    events = hello_events()
    events[-1]["response"]["output"][0]["content"][0]["text"] = "Goodbye"
    with canned_server(lambda *_: sse(events)) as base_url:
        result = _ask(runner, base_url, "hi")
    assert result.stdout == "Hello\n"
    assert "the final text differs from the streamed text" in result.stderr


def test_an_answer_that_is_no_response_is_an_error(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(200, b"[]")) as base_url:
        result = _ask(runner, base_url, "hi", "--no-stream")
    assert result.exit_code == 1
    assert "not a JSON object" in result.stderr


def test_an_empty_question_is_refused(runner: CliRunner, echo: Served) -> None:
    result = _ask(runner, echo.base_url, stdin=" \n")
    assert result.exit_code == 2
    assert "the question is empty" in result.stderr


def _run_bytes(
    tmp_path: Path, *arguments: str | bytes, stdin: bytes = b"", locale: str = "C.UTF-8"
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "antiphon", *arguments],
        env=environment(tmp_path, {"LC_ALL": locale}),
        input=stdin,
        capture_output=True,
        timeout=WATCHDOG_SECONDS,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are not bytes there")
@pytest.mark.parametrize(
    ("arguments", "stdin", "complaint"),
    [
        (
            [],
            b"one\ntwo \xff",
            "the question on standard input is not valid UTF-8 (byte 0xff in line 2)",
        ),
        ([b"caf\xe9"], b"", "the question is not valid UTF-8 (byte 0xe9)"),
        (["x", "-i", b"caf\xe9"], b"", "--instructions is not valid UTF-8 (byte 0xe9)"),
        (["x", "-m", b"caf\xe9"], b"", "--model is not valid UTF-8 (byte 0xe9)"),
    ],
)
def test_input_that_is_not_utf8_is_refused_in_one_sentence(
    tmp_path: Path, arguments: list[str | bytes], stdin: bytes, complaint: str
) -> None:
    # Python decodes strictly in the one locale and leniently in the other.
    for locale in ("C.UTF-8", "C"):
        done = _run_bytes(tmp_path, "ask", *arguments, stdin=stdin, locale=locale)
        assert done.returncode == 2
        assert done.stdout == b""
        assert done.stderr.decode() == f"Error: {complaint}; convert it first\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
@pytest.mark.parametrize("mode", [[], ["--no-stream"]])
def test_ctrl_c_ends_it_with_130_and_without_a_word(tmp_path: Path, mode: list[str]) -> None:
    asked = threading.Event()

    def answer(method: str, path: str, body: Json) -> Canned:
        asked.set()
        return Canned(200, b"", {"Content-Type": "text/event-stream"}, stall=True)

    with canned_server(answer) as base_url:
        process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "ask", "hi", "--base-url", base_url, *mode],
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert asked.wait(WATCHDOG_SECONDS)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=WATCHDOG_SECONDS)
    assert (process.returncode, stdout, stderr) == (130, b"", b"")


def test_the_address_comes_from_the_environment(
    runner: CliRunner, echo: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_BASE_URL", echo.base_url)
    assert runner.invoke(main, ["ask", "hi"]).stdout == "hi\n"


def test_whole_answers_need_no_stream(runner: CliRunner) -> None:
    with canned_server(lambda *_: Canned(200, hello_response())) as base_url:
        assert _ask(runner, base_url, "hi", "--no-stream").stdout == "Hello\n"


def test_a_response_that_was_cancelled_is_no_answer(runner: CliRunner) -> None:
    body = hello_response().replace(
        b'"status":"completed","background"', b'"status":"cancelled","background"'
    )
    with canned_server(lambda *_: Canned(200, body)) as base_url:
        result = _ask(runner, base_url, "hi", "--no-stream")
    assert result.exit_code == 1
    assert result.stderr == "Error: the response was cancelled by the server\n"


def test_what_a_server_refuses_with_is_one_line(runner: CliRunner) -> None:
    refusal = Canned(400, b'{"error": {"message": "Not\\n so."}}')
    with canned_server(lambda *_: refusal) as base_url:
        result = _ask(runner, base_url, "hi")
    assert result.stderr == "Error: the server refused (HTTP 400): Not so.\n"


def test_an_emoji_in_two_halves_is_shown_whole(runner: CliRunner) -> None:
    events = build([TextGrew("a"), TextGrew("b"), COUNTED, STOP])
    halves = iter([rb'"\ud83d"', rb'"\ude00"'])
    body = b"".join(
        re.sub(rb'(?<="delta":)"[ab]"', lambda _: next(halves), frame) + b"\n\n"
        for frame in _frames(events)
        if b".done" not in frame and b"response.completed" not in frame
    )
    whole = next(frame for frame in _frames(events) if b"response.completed" in frame)
    body += whole.replace(b'"text":"ab"', rb'"text":"\ud83d\ude00"') + b"\n\n"
    stream = Canned(200, body, {"Content-Type": "text/event-stream"})
    with canned_server(lambda *_: stream) as base_url:
        result = _ask(runner, base_url, "hi")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "\N{GRINNING FACE}\n", "")


def _frames(events: list[Event]) -> list[bytes]:
    objects = [msgspec.json.decode(encode_event(event)) for event in events]
    return sse(objects, end=b"").body.strip().split(b"\n\n")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_on_a_terminal_a_last_line_tells_the_id_and_the_tokens(
    echo: Served, tmp_path: Path
) -> None:
    import pty

    master, terminal = pty.openpty()
    arguments = ["ask", "--base-url", echo.base_url, "hello \x1b[31m there"]
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", *arguments],
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        check=True,
    )
    os.close(terminal)
    said = os.read(master, 10_000).decode()
    os.close(master)
    answer, line = said.splitlines()[:2]
    assert done.returncode == 0
    # What a terminal would obey is shown, not obeyed.
    assert answer == "hello \N{REPLACEMENT CHARACTER}[31m there"
    assert re.search(r"resp_[\w-]+ · \d+ in, 3 out", line)
