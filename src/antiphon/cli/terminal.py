"""What a person sees: answers on stdout as they come, everything about them on stderr.

Whatever a server says is shown and never obeyed: on a terminal, control characters are made
visible first. Where the output is not a terminal, text goes out as it came, without colours.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click
import msgspec

from antiphon.host.data import ITEM_MIME
from antiphon.host.parts import DataPart, ResponsePart, TextPart, ThinkingPart, ToolCallPart

__all__ = ["Screen", "call_line", "harmless", "shorten"]

_MAX_CALL: Final = 200
# What could move the cursor or rename the window when it is shown on a terminal, and what turns
# around the order of all that follows it. (The marks U+200E and U+200F do not, and whoever
# writes from right to left needs them.) Before a new line a carriage return is harmless, and
# anywhere else it would write over what was said.
_CONTROLS: Final = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(32), 127, *range(128, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
} | {ord("\r"): ""}


def harmless(text: str, stream: Any) -> str:  # Any: whatever stands in for a text stream
    """Return the text without what a terminal would obey, and what cannot be encoded."""
    if stream.isatty():
        text = text.translate(_CONTROLS)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def shorten(text: str, length: int) -> str:
    """Return the text as one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def call_line(call: ToolCallPart) -> str:
    """Return a tool call as one readable line, shortened if it is long."""
    arguments = (
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in call.input.items()
    )
    return shorten(f"{call.name}({', '.join(arguments)})", _MAX_CALL)


class Screen:
    """Shows the parts of answers, and whatever else there is to say, in lines that do not mix.

    `is_quiet` shows no parts at all.
    """

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._is_line_open = False
        self._ends_in_thinking = False

    def show(self, part: ResponsePart) -> None:
        """Show what a part adds to the answer."""
        if self._is_quiet:
            return
        match part:
            case TextPart(value=text) if text:
                self._say(text)
            case ThinkingPart(value=text) if text:
                self._think(text)
            case ToolCallPart():
                self.note(f"→ {call_line(part)}", is_dim=False)
            case DataPart(mime=mime) if mime == ITEM_MIME:
                self.note(f"· {_kind(part)}")

    def tell(self, text: str) -> None:
        """Say what was asked for, on stdout."""
        self.end_line()
        click.echo(harmless(text, sys.stdout))

    def note(self, text: str, *, is_dim: bool = True) -> None:
        """Say something about the answer, on stderr."""
        self.end_line()
        text = harmless(text, sys.stderr)
        click.echo(click.style(text, dim=True) if is_dim else text, err=True)

    def complain(self, text: str) -> None:
        """Say what went wrong, on stderr."""
        self.note(f"Error: {text}", is_dim=False)

    def end_line(self) -> None:
        """Let whatever comes next begin on a line of its own."""
        self._end_thinking()
        if self._is_line_open:
            click.echo()
            self._is_line_open = False

    def _say(self, text: str) -> None:
        self._end_thinking()
        self._is_line_open = not text.endswith("\n")
        click.echo(harmless(text, sys.stdout), nl=False)

    def _think(self, text: str) -> None:
        if self._is_line_open:
            self.end_line()
        self._ends_in_thinking = not text.endswith("\n")
        click.secho(harmless(text, sys.stderr), nl=False, err=True, dim=True)

    def _end_thinking(self) -> None:
        if self._ends_in_thinking:
            click.echo(err=True)
            self._ends_in_thinking = False


def _kind(part: DataPart) -> str:
    return str(msgspec.json.decode(part.data).get("type"))
