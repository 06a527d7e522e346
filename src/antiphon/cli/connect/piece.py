"""What does `antiphon connect` put into a file? The contract of a piece, and what they share.

A piece knows how to get into a text and out again, and nothing of files. Whatever it does not
understand it refuses: a settings file is a person's work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

__all__ = ["NAME", "CannotMerge", "Piece", "lines_of", "newline_of"]

NAME: Final = "antiphon"
"""What we are called in the files of others."""


class CannotMerge(Exception):
    """The text is not one that can be changed safely; the message says why."""


class Piece(Protocol):
    """Something of ours in a text of somebody else's."""

    def paste(self) -> str:
        """Return the text as it would be if the file held nothing else."""

    def merge(self, text: str) -> str:
        """Return the text with the piece in it. Raise CannotMerge.

        The same piece twice changes nothing; another one takes the place of the first.
        """

    def take_out(self, text: str, befores: Sequence[str] = ()) -> str:
        """Return the text without the piece. Raise CannotMerge.

        `befores` are texts that may be what it was before, the likeliest first.
        """

    def has_made(self, text: str, before: str) -> bool:
        """Say whether a text is what a piece of ours made of the one before, and nothing else."""

    def is_blank(self, text: str) -> bool:
        """Say whether a text has nothing in it that anybody would miss."""


def newline_of(text: str) -> str:
    """Return how the lines of a text end."""
    return "\r\n" if "\r\n" in text else "\n"


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends. Only a line feed ends one, as in the formats we write."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
