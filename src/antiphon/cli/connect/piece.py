"""What does `antiphon connect` put into a file? The contract of a piece, and what they share.

A piece knows how it is inserted into a text and removed again; it knows nothing about files. It
refuses a text that it cannot parse, because a settings file is the user's work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

__all__ = ["NAME", "CannotMerge", "Piece", "lines_of", "newline_of"]

NAME: Final = "antiphon"
"""Our name in the files of users."""


class CannotMerge(Exception):
    """The text cannot be changed safely; the message has the reason."""


class Piece(Protocol):
    """Settings of ours in a user's text."""

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
        """Return whether the text is exactly what a piece of ours made of the one before."""

    def is_blank(self, text: str) -> bool:
        """Return whether a text has nothing in it that anybody would miss."""


def newline_of(text: str) -> str:
    """Return how the lines of a text end."""
    return "\r\n" if "\r\n" in text else "\n"


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends. Only a line feed ends one, as in the formats we write."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
