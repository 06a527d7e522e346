"""The line between a worker and its parent: messages in both directions, one in a line of JSON.

A worker reports that it is ready and that it lives; the parent, which has no event loop, reads
that when `select` names the line. The parent asks for reloads (see `worker_reload`).
`ParentLine` is the worker's end, and what `serve` reports to in place of a service manager.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

__all__ = ["Line", "Message", "ParentLine", "line_pair"]

_PIECE: Final = 65536

Kind = Literal["ready", "beat", "prepare", "prepared", "refused", "apply", "discard", "done"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one side reports or asks."""

    kind: Kind
    text: str = ""


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Message).decode


class Line:
    """One end: sends whole messages, and cuts what arrives into messages."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.is_open = True
        self._rest = b""

    def fileno(self) -> int:
        """Return the number of the file, for `select`."""
        return self.sock.fileno()

    def send(self, message: Message) -> None:
        """Send a message; nothing happens if the other side has ended."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(_encode(message) + b"\n")

    def receive(self) -> list[Message]:
        """Return the messages that are complete now. At the end of the line it is not open."""
        try:
            data = self.sock.recv(_PIECE)
        except ConnectionError:
            data = b""
        self.is_open = bool(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decode(line) for line in lines]

    def close(self) -> None:
        """Close this end."""
        self.is_open = False
        self.sock.close()


def line_pair() -> tuple[Line, Line]:
    """Return both ends of a line: the parent's, then the worker's."""
    ours, theirs = socket.socketpair()
    return Line(ours), Line(theirs)


class ParentLine:
    """A worker's end of the line."""

    def __init__(self, line: Line, watchdog_seconds: float | None = None) -> None:
        self._line = line
        self.watchdog_seconds = watchdog_seconds
        """The parent reports a worker as stuck that shows no sign of life for this long."""

    def ready(self) -> None:
        """Report that requests are answered."""
        self.send(Message("ready"))

    def send(self, message: Message) -> None:
        """Answer the parent."""
        self._line.send(message)

    @asynccontextmanager
    async def listening(self, note: Callable[[Message], None]) -> AsyncIterator[None]:
        """Call `note` with each message of the parent, inside this context."""
        loop, line = asyncio.get_running_loop(), self._line

        def read() -> None:
            for message in line.receive():
                note(message)
            if not line.is_open:  # the parent has ended: `workers` ends this process
                loop.remove_reader(line.fileno())

        loop.add_reader(line.fileno(), read)
        try:
            yield
        finally:
            loop.remove_reader(line.fileno())

    def beat(self) -> None:
        """Show a sign of life."""
        self.send(Message("beat"))

    def stopping(self) -> None:
        """Report nothing: the parent knows, as it passed the signal on."""
