"""`antiphon bench` as a person runs it: the table, the files, the guard, and what fails."""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from click.testing import CliRunner, Result

from antiphon.cli import main
from antiphon.testing import ScriptedUpstream
from tests.cli.canned import Canned, Json, canned_server, hello_events, sse
from tests.cli.processes import closed_port

_LISTED = Canned(200, b'{"object": "list", "data": [{"id": "m", "object": "model"}]}')


def _bench(runner: CliRunner, *arguments: str) -> Result:
    return runner.invoke(main, ["bench", *arguments])


def _cells(result: Result, mode: str) -> list[str]:
    """Return the cells of a mode, what it sent and what it took."""
    rows = (line.split() for line in result.stdout.splitlines())
    sent, took = (row for row in rows if row[:1] == [mode] and row[1] != "failed")
    return [*sent, *took[1:]]


def _failures(result: Result) -> list[str]:
    return [line for line in result.stdout.splitlines() if " failed in " in line]


def _hello(method: str, path: str, body: Json) -> Canned:
    return _LISTED if path == "/models" else sse(hello_events())


@pytest.mark.requirement("22-E3")
def test_three_modes_are_compared_without_any_server(runner: CliRunner) -> None:
    result = _bench(runner, "--turns", "3", "--prompt-words", "12")

    assert result.exit_code == 0
    chat, stateless, stateful = (_cells(result, m) for m in ("chat", "stateless", "stateful"))
    assert [row[1] for row in (chat, stateless, stateful)] == ["3", "3", "3"]
    # Items: the whole conversation twice (chat has a system message too), and one a turn.
    assert [row[4] for row in (chat, stateless, stateful)] == ["12", "9", "3"]
    assert chat[3] == chat[6] == "1.00x"
    assert stateless[5:7] == chat[5:7]
    assert float(stateful[6].rstrip("x")) < 0.6
    assert chat[7:10] == stateless[7:10] == stateful[7:10]
    assert "~ is an estimate" in result.stdout


def test_it_says_who_answers_and_how_far_it_is(runner: CliRunner) -> None:
    result = _bench(runner, "--turns", "2", "--modes", "chat")
    first, *progress = result.stderr.splitlines()
    assert "a scripted model at http://127.0.0.1:" in first
    assert progress == ["turn 1 of 2", "turn 2 of 2"]


def test_ratios_are_to_the_first_mode(runner: CliRunner) -> None:
    result = _bench(runner, "--turns", "2", "--modes", "stateful, chat")
    assert "ratios to stateful" in result.stdout
    assert _cells(result, "stateful")[6] == "1.00x"
    assert float(_cells(result, "chat")[6].rstrip("x")) > 1


@pytest.mark.requirement("22-E3")
def test_json_holds_every_turn(runner: CliRunner, tmp_path: Path) -> None:
    _bench(runner, "--turns", "3", "--json", "b.json")
    report = msgspec.json.decode((tmp_path / "b.json").read_bytes())

    assert (report["turns"], report["model"], report["is_scripted"]) == (3, "echo", True)
    sent = {m["mode"]: [t["tokens_sent"] for t in m["turns"]] for m in report["modes"]}
    assert sent["chat"] == sent["stateless"] == sorted(set(sent["chat"]))
    assert max(sent["stateful"]) - min(sent["stateful"]) <= 2
    for mode in report["modes"]:
        assert mode["failure"] is None
        assert mode["totals"]["bytes_sent"] == sum(t["bytes_sent"] for t in mode["turns"])
        for turn in mode["turns"]:
            assert turn["requests"] == 1
            assert turn["is_counted"]
            assert 0 < turn["first_event_seconds"] <= turn["first_text_seconds"] <= turn["seconds"]


@pytest.mark.requirement("22-E3")
def test_the_plot_is_drawn_as_the_name_of_the_file_says(runner: CliRunner, tmp_path: Path) -> None:
    assert _bench(runner, "--turns", "2", "--plot", "b.svg").exit_code == 0
    assert _bench(runner, "--turns", "2", "--plot", "b.PNG").exit_code == 0

    assert ElementTree.parse(tmp_path / "b.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "b.PNG").read_bytes().startswith(b"\x89PNG\r\n")


def test_without_matplotlib_nothing_is_sent_and_a_sentence_says_what_to_do(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = _bench(runner, "--turns", "1", "--plot", "b.svg")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: --plot: matplotlib is missing; `pip install '.[plot]'` in antiphon's directory "
        "brings it\n"
    )


def test_your_own_questions_make_the_conversation(runner: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "questions.txt").write_text("Why is the sky blue?\n\n And at night? \nAnd?\n")
    asked: list[str] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        asked.append(body["input"])
        return sse(hello_events())

    with canned_server(answer) as base_url:
        arguments = ["--base-url", base_url, "-m", "m", "--modes", "stateful"]
        result = _bench(runner, *arguments, "--prompts", "questions.txt")
        _bench(runner, *arguments, "--prompts", "questions.txt", "--turns", "1")
    assert asked == ["Why is the sky blue?", "And at night?", "And?", "Why is the sky blue?"]
    assert result.stdout.startswith("3 turns with m: your questions, answers of at most 64 tokens")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--modes", "chat,telepathy"], "there is no mode 'telepathy'; the modes are chat, "),
        (["--modes", "chat,chat"], "name each mode once"),
        (["--plot", "b.pdf"], "'b.pdf' must end in .svg or .png"),
        (["--plot", "nowhere/b.svg"], "--plot: there is no directory nowhere"),
        (["--json", "nowhere/b.json"], "--json: there is no directory nowhere"),
        (["--prompts", "empty.txt"], "--prompts: there is no question in empty.txt"),
        (["--prompts", "latin.txt"], "--prompts: latin.txt cannot be read"),
        (["--prompts", "two.txt", "--turns", "3"], "there are only 2 questions in --prompts"),
        (["--prompts", "two.txt", "--prompt-words", "9"], "for generated questions"),
        (["--chat-url", "http://127.0.0.1:1/v1"], "--chat-url and keys need --base-url"),
        (["--base-url", "http://127.0.0.1:1/v1", "--key-env", "NO_KEY"], "NO_KEY is not set"),
        (
            ["--base-url", "http://a/v1", "--chat-url", "http://b/v1", "--chat-key-env", "NO_KEY"],
            "--chat-key-env: the environment variable NO_KEY is not set",
        ),
        (["--base-url", "ftp://a/v1"], "does not begin with http"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    runner: CliRunner, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "two.txt").write_text("one\ntwo\n")
    result = _bench(runner, *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""


def test_a_server_elsewhere_is_asked_only_if_allowed(runner: CliRunner) -> None:
    asked = []

    def answer(method: str, path: str, body: Json) -> Canned:
        asked.append(path)
        return _hello(method, path, body)

    with canned_server(answer) as base_url:
        # No loopback address by its name, though it leads here.
        url = base_url.replace("127.0.0.1", "0.0.0.0")
        arguments = ["--base-url", url, "--modes", "stateless,stateful", "--turns", "2"]
        refused = _bench(runner, *arguments)
        assert asked == []
        allowed = _bench(runner, *arguments, "--yes")

    assert refused.exit_code == 2
    assert f"this would send requests, 4 to {url}, " in refused.stderr
    assert "--yes" in refused.stderr
    assert allowed.exit_code == 0
    assert f"sending requests: 4 to {url}, after one for the list" in allowed.stderr
    assert asked == ["/models", *["/responses"] * 4]


def test_loopback_needs_no_permission_and_both_servers_are_named(runner: CliRunner) -> None:
    with canned_server(_hello) as base_url:
        chat_url = base_url.replace("/v1", "/chat/v1")
        result = _bench(
            runner, "--base-url", base_url, "--chat-url", chat_url, "--turns", "1", "-m", "m"
        )
    said = result.stderr.splitlines()[0]
    assert said == f"sending requests: 1 to {chat_url} and 2 to {base_url}"


def _hello_without_chat(method: str, path: str, body: Json) -> Canned:
    if path == "/chat/completions":
        error = {"message": "there is nothing here", "code": "unknown_url"}
        return Canned(404, msgspec.json.encode({"error": error}))
    return _hello(method, path, body)


def test_a_mode_that_fails_is_a_row_with_the_reason_and_the_others_go_on(
    runner: CliRunner, tmp_path: Path
) -> None:
    with canned_server(_hello_without_chat) as base_url:
        result = _bench(
            runner, "--base-url", base_url, "--turns", "2", "--json", "b.json", "--plot", "b.svg"
        )
    assert result.exit_code == 1
    assert _cells(result, "stateful")[1] == "2"
    (failure,) = _failures(result)
    assert failure.startswith("chat failed in turn 1: ")
    # The server has no such path; and what there is, is compared all the same.
    assert failure.endswith("--chat-url, or pass --modes stateless,stateful")
    assert "ratios to stateless;" in result.stdout
    assert _cells(result, "stateless")[3] == "1.00x"
    report = msgspec.json.decode((tmp_path / "b.json").read_bytes())
    assert [mode["failure"] is None for mode in report["modes"]] == [False, True, True]
    assert (tmp_path / "b.svg").exists()


@pytest.mark.parametrize(
    ("listing", "sentence"),
    [
        (Canned(200, b'{"object": "list", "data": []}'), "lists no models; pass --model NAME"),
        (Canned(404, b'{"error": {"message": "nothing here"}}'), "nothing here; pass --model NAME"),
        (Canned(200, b"<p>"), "; pass --model NAME"),
    ],
)
def test_a_model_that_cannot_be_found_out_must_be_named(
    runner: CliRunner, listing: Canned, sentence: str
) -> None:
    with canned_server(lambda *_: listing) as base_url:
        result = _bench(runner, "--base-url", base_url)
    assert result.exit_code == 1
    assert sentence in result.stderr


@pytest.mark.parametrize(
    ("flags", "source"),
    [
        ([], "the key is read from ANTIPHON_API_KEY, else OPENAI_API_KEY"),
        (["--key-env", "OUR_KEY"], "the key is read from OUR_KEY"),
    ],
)
def test_a_key_that_is_refused_is_no_reason_to_name_a_model(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, flags: list[str], source: str
) -> None:
    monkeypatch.setenv("OUR_KEY", "not-good")
    with canned_server(lambda *_: Canned(401, b'{"error": {"message": "no"}}')) as base_url:
        listed = _bench(runner, "--base-url", base_url, *flags)
        asked = _bench(runner, "--base-url", base_url, *flags, "-m", "m")
    assert listed.stderr.splitlines()[-1] == f"Error: the server refused (HTTP 401): no; {source}"
    assert _failures(asked)[0].endswith(f"the server refused (HTTP 401): no; {source}")


def test_a_server_that_is_away_is_asked_once_in_each_mode(runner: CliRunner) -> None:
    with closed_port() as port:
        base_url = f"http://127.0.0.1:{port}/v1"
        listed = _bench(runner, "--base-url", base_url)
        asked = _bench(runner, "--base-url", base_url, "-m", "m", "--plot", "b.svg", "--turns", "5")
    sentence = (
        f"no server answers at {base_url} (connection refused); "
        f"start one with `antiphon serve --port {port}`"
    )
    assert listed.stderr.splitlines()[-1] == f"Error: {sentence}"
    assert [line.partition(": ")[2] for line in _failures(asked)] == [sentence] * 3
    assert asked.stderr.splitlines()[1:] == [
        "turn 1 of 5",
        "Error: b.svg was not written: no mode completed a turn",
    ]
    assert not Path("b.svg").exists()


def test_an_interrupt_prints_what_was_measured_so_far(runner: CliRunner, tmp_path: Path) -> None:
    person = threading.get_ident()
    asked: list[str] = []

    def answer(method: str, path: str, body: Json) -> Canned:
        asked.append(path)
        if len(asked) < 4:
            return sse(hello_events())
        signal.pthread_kill(person, signal.SIGINT)
        return Canned(200, b"", stall=True)

    with canned_server(answer) as base_url:
        result = _bench(
            runner,
            *("--base-url", base_url, "-m", "m"),
            *("--modes", "stateless,stateful", "--json", "b.json"),
        )

    assert _failures(result) == []
    assert result.exit_code == 1
    assert (_cells(result, "stateless")[1], _cells(result, "stateful")[1]) == ("2", "1")
    assert "interrupted" in result.stderr
    assert (tmp_path / "b.json").exists()


def test_an_interrupt_before_the_first_turn_prints_no_table(runner: CliRunner) -> None:
    person = threading.get_ident()

    def answer(method: str, path: str, body: Json) -> Canned:
        signal.pthread_kill(person, signal.SIGINT)
        return Canned(200, b"", stall=True)

    with canned_server(answer) as base_url:
        result = _bench(runner, "--base-url", base_url)
    assert (result.exit_code, result.stdout) == (1, "")


def test_on_a_terminal_progress_is_one_line_that_goes_away() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    with (
        contextlib.redirect_stderr(Terminal()) as shown,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        main(["bench", "--turns", "1", "--modes", "chat"], standalone_mode=False)
    assert shown.getvalue().endswith("\r\x1b[Kturn 1 of 1\r\x1b[K")


def test_a_file_that_cannot_be_written_is_an_error_after_the_table(runner: CliRunner) -> None:
    result = _bench(runner, "--turns", "1", "--json", "x" * 300)
    assert result.exit_code == 1
    assert _cells(result, "stateful")[1] == "1"
    assert "cannot be written: File name too long" in result.stderr


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ([], None),
        (["--chat-key-env", "CHAT_KEY"], "Bearer of-the-chat-server"),
    ],
)
async def test_a_key_goes_only_to_the_server_it_is_for(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, flags: list[str], key: str | None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-responses-server")
    monkeypatch.setenv("OPENAI_ORG_ID", "ours")
    monkeypatch.setenv("CHAT_KEY", "of-the-chat-server")
    async with ScriptedUpstream() as upstream, ScriptedUpstream() as other:
        urls = ["--base-url", other.base_url, "--chat-url", upstream.base_url, *flags]
        await _bench_beside(runner, *urls)
    (request,) = upstream.requests
    assert request.headers.get("authorization") == key
    assert "openai-organization" not in request.headers


@pytest.mark.parametrize("chat_url", [[], ["--chat-url"]])
async def test_the_same_server_gets_the_same_key(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, chat_url: list[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-server")
    monkeypatch.setenv("OPENAI_ORG_ID", "ours")
    async with ScriptedUpstream() as upstream:
        flags = [*chat_url, upstream.base_url] if chat_url else []
        await _bench_beside(runner, "--base-url", upstream.base_url, *flags)
    (request,) = upstream.requests
    assert request.headers["authorization"] == "Bearer of-the-server"
    assert request.headers["openai-organization"] == "ours"


async def _bench_beside(runner: CliRunner, *arguments: str) -> None:
    """Run one turn of chat in a thread, because the servers live in this one's loop."""
    flags: list[Any] = ["--turns", "1", "--modes", "chat", "-m", "echo"]
    result = await asyncio.to_thread(_bench, runner, *flags, *arguments)
    assert result.exit_code == 0


def test_help_shows_an_example(runner: CliRunner) -> None:
    shown = _bench(runner, "--help")
    assert "antiphon bench --modes chat,stateless,stateful" in " ".join(shown.output.split())
