"""What is typed: blocks, lines that go on, and what is kept of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from antiphon.cli.chat.keyboard import HISTORY_LENGTH, History, Keyboard, Typed
from antiphon.gateway.errors import BadSettings
from tests.cli.chat.chatting import Typist


def _typed(*lines: str) -> Typed:
    return Keyboard(read=Typist(*lines).read_once).read("> ")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["hello"], "hello"),
        (["one\\", "two\\", "three", "four"], "one\ntwo\nthree"),
        (["one\\"], "one"),
        (["/new \\", "x"], "/new \nx"),
    ],
)
def test_a_line_that_ends_in_a_backslash_goes_on(lines: list[str], text: str) -> None:
    assert _typed(*lines) == Typed(text)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (['"""', "one", "", " two\\", '"""', "three"], "one\n\n two\\"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""/new"""'], "/new"),
        (['"""', "one"], "one"),
        (['"""', '"""'], ""),
    ],
    ids=["lines", "inline", "single", "unfinished", "empty"],
)
def test_three_quotes_open_and_close_a_block(lines: list[str], text: str) -> None:
    assert _typed(*lines) == Typed(text, is_literal=True)


def test_the_end_of_the_input_is_told() -> None:
    with pytest.raises(EOFError):
        _typed()


def test_without_a_terminal_there_is_no_prompt() -> None:
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return "x"

    Keyboard(read=read).read("> ")
    assert prompts == [""]


@pytest.mark.parametrize("text", ["one\n two\\\n", '"""Doc."""\nimport os', "/a\nb"])
def test_a_text_that_was_pasted_is_a_message_as_it_is(text: str) -> None:
    assert Keyboard(editor=Typist(text, "more")).read("> ") == Typed(text)


def test_without_a_terminal_an_interrupt_within_a_block_is_one() -> None:
    lines = iter(['"""'])

    def read(_: str) -> str:
        for line in lines:
            return line
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Keyboard(read=read).read("> ")


def test_a_line_with_bytes_that_are_not_utf8_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"the line is not valid UTF-8 \(byte 0xff\)"):
        _typed("a\udcffb")


@pytest.mark.parametrize(("answer", "is_yes"), [("y", True), (" Yes", True), ("", False)])
def test_a_question_is_answered_with_yes_or_not(answer: str, is_yes: bool) -> None:
    assert Keyboard(editor=Typist(answer)).confirm("Sure?") is is_yes


def test_nobody_is_asked_without_a_terminal() -> None:
    assert not Keyboard(read=Typist("y").read_once).confirm("Sure?")


def test_messages_are_kept_and_results_are_not(tmp_path: Path) -> None:
    keyboard = _with_history(tmp_path, "hello", "  ", "a result", '"""/two', 'lines"""')
    keyboard.read("> ")
    keyboard.read("> ")
    keyboard.read_once("result> ")
    keyboard.read("> ", offer="something")
    assert _kept(tmp_path) == ["hello", "//two\nlines"]


def test_what_was_kept_can_be_called_up(tmp_path: Path) -> None:
    _with_history(tmp_path, "one\\", "two").read("> ")
    with (tmp_path / "new" / "history").open("a") as file:
        file.write('nonsense\n["no text"]\n')
    person = Typist("three")
    keyboard = Keyboard(editor=person, history=History(tmp_path / "new" / "history", pytest.fail))
    keyboard.read("> ")
    assert person.remembered == ["one\ntwo", "three"]


def test_the_history_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"{json.dumps(str(n))}\n" for n in range(2 * HISTORY_LENGTH + 1)))
    messages = History(path, pytest.fail).load()
    assert (len(messages), messages[-1]) == (HISTORY_LENGTH, str(2 * HISTORY_LENGTH))
    assert len(path.read_text().splitlines()) == HISTORY_LENGTH


@pytest.mark.skipif(sys.platform == "win32", reason="modes of files are Unix's")
@pytest.mark.parametrize(("mode", "expected"), [(0o644, 0o600), (0o660, 0o600), (0o400, 0o400)])
def test_a_history_that_others_could_read_is_closed_to_them(
    tmp_path: Path, mode: int, expected: int
) -> None:
    path = tmp_path / "history"
    path.write_text('"hello"\n')
    path.chmod(mode)
    assert History(path, pytest.fail).load() == ["hello"]
    assert path.stat().st_mode & 0o777 == expected


def test_a_history_that_cannot_be_read_is_told_and_done_without(tmp_path: Path) -> None:
    complaints: list[str] = []
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / "history", complaints.append)
    keyboard = Keyboard(editor=Typist("hello"), history=history)
    assert keyboard.read("> ") == Typed("hello")
    (complaint,) = complaints
    assert complaint.startswith("the history cannot be saved in ")


def test_a_history_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    complaints: list[str] = []
    history = History(tmp_path / "history", complaints.append)
    history.load()
    (tmp_path / "history").unlink()
    (tmp_path / "history").mkdir()
    history.add("one")
    history.add("two")
    assert len(complaints) == 1


def _with_history(place: Path, *lines: str) -> Keyboard:
    history = History(place / "new" / "history", pytest.fail)
    return Keyboard(editor=Typist(*lines), history=history)


def _kept(place: Path) -> list[str]:
    lines = (place / "new" / "history").read_text().splitlines()
    return [json.loads(line) for line in lines]
