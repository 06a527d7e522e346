"""What the user sees: answers on stdout as they arrive, everything about them on stderr.

What a server sends cannot control the terminal: control characters are made visible
first. Where the output is not a terminal, text goes out as it came, without colours.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import click
import msgspec

from antiphon.cli.markdown import Markdown
from antiphon.host.data import ITEM_MIME
from antiphon.wires.host.parts import DataPart, ResponsePart, TextPart, ThinkingPart, ToolCallPart

__all__ = ["Screen", "call_line", "columns", "harmless", "renders_markdown", "shorten"]

_T = TypeVar("_T")
_FRAME_SECONDS: Final = 0.1
_DOTS: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STROKES: Final = "|/-\\"
_MAX_CALL: Final = 200
# What could move the cursor or rename the window when it is shown on a terminal, and what turns
# around the order of all that follows it. (The marks U+200E and U+200F do not, and text from
# right to left needs them.) Before a new line a carriage return is harmless, and anywhere else
# it would overwrite the line.
_CONTROLS: Final = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(32), 127, *range(128, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
} | {ord("\r"): ""}


def harmless(text: str, stream: Any) -> str:  # Any: tests pass other objects than text streams
    """Return the text without control characters and without what cannot be encoded."""
    if stream.isatty():
        text = text.translate(_CONTROLS)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def shorten(text: str, length: int) -> str:
    """Return the text as one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def columns(rows: Sequence[tuple[str, ...]], *, is_numeric: bool = False) -> list[str]:
    """Return the lines of a table. If it `is_numeric`, all cells but the first end aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if is_numeric and number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def call_line(call: ToolCallPart) -> str:
    """Return a tool call as one readable line, shortened if it is long."""
    arguments = (
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in call.input.items()
    )
    return shorten(f"{call.name}({', '.join(arguments)})", _MAX_CALL)


def renders_markdown(*, is_plain: bool) -> bool:
    """Return whether answers on stdout are rendered: for a person who did not object."""
    return not (is_plain or _is_dumb() or os.environ.get("NO_COLOR")) and sys.stdout.isatty()


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


class Screen:
    """Shows the parts of answers, and messages about them, in lines that do not mix.

    `is_quiet` shows no parts at all. With `markdown` the text of answers is rendered, and
    with `spins` something moves on stderr while nothing is there to show.
    """

    def __init__(
        self, *, is_quiet: bool = False, markdown: Markdown | None = None, spins: bool = False
    ) -> None:
        self._is_quiet = is_quiet
        self._markdown = markdown
        self._spins = spins and sys.stderr.isatty() and not _is_dumb()
        self._is_line_open = False
        self._ends_in_thinking = False
        self._is_spinning = False

    def show(self, part: ResponsePart) -> None:
        """Show what a part adds to the answer."""
        if self._is_quiet:
            return
        match part:
            case TextPart(value=text) if text:
                self._show_text(text)
            case ThinkingPart(value=text) if text:
                self._think(text)
            case ToolCallPart():
                self.note(f"→ {call_line(part)}", is_dim=False)
            case DataPart(mime=mime) if mime == ITEM_MIME:
                self.note(f"· {_kind(part)}")

    def tell(self, text: str) -> None:
        """Show what was asked for, on stdout."""
        self.end_line()
        click.echo(harmless(text, sys.stdout))

    def note(self, text: str, *, is_dim: bool = True) -> None:
        """Show something about the answer, on stderr."""
        self.end_line()
        text = harmless(text, sys.stderr)
        click.echo(_dim(text) if is_dim else text, err=True)

    def complain(self, text: str) -> None:
        """Show what went wrong, on stderr."""
        self.note(f"Error: {text}", is_dim=False)

    def end_line(self) -> None:
        """Begin a new line, if the cursor is not at the start of one."""
        self._stop_spinning()
        if self._markdown is not None:
            self._write(self._markdown.end())
        self._end_thinking()
        if self._is_line_open:
            click.echo()
            self._is_line_open = False

    async def spin_during(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Return what the work returns; a spinner turns until something is shown."""
        if not self._spins:
            return await work()
        spinner = asyncio.create_task(self._spin())
        try:
            return await work()
        finally:
            spinner.cancel()
            self._stop_spinning()

    async def _spin(self) -> None:
        # An answer that comes at once needs none.
        await asyncio.sleep(_FRAME_SECONDS)
        self._is_spinning = not self._is_line_open and not self._ends_in_thinking
        for frame in itertools.cycle(_frames(sys.stderr)):
            if not self._is_spinning:
                return
            click.echo(f"\r{frame}", nl=False, err=True)
            await asyncio.sleep(_FRAME_SECONDS)

    def _stop_spinning(self) -> None:
        if self._is_spinning:
            self._is_spinning = False
            click.echo("\r\x1b[K", nl=False, err=True)

    def _show_text(self, text: str) -> None:
        text = harmless(text, sys.stdout)
        self._write(text if self._markdown is None else self._markdown.feed(text))

    def _write(self, text: str) -> None:
        if not text:
            return
        self._stop_spinning()
        self._end_thinking()
        self._is_line_open = not text.endswith("\n")
        click.echo(text, nl=False)

    def _think(self, text: str) -> None:
        self._stop_spinning()
        if self._is_line_open:
            self.end_line()
        self._ends_in_thinking = not text.endswith("\n")
        click.echo(_dim(harmless(text, sys.stderr)), nl=False, err=True)

    def _end_thinking(self) -> None:
        if self._ends_in_thinking:
            click.echo(err=True)
            self._ends_in_thinking = False


def _dim(text: str) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, dim=True)


def _frames(stream: Any) -> str:  # Any: tests pass other objects than text streams
    return _DOTS if harmless(_DOTS, stream) == _DOTS else _STROKES


def _kind(part: DataPart) -> str:
    return str(msgspec.json.decode(part.data).get("type"))
