"""How do the gateway and a parsing process talk? Frames on two pipes: a tag, a length, the bytes.

To the process go one TASK (JSON: see `Task`), any number of CONTENT and one END. It answers with
any number of TEXT and INFO, and then one END or FAILED. Then it waits for the next task. Nothing
here imports more than the standard library: a parsing process starts often.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final, NamedTuple

__all__ = [
    "CONTENT",
    "END",
    "FAILED",
    "HEAD",
    "INFO",
    "LARGEST",
    "TASK",
    "TEXT",
    "Task",
    "Unreadable",
    "read_frame",
    "write_frame",
]

TASK: Final = b"t"
CONTENT: Final = b"c"
TEXT: Final = b"T"
INFO: Final = b"I"
END: Final = b"."
FAILED: Final = b"!"

HEAD: Final = struct.Struct(">cI")
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a frame. A process that announces more has gone wrong."""


class Task(NamedTuple):
    """What is asked of the process."""

    kind: str
    """`office`, `pdf` or `html`."""
    media_type: str
    cpu_seconds: int
    text_bytes: int
    """How much text it may return."""
    unpacked_bytes: int
    """How much a ZIP archive may unpack to."""


class Unreadable(Exception):
    """The document cannot be read, for this reason. A user reads the text."""

    def __init__(self, message: str, code: str = "invalid_file") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def read_frame(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    """Return the next frame; None if the other side has gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    tag, size = HEAD.unpack(head)
    body = stream.read(size)
    return (tag, body) if len(body) == size else None


def write_frame(stream: BinaryIO, tag: bytes, body: bytes = b"") -> None:
    """Send a frame."""
    stream.write(HEAD.pack(tag, len(body)))
    stream.write(body)
