"""The contract of reading documents: from the bytes of a file to its text.

Plain text is decoded where it is. Everything else is parsed in a process of its own with limits
on memory, time, files and output, so that a document can fail and nothing else. What cannot be
read is an exception with a reason, never an empty text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Literal, Protocol

import msgspec

__all__ = ["DocumentFailed", "DocumentReader", "ReadContent", "Source", "content_of"]

ReadContent = Callable[[int, int], Awaitable[bytes]]
"""Returns at most so many bytes of a content from a place on (offset, size); none at its end."""


class Source(msgspec.Struct, frozen=True):
    """A file to be read. Its format is found from its name, its media type and its first bytes."""

    filename: str
    size: int
    read: ReadContent
    media_type: str | None = None


class DocumentFailed(Exception):
    """A document cannot be read. Callers see code and text."""

    def __init__(self, code: Literal["unsupported_file", "invalid_file"], message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class DocumentReader(Protocol):
    """Reads documents."""

    def read(self, source: Source) -> AsyncGenerator[str, None]:
        """Yield the text in order, in pieces of any size, as it becomes known.

        Raise DocumentFailed, also after some text, and for a document that has none. Pages, slides
        and sheets are separated by a form feed. No text has a NUL or half of a surrogate pair.
        Who stops early closes the generator (`contextlib.aclosing`): a process waits for it.
        """
        ...

    async def close(self) -> None:
        """End the processes."""
        ...


def content_of(data: bytes) -> ReadContent:
    """Return what reads a content that is in memory."""

    async def read(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    return read
