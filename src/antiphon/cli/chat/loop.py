"""The loop of the chat: read a message, run a turn, show the answer, until the user quits.

A turn that fails is reported in one sentence. The conversation then continues from the last
complete turn, and the question is in the input line again. At a terminal, Ctrl-C ends the turn;
without a terminal it ends the program.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Final

from antiphon.cli.chat.keyboard import Cleared, Typed
from antiphon.cli.chat.session import Question
from antiphon.cli.chat.slash_commands import ChatContext, Quit, run_command
from antiphon.cli.errors import CliError
from antiphon.cli.terminal import call_line, harmless, shorten
from antiphon.gateway.errors import BadSettings
from antiphon.protocol.errors import AntiphonError
from antiphon.wires.host.parts import ToolCallPart

__all__ = ["Chat"]

_PROMPT: Final = "> "
_LEAVING: Final = ("exit", "quit")
_MAX_NAME: Final = 40


class Chat:
    """One user with a screen, a keyboard and a session."""

    def __init__(self, context: ChatContext) -> None:
        self._context = context
        self._offer = ""
        self._went_well = True
        self._interrupts = 0
        self._has_explained_tools = False

    def run(self) -> bool:
        """Chat until the user quits. Return whether everything succeeded."""
        while True:
            try:
                typed = self._context.keyboard.read(_PROMPT, self._offer)
            except EOFError:
                return self._went_well
            except Cleared:
                self._interrupts, self._offer = 0, ""
                continue
            except KeyboardInterrupt:
                if not self._continues():
                    return self._went_well
                continue
            except BadSettings as error:
                self._complain(error.message)
                continue
            self._interrupts, self._offer = 0, ""
            try:
                self._handle(typed)
            except Quit:
                return self._went_well

    def _continues(self) -> bool:
        """Return whether the chat continues after Ctrl-C at the prompt: it does the first time."""
        self._refuse_without_terminal()
        self._offer = ""
        if self._context.keyboard.has_text:
            self._interrupts = 0
            return True
        self._interrupts += 1
        if self._interrupts == 1:
            self._context.screen.note("press Ctrl-C again or Ctrl-D to quit")
        return self._interrupts == 1

    def _refuse_without_terminal(self) -> None:
        if not self._context.keyboard.is_terminal:
            raise KeyboardInterrupt

    def _handle(self, typed: Typed) -> None:
        """Do what was typed, and report what goes wrong."""
        is_leaving = not typed.is_literal and typed.text.strip() in _LEAVING
        # Through a pipe it is a question like every other line.
        if is_leaving and self._context.keyboard.is_terminal:
            raise Quit
        try:
            if typed.is_literal or not typed.text.startswith("/"):
                self._take_turn(typed, typed.text)
            elif typed.text.startswith("//"):
                self._take_turn(typed, typed.text[1:])
            else:
                run_command(self._context, typed.text)
        except KeyboardInterrupt:
            self._refuse_without_terminal()
            self._context.screen.note("cancelled")
            self._offer_again(typed)
        except AntiphonError as error:
            self._complain(self._context.explain(error))
        except CliError as error:
            self._complain(error.message)

    def _offer_again(self, typed: Typed) -> None:
        """Put a question into the input line to be changed; a longer text is in the history."""
        if typed.text.isprintable() and not typed.is_literal:
            self._offer = typed.text

    def _complain(self, sentence: str) -> None:
        self._went_well = False
        self._context.screen.complain(sentence)

    def _take_turn(self, typed: Typed, prompt: str) -> None:
        """Run a turn to its end. Offer the question again if the turn is not complete."""
        if not prompt.strip():
            return
        question = self._context.session.begin(prompt)
        self._offer_again(typed)
        if self._has_ended_well(question):
            self._context.session.keep(question)
            self._offer = ""

    def _has_ended_well(self, question: Question) -> bool:
        """Run all rounds of tool calls; return whether the turn is complete."""
        session, screen = self._context.session, self._context.screen
        while True:
            asking = partial(session.ask, question, screen.show)
            answer = self._context.run(screen.spin_during(asking))
            if answer.complaint:
                self._complain(answer.complaint)
            elif answer.is_silent:
                screen.note("(no text)")
            if not answer.calls:
                return answer.is_whole
            count = len(answer.calls)
            results = [
                (call, self._result_of(call, f"{number} of {count}" if count > 1 else ""))
                for number, call in enumerate(answer.calls, 1)
            ]
            session.answer(question, results)

    def _result_of(self, call: ToolCallPart, number: str) -> str | None:
        """Ask the user for the result of a call; return None if they decline."""
        if not self._has_explained_tools:
            self._has_explained_tools = True
            self._context.screen.note(
                "tools are not run here: type the result; an empty line declines the call"
            )
        name = shorten(harmless(call.name, sys.stderr), _MAX_NAME)
        prompt = f"result of {name}> "
        if number:  # several calls, maybe of one tool: the arguments distinguish them
            told = shorten(harmless(call_line(call), sys.stderr), _MAX_NAME)
            prompt = f"result {number}, {told}> "
        while True:
            try:
                typed = self._context.keyboard.read_once(prompt)
            except EOFError:
                raise CliError(f"the input ended before the result of {name}") from None
            except Cleared:
                continue
            return typed.text if typed.is_literal or typed.text.strip() else None
