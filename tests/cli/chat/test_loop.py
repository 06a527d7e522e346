"""The talk: who may interrupt whom, and what is offered again."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from antiphon.cli.chat.keyboard import Keyboard
from antiphon.cli.chat.loop import Chat
from antiphon.cli.chat.session import ChatSession, ChatSettings
from antiphon.cli.chat.slash_commands import ChatContext
from antiphon.cli.remote import open_client, own_server
from antiphon.cli.terminal import Screen
from antiphon.client.errors import StreamBroken
from antiphon.host.models import ModelDirectory
from tests.cli.chat.chatting import Typist
from tests.cli.processes import Served

_T = TypeVar("_T")


class _Talk:
    """A chat with the echo model in which some turns are interrupted, or fail."""

    def __init__(self, echo: Served, runner: asyncio.Runner) -> None:
        self.interrupted: set[int] = set()
        self.failing: set[int] = set()
        self.turns = 0
        self._runner = runner
        self.server = own_server(echo.base_url)
        client = open_client(self.server)
        directory = ModelDirectory(client.http, echo.base_url)
        self.screen = Screen()
        self.session = ChatSession(client, directory, ChatSettings(), self.screen.note)

    def run(self, work: Coroutine[Any, Any, _T], /) -> _T:
        self.turns += 1
        if self.turns in self.interrupted:
            work.close()
            raise KeyboardInterrupt
        if self.turns in self.failing:
            work.close()
            raise StreamBroken("gone")
        return self._runner.run(work)

    def with_keyboard(self, keyboard: Keyboard) -> bool:
        return Chat(ChatContext(self.session, self.server, keyboard, self.screen, self.run)).run()

    def close(self) -> None:
        self._runner.run(self.session.client.close())


@pytest.fixture
def talk(echo: Served) -> Iterator[_Talk]:
    with asyncio.Runner() as runner:
        found = _Talk(echo, runner)
        yield found
        found.close()


def test_a_cancelled_question_is_offered_again(
    talk: _Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    person = Typist("one", "two", "three")
    talk.interrupted = {2}
    assert talk.with_keyboard(Keyboard(editor=person))
    assert person.offers == ["", "", "two", ""]
    assert [turn.prompt for turn in talk.session.turns] == ["one", "three"]
    out, err = capfd.readouterr()
    assert out == "one\nthree\n"
    assert "cancelled\n" in err


def test_a_question_that_failed_is_offered_again(talk: _Talk) -> None:
    person = Typist("one", "two", "/fork 7", "three")
    talk.failing = {2}
    assert not talk.with_keyboard(Keyboard(editor=person))
    assert person.offers == ["", "", "two", "", ""]
    assert [turn.prompt for turn in talk.session.turns] == ["one", "three"]


def test_an_interrupt_within_a_block_clears_the_block_only(
    talk: _Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    interrupt = KeyboardInterrupt
    lines = (interrupt, '"""', "one", interrupt, "two\\", interrupt, interrupt, "three")
    assert talk.with_keyboard(Keyboard(editor=Typist(*lines)))
    assert [turn.prompt for turn in talk.session.turns] == ["three"]
    assert capfd.readouterr().err.count("Ctrl-C again") == 2


def test_a_question_of_several_lines_is_not_offered(talk: _Talk) -> None:
    person = Typist('"""one', 'line"""', "two\\", "lines")
    talk.interrupted = {1, 2}
    talk.with_keyboard(Keyboard(editor=person))
    assert set(person.offers) == {""}


def test_interrupting_twice_leaves(talk: _Talk, capfd: pytest.CaptureFixture[str]) -> None:
    interrupt = KeyboardInterrupt
    talk.with_keyboard(Keyboard(editor=Typist(interrupt, "one", interrupt, interrupt, "two")))
    out, err = capfd.readouterr()
    assert out.split() == ["one"]
    assert err.count("Ctrl-C again") == 2


def test_an_interrupt_clears_what_was_offered(talk: _Talk) -> None:
    person = Typist("one", KeyboardInterrupt)
    talk.interrupted = {1}
    talk.with_keyboard(Keyboard(editor=person))
    assert person.offers == ["", "one", ""]


def test_without_a_terminal_an_interrupt_ends_everything(talk: _Talk) -> None:
    at_prompt = Keyboard(read=Typist(KeyboardInterrupt).read_once)
    with pytest.raises(KeyboardInterrupt):
        talk.with_keyboard(at_prompt)
    talk.interrupted = {1}
    in_turn = Keyboard(read=Typist("one").read_once)
    with pytest.raises(KeyboardInterrupt):
        talk.with_keyboard(in_turn)


@pytest.mark.parametrize("word", ["exit", "quit", "/quit", " exit "])
def test_a_person_leaves_with_a_word(talk: _Talk, word: str) -> None:
    assert talk.with_keyboard(Keyboard(editor=Typist(word, "not asked")))
    assert talk.turns == 0


def test_through_a_pipe_exit_is_a_question_like_every_line(
    talk: _Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    assert talk.with_keyboard(Keyboard(read=Typist("exit", "more").read_once))
    assert capfd.readouterr().out == "exit\nmore\n"


def test_a_line_that_cannot_be_sent_is_refused_and_the_talk_goes_on(
    talk: _Talk, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not talk.with_keyboard(Keyboard(editor=Typist("caf\udce9", "tea")))
    out, err = capfd.readouterr()
    assert out == "tea\n"
    assert "Error: the line is not valid UTF-8" in err
