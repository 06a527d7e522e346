"""Reads the messages that the user types, one at a time.

A line that ends in a backslash continues in the next one; a line that begins with three quotes
opens a block, which ends with three quotes. The text of a block is sent unchanged and is never a
command. The end of the input ends an open block, too.

On a terminal an `Editor` reads the lines, and messages are kept in a file of the user's own: one
JSON string per line, because a message may have several lines. A text of several lines that comes
in one piece, pasted or recalled, is one message.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from antiphon.cli.options import check_text

__all__ = ["HISTORY_LENGTH", "Cleared", "History", "Keyboard", "LineEditor", "Typed"]

HISTORY_LENGTH: Final = 1000
_BLOCK: Final = '"""'
_MORE: Final = "… "
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class Cleared(Exception):
    """The user cancelled a text of several lines before its end."""


class Typed(msgspec.Struct, frozen=True):
    """A message. One that was typed as a block `is_literal`: it is no command."""

    text: str
    is_literal: bool = False


class LineEditor(Protocol):
    """Reads lines that a person types; `editor.Editor` does."""

    @property
    def has_text(self) -> bool:
        """Whether the line that was left last had text in it."""
        ...

    def read(self, prompt: str, offer: str = "") -> str:
        """Return a line; `offer` stands in it already. Raise EOFError or KeyboardInterrupt."""
        ...

    def read_once(self, prompt: str) -> str:
        """Return a line that is not remembered."""
        ...

    def remember(self, message: str) -> None:
        """Let the arrow keys call this message up."""
        ...


class History:
    """What was typed before, in a file that only its owner can read.

    `complain` is called once if nothing more can be written.
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
            if self._path.stat().st_mode & _OTHERS:
                self._path.chmod(0o600)
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
        self._complain(f"the history cannot be saved in {self._path} ({error.strerror})")
        self._path = None


def _read_entry(line: str) -> str:
    """Return the message of a line, or nothing if the line is not ours."""
    try:
        message = json.loads(line)
    except ValueError:
        return ""
    return message if isinstance(message, str) else ""


class Keyboard:
    """Reads messages: with the editor at a terminal, else with `read`, which is like `input`.

    Without a terminal there is nothing to prompt, edit or remember.
    """

    def __init__(
        self,
        *,
        editor: LineEditor | None = None,
        history: History | None = None,
        read: Callable[[str], str] = input,
    ) -> None:
        self._editor = editor
        self._history = history if editor else None
        self._read = read
        for message in self._history.load() if self._history else ():
            self._recall(message)

    @property
    def is_terminal(self) -> bool:
        """Whether a person types."""
        return self._editor is not None

    def read(self, prompt: str, offer: str = "") -> Typed:
        """Return a message that can be called up again; `offer` stands in the line already."""
        line = self._editor.read(prompt, offer) if self._editor else self._read("")
        typed = self._whole(line)
        if typed.text.strip():
            self._remember(typed)
        return typed

    def read_once(self, prompt: str) -> Typed:
        """Return a message that is not remembered. Raise EOFError at the end of the input.

        A line that is not valid text in its encoding raises BadSettings. At a terminal, Ctrl-C
        within a text of several lines raises Cleared.
        """
        return self._whole(self._read_line(prompt))

    def confirm(self, question: str) -> bool:
        """Return whether the answer is yes. Without a terminal the answer is no."""
        if not self.is_terminal:
            return False
        return self._read_line(f"{question} [y/N] ").strip().lower() in ("y", "yes")

    @property
    def has_text(self) -> bool:
        """Return whether the line that was interrupted had something in it."""
        return self._editor is not None and self._editor.has_text

    def _whole(self, line: str) -> Typed:
        """Return the message that begins with this line; read the rest of it."""
        line = check_text(line, "the line")
        if "\n" in line:
            return Typed(line)
        if line.startswith(_BLOCK):
            return Typed(self._read_block(line.removeprefix(_BLOCK)), is_literal=True)
        while line.endswith("\\"):
            more = self._read_more()
            line = line[:-1] if more is None else f"{line[:-1]}\n{more}"
        return Typed(line)

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

    def _read_line(self, prompt: str) -> str:
        line = self._editor.read_once(prompt) if self._editor else self._read("")
        return check_text(line, "the line")

    def _remember(self, typed: Typed) -> None:
        # Called up again, a block is a line like any other.
        escaped = typed.is_literal and typed.text.startswith("/")
        message = f"/{typed.text}" if escaped else typed.text
        self._recall(message)
        if self._history is not None:
            self._history.add(message)

    def _recall(self, message: str) -> None:
        if self._editor is not None:
            self._editor.remember(message)
