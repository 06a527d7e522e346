"""How is a line edited at a terminal? A thin layer over prompt_toolkit.

It brings what people expect of a prompt: arrow keys, history, completion with Tab, and pasted
text that stays one message however many lines it has (bracketed paste). This module is imported
only when a chat runs at a terminal, because prompt_toolkit takes a while to load.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.history import DummyHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.shortcuts import CompleteStyle

__all__ = ["Complete", "Editor"]

Complete = Callable[[str], Iterable[str]]
"""Returns the lines that the text of a line may become."""


class Editor:
    """Reads lines at a terminal; prompts and typed text are shown on `stream`."""

    def __init__(self, stream: TextIO, complete: Complete = lambda _: ()) -> None:
        self._messages = _Messages()
        output, keys = _output(stream), _key_bindings()
        self._main: PromptSession[str] = PromptSession(
            history=self._messages,
            completer=_LineCompleter(complete),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=keys,
            output=output,
        )
        self._once: PromptSession[str] = PromptSession(
            history=DummyHistory(), key_bindings=keys, output=output
        )
        self._last = self._main

    def read(self, prompt: str, offer: str = "") -> str:
        """Return a line; `offer` stands in it already. Raise EOFError or KeyboardInterrupt."""
        self._last = self._main
        return self._main.prompt(prompt, default=offer)

    def read_once(self, prompt: str) -> str:
        """Return a line that is neither completed nor remembered."""
        self._last = self._once
        return self._once.prompt(prompt)

    @property
    def has_text(self) -> bool:
        """Return whether the line that was left last had text in it."""
        return bool(self._last.default_buffer.text)

    def remember(self, message: str) -> None:
        """Let the arrow keys call this message up."""
        self._messages.remember(message)


class _Messages(InMemoryHistory):
    """The messages of the chat. A line is not one yet: a message may have several lines."""

    def append_string(self, string: str) -> None:
        pass

    def remember(self, message: str) -> None:
        super().append_string(message)


class _LineCompleter(Completer):
    def __init__(self, complete: Complete) -> None:
        self._complete: Final = complete

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterator[Completion]:
        text = document.text_before_cursor
        # Only the last word is shown and replaced; what stands before it is right already.
        start = text.rfind(" ") + 1
        for line in self._complete(text):
            yield Completion(line[start:], start_position=start - len(text))


def _output(stream: TextIO) -> Output:
    if sys.platform == "win32":
        return create_output(stream)
    from prompt_toolkit.output.vt100 import Vt100_Output

    # Without questions to the terminal where its cursor is: some never answer, and their
    # users would read a warning.
    return Vt100_Output(
        stream, lambda: _size(stream), term=os.environ.get("TERM"), enable_cpr=False
    )


def _size(stream: TextIO) -> Size:
    # Over some serial lines a terminal has no size.
    columns, rows = os.get_terminal_size(stream.fileno())
    return Size(rows=rows or 24, columns=columns or 80)


def _key_bindings() -> KeyBindings:
    keys = KeyBindings()

    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        buffer = event.current_buffer
        # A pasted text of several lines is never a command.
        if not buffer.text and text.startswith("/") and "\n" in text:
            text = f"/{text}"
        buffer.insert_text(text)

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
