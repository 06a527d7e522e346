"""The talk itself: read what the person says, show what the model says, until one leaves.

Whatever goes wrong with a turn is one sentence, and the talk goes on from the last whole turn.
On a terminal, Ctrl-C ends the turn and not the program; without one there is nobody who could
mean anything else by it.
"""

from __future__ import annotations

import sys
from typing import Final

from antiphon.cli.chat_commands import Desk, Leave, obey
from antiphon.cli.chat_keyboard import Typed
from antiphon.cli.errors import CliError
from antiphon.cli.remote import explain
from antiphon.cli.terminal import harmless, shorten
from antiphon.host.parts import ToolCallPart
from antiphon.protocol.errors import AntiphonError

__all__ = ["Chat"]

_PROMPT: Final = "> "
_MAX_NAME: Final = 40


class Chat:
    """One person at a desk."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._offer = ""
        self._went_well = True
        self._interrupts = 0
        self._has_explained_tools = False

    def run(self) -> bool:
        """Talk until the person leaves. Return whether everything went well."""
        while True:
            try:
                typed = self._desk.keyboard.read(_PROMPT, self._offer)
            except EOFError:
                self._end_prompt()
                return self._went_well
            except KeyboardInterrupt:
                if not self._stays():
                    return self._went_well
                continue
            self._interrupts, self._offer = 0, ""
            try:
                self._hear(typed)
            except Leave:
                return self._went_well

    def _stays(self) -> bool:
        """Say whether the talk goes on after Ctrl-C at the prompt: it does, the first time."""
        self._refuse_without_terminal()
        self._end_prompt()
        self._offer = ""
        if self._desk.keyboard.has_text:
            self._interrupts = 0
            return True
        self._interrupts += 1
        if self._interrupts == 1:
            self._desk.screen.note("Ctrl-C once more leaves, and so does Ctrl-D")
        return self._interrupts == 1

    def _end_prompt(self) -> None:
        if self._desk.keyboard.is_terminal:
            self._desk.screen.tell("")

    def _refuse_without_terminal(self) -> None:
        if not self._desk.keyboard.is_terminal:
            raise KeyboardInterrupt

    def _hear(self, typed: Typed) -> None:
        """Do what was typed; whatever goes wrong is told here."""
        try:
            if typed.is_literal or not typed.text.startswith("/"):
                self._take_turn(typed.text)
            elif typed.text.startswith("//"):
                self._take_turn(typed.text[1:])
            else:
                obey(self._desk, typed.text)
        except KeyboardInterrupt:
            self._refuse_without_terminal()
            self._desk.screen.note("cancelled")
            # To be changed and sent again. A text of several lines can be called up.
            self._offer = typed.text if typed.text.isprintable() and not typed.is_literal else ""
        except AntiphonError as error:
            self._complain(explain(error, self._desk.session.client.base_url))
        except CliError as error:
            self._complain(error.message)

    def _complain(self, sentence: str) -> None:
        self._went_well = False
        self._desk.screen.complain(sentence)

    def _take_turn(self, prompt: str) -> None:
        """Run a turn to its end, through all rounds of tool calls."""
        if not prompt.strip():
            return
        session = self._desk.session
        question = session.begin(prompt)
        while True:
            answer = self._desk.run(session.ask(question, self._desk.screen.show))
            if answer.complaint:
                self._complain(answer.complaint)
            if not answer.calls:
                break
            results = [(call, self._result_of(call)) for call in answer.calls]
            session.answer(question, results)
        if answer.is_whole:
            session.keep(question)

    def _result_of(self, call: ToolCallPart) -> str | None:
        """Ask for the result of a call; None if the person declines it."""
        if not self._has_explained_tools:
            self._has_explained_tools = True
            self._desk.screen.note("nothing is run here: type the result; an empty line declines")
        name = shorten(harmless(call.name, sys.stdout), _MAX_NAME)
        try:
            typed = self._desk.keyboard.read_once(f"result of {name}> ")
        except EOFError:
            self._end_prompt()
            raise CliError(f"the input ended before the result of {name}") from None
        return typed.text if typed.is_literal or typed.text.strip() else None
