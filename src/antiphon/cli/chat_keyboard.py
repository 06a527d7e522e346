"""What does the person say next?

One message at a time. A line that ends in a backslash goes on in the next one; a line that
begins with three quotes opens a block, which ends with three quotes. What stands in a block is
said as it is, and never a command. The end of the input ends an open block, too.

On a terminal, lines are edited with readline where Python has it, and kept in a file of the
user's own: one JSON string per line, because a message may have several lines.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

import click
import msgspec

from antiphon.cli.options import check_text

__all__ = ["HISTORY_LENGTH", "Cleared", "History", "Keyboard", "Typed"]

HISTORY_LENGTH: Final = 1000
_BLOCK: Final = '"""'
_MORE: Final = "… "


class Cleared(Exception):
    """The person took back a text of several lines before it was whole."""


class Typed(msgspec.Struct, frozen=True):
    """A message. One that was typed as a block `is_literal`: it is no command."""

    text: str
    is_literal: bool = False


class History:
    """What was typed before, in a file that only its owner can read.

    `complain` is told once if nothing more can be written.
    """

    def __init__(self, path: Path, complain: Callable[[str], None]) -> None:
        self._path: Path | None = path
        self._complain = complain

    def load(self) -> list[str]:
        """Return the messages, oldest first; make the file if it is not there."""
        assert self._path is not None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            lines = self._path.read_text("utf-8", "replace").splitlines()
            if len(lines) > 2 * HISTORY_LENGTH:
                lines = lines[-HISTORY_LENGTH:]
                self._path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        except OSError as error:
            self._give_up(error)
            return []
        return [message for line in lines if (message := _read_entry(line))]

    def add(self, message: str) -> None:
        """Write a message down."""
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(message) + "\n")
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._complain(f"the history cannot be kept in {self._path} ({error.strerror})")
        self._path = None


def _read_entry(line: str) -> str:
    """Return the message of a line, or nothing if somebody else wrote it."""
    try:
        message = json.loads(line)
    except ValueError:
        return ""
    return message if isinstance(message, str) else ""


class Keyboard:
    """Reads messages with `read`, which is `input` or does the same.

    Without a terminal there is nothing to prompt, edit or remember. Where only stderr is seen,
    it has the prompts, and nothing is edited. A line that is left before it was typed to its
    end is ended, so that whatever is said next has one of its own.
    """

    def __init__(
        self,
        *,
        is_terminal: bool,
        history: History | None = None,
        prompts_on_stderr: bool = False,
        read: Callable[[str], str] = input,
    ) -> None:
        self.is_terminal: Final = is_terminal
        self._prompts_on_stderr = prompts_on_stderr
        self._read = read
        self._readline = _load_readline() if is_terminal and not prompts_on_stderr else None
        self._history = history if self._readline else None
        if self._readline is not None:
            # Results of tools and answers to questions are nothing to come back to.
            self._readline.set_auto_history(False)
            self._readline.clear_history()
            for message in self._history.load() if self._history else ():
                self._readline.add_history(message)

    def read(self, prompt: str, offer: str = "") -> Typed:
        """Return a message that can be called up again; `offer` stands in the line already."""
        typed = self.read_once(prompt, offer)
        if typed.text.strip():
            self._remember(typed)
        return typed

    def read_once(self, prompt: str, offer: str = "") -> Typed:
        """Return a message that is not remembered. Raise EOFError when there are no more.

        A line that is not valid text in its encoding raises BadSettings.

        At a terminal, Ctrl-C within a text of several lines raises Cleared.
        """
        line = self._read_line(prompt, offer)
        if line.startswith(_BLOCK):
            return Typed(self._read_block(line.removeprefix(_BLOCK)), is_literal=True)
        while line.endswith("\\"):
            more = self._read_more()
            line = line[:-1] if more is None else f"{line[:-1]}\n{more}"
        return Typed(line)

    def confirm(self, question: str) -> bool:
        """Return whether the answer is yes. Without a terminal nobody can be asked: no."""
        if not self.is_terminal:
            return False
        return self._read_line(f"{question} [y/N] ").strip().lower() in ("y", "yes")

    @property
    def has_text(self) -> bool:
        """Say whether the line that was interrupted had something in it, as far as we know."""
        return bool(self._readline and self._readline.get_line_buffer())

    def _read_block(self, line: str) -> str:
        lines: list[str] = []
        more: str | None = line
        while more is not None and not more.rstrip().endswith(_BLOCK):
            lines.append(more)
            more = self._read_more()
        if more is not None:
            lines.append(more.rstrip().removesuffix(_BLOCK))
        return "\n".join(lines).strip("\n")

    def _read_more(self) -> str | None:
        try:
            return self._read_line(_MORE)
        except EOFError:
            return None
        except KeyboardInterrupt:
            if not self.is_terminal:
                raise
            raise Cleared from None

    def _read_line(self, prompt: str, offer: str = "") -> str:
        try:
            line = self._ask(prompt if self.is_terminal else "", offer)
        except (EOFError, KeyboardInterrupt):
            if self.is_terminal:
                click.echo(err=self._prompts_on_stderr)
            raise
        return check_text(line, "the line")

    def _ask(self, prompt: str, offer: str) -> str:
        if self._readline is not None and offer:
            return self._read_offering(self._readline, prompt, offer)
        if self._prompts_on_stderr:
            click.echo(prompt, nl=False, err=True)
            prompt = ""
        return self._read(prompt)

    def _read_offering(self, readline: ModuleType, prompt: str, offer: str) -> str:
        readline.set_startup_hook(lambda: readline.insert_text(offer))
        try:
            return self._read(prompt)
        finally:
            readline.set_startup_hook(None)

    def _remember(self, typed: Typed) -> None:
        # Called up again, a block is a line like any other.
        escaped = typed.is_literal and typed.text.startswith("/")
        message = f"/{typed.text}" if escaped else typed.text
        if self._readline is not None:
            self._readline.add_history(message)
        if self._history is not None:
            self._history.add(message)


def _load_readline() -> ModuleType | None:
    """Return the module, which Windows and some builds of Python do not have."""
    try:
        return importlib.import_module("readline")
    except ImportError:
        return None
