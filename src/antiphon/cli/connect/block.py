"""A block of our own lines between two marks, in files whose comments begin with `#`.

The marks and the text between them hold everything: nothing is stored elsewhere. The user's lines
that would contradict ours become comments with a mark of their own, and lines again when the
block is removed. If the text had no newline at its end, the block has none, so the original end
can be restored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from antiphon.cli.connect.piece import NAME, CannotMerge, lines_of, newline_of

__all__ = ["END_MARK", "MarkedPiece", "drop_block", "marked", "put_block", "switch_off"]

_BEGIN: Final = f"# >>> {NAME}"
END_MARK: Final = f"# <<< {NAME}"
_OFF: Final = f"#{NAME}# "

Kept = Callable[[list[str]], list[str]]


def marked(lines: Sequence[str], client: str) -> list[str]:
    """Return the lines between the marks."""
    how = f"written by `antiphon connect {client} --write`; --undo takes it back"
    return [f"{_BEGIN} ({how})", *lines, END_MARK]


class MarkedPiece(msgspec.Struct, frozen=True):
    """A piece that is such a block. Its kinds know their lines, and where the block goes."""

    client: str

    def own_lines(self) -> Sequence[str]:
        """Return what stands between the marks."""
        raise NotImplementedError

    def foreign(self, lines: list[str]) -> list[str]:
        """Return those lines between the marks that are not ours."""
        raise NotImplementedError

    def block(self, added: Sequence[str] = ()) -> list[str]:
        """Return our lines, and lines that were added to them, between the marks."""
        return marked([*self.own_lines(), *added], self.client)

    def paste(self) -> str:
        """Return our lines, with the marks by which they are found again."""
        return "\n".join(self.block()) + "\n"

    def take_out(self, text: str, befores: Sequence[str] = ()) -> str:
        """Return the text without the block."""
        return drop_block(text, self.foreign)

    def has_made(self, text: str, before: str) -> bool:
        """Return whether the text is the one before, but for what is between our marks."""
        return self.take_out(text) == before

    def is_blank(self, text: str) -> bool:
        """Return whether there is nothing in it, not even a comment."""
        return not text.strip()


def put_block(text: str, at: int, block: Sequence[str]) -> str:
    """Return the text with a block before line `at`, counted from 0."""
    newline = newline_of(text)
    lines = lines_of(text)
    added = [line + newline for line in block]
    if at >= len(lines) and lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
        added[-1] = block[-1]
    return "".join([*lines[:at], *added, *lines[at:]])


def switch_off(text: str, numbers: Collection[int]) -> str:
    """Return the text with the lines of these numbers as comments."""
    lines = lines_of(text)
    return "".join(_OFF + line if at in numbers else line for at, line in enumerate(lines))


def drop_block(text: str, kept: Kept, *, may_lose_end: bool = False) -> str:
    """Return the text without blocks of ours, and with what they switched off.

    `kept` returns the lines of a block that are not ours: programs that edit their own settings
    may put something between our marks. Some lose comments, too: with `may_lose_end`, a block
    without its second mark continues to the end of the text, and `kept` sorts its lines.
    """
    lines = [line.removeprefix(_OFF) for line in lines_of(text)]
    while (begin := _find(lines, _BEGIN, 0)) is not None:
        end = _find(lines, END_MARK, begin)
        if end is None and may_lose_end:
            end = len(lines)
            lines.append(END_MARK + "\n")
        if end is None:
            raise CannotMerge(f"the mark `{_BEGIN}` has no `{END_MARK}` after it")
        rest = kept(lines[begin + 1 : end])
        head = lines[:begin]
        if not lines[end].endswith("\n") and (last := rest or head):
            newline = "\r\n" if lines[begin].endswith("\r\n") else "\n"
            last[-1] = last[-1].removesuffix(newline)
        lines = [*head, *rest, *lines[end + 1 :]]
    if _find(lines, END_MARK, 0) is not None:
        raise CannotMerge(f"the mark `{END_MARK}` has no `{_BEGIN}` before it")
    return "".join(lines)


def _find(lines: Sequence[str], mark: str, start: int) -> int | None:
    return next((at for at in range(start, len(lines)) if lines[at].startswith(mark)), None)
