"""What is typed: blocks, lines that go on, and what is kept of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from antiphon.cli.chat_keyboard import HISTORY_LENGTH, History, Keyboard, Typed
from antiphon.cli.errors import BadSettings

pytest.importorskip("readline", reason="this Python edits no lines")


@pytest.fixture(autouse=True)
def own_readline() -> Iterator[None]:
    """Leave readline as it was found."""
    import readline

    yield
    readline.clear_history()
    readline.set_auto_history(True)


def typing(*lines: str) -> Callable[[str], str]:
    """Return how somebody reads who types these lines and leaves."""
    waiting = iter(lines)

    def read(_: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return read


def _typed(*lines: str) -> Typed:
    return Keyboard(is_terminal=False, read=typing(*lines)).read("> ")


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

    Keyboard(is_terminal=False, read=read).read("> ")
    Keyboard(is_terminal=True, read=read).read("> ")
    assert prompts == ["", "> "]


def test_a_line_that_is_left_is_ended_where_its_prompt_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def leave(_: str) -> str:
        raise KeyboardInterrupt

    for on_stderr in (False, True):
        keyboard = Keyboard(is_terminal=True, prompts_on_stderr=on_stderr, read=leave)
        with pytest.raises(KeyboardInterrupt):
            keyboard.read("> ")
    with pytest.raises(KeyboardInterrupt):
        Keyboard(is_terminal=False, read=leave).read("> ")
    assert capfd.readouterr() == ("\n", "> \n")


def test_without_a_terminal_an_interrupt_within_a_block_is_one() -> None:
    lines = iter(['"""'])

    def read(_: str) -> str:
        for line in lines:
            return line
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Keyboard(is_terminal=False, read=read).read("> ")


def test_a_line_with_bytes_that_are_not_utf8_is_refused() -> None:
    with pytest.raises(BadSettings, match=r"the line is not valid UTF-8 \(byte 0xff\)"):
        _typed("a\udcffb")


@pytest.mark.parametrize(("answer", "is_yes"), [("y", True), (" Yes", True), ("", False)])
def test_a_question_is_answered_with_yes_or_not(answer: str, is_yes: bool) -> None:
    assert Keyboard(is_terminal=True, read=typing(answer)).confirm("Sure?") is is_yes


def test_nobody_is_asked_without_a_terminal() -> None:
    assert not Keyboard(is_terminal=False, read=typing("y")).confirm("Sure?")


def test_messages_are_kept_and_results_are_not(tmp_path: Path) -> None:
    keyboard = _with_history(tmp_path, "hello", "  ", "a result", '"""/two', 'lines"""')
    keyboard.read("> ")
    keyboard.read("> ")
    keyboard.read_once("result> ")
    keyboard.read("> ", offer="something")
    assert _kept(tmp_path) == ["hello", "//two\nlines"]


def test_what_was_kept_can_be_called_up(tmp_path: Path) -> None:
    import readline

    _with_history(tmp_path, "one\\", "two").read("> ")
    with (tmp_path / "new" / "history").open("a") as file:
        file.write('nonsense\n["no text"]\n')
    readline.clear_history()
    _with_history(tmp_path)
    assert readline.get_current_history_length() == 1
    assert readline.get_history_item(1) == "one\ntwo"


def test_the_history_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join(f"{json.dumps(str(n))}\n" for n in range(2 * HISTORY_LENGTH + 1)))
    messages = History(path, pytest.fail).load()
    assert (len(messages), messages[-1]) == (HISTORY_LENGTH, str(2 * HISTORY_LENGTH))
    assert len(path.read_text().splitlines()) == HISTORY_LENGTH


def test_a_history_that_cannot_be_read_is_told_and_done_without(tmp_path: Path) -> None:
    complaints: list[str] = []
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / "history", complaints.append)
    keyboard = Keyboard(is_terminal=True, history=history, read=typing("hello"))
    assert keyboard.read("> ") == Typed("hello")
    (complaint,) = complaints
    assert complaint.startswith("the history cannot be kept in ")


def test_a_history_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    complaints: list[str] = []
    history = History(tmp_path / "history", complaints.append)
    history.load()
    (tmp_path / "history").unlink()
    (tmp_path / "history").mkdir()
    history.add("one")
    history.add("two")
    assert len(complaints) == 1


def test_a_python_without_readline_reads_lines_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "readline", None)
    keyboard = _with_history(tmp_path, "hello")
    assert keyboard.read("> ", offer="something") == Typed("hello")
    assert not keyboard.has_text


def _with_history(place: Path, *lines: str) -> Keyboard:
    history = History(place / "new" / "history", pytest.fail)
    return Keyboard(is_terminal=True, history=history, read=typing(*lines))


def _kept(place: Path) -> list[str]:
    lines = (place / "new" / "history").read_text().splitlines()
    return [json.loads(line) for line in lines]
