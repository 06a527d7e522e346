"""What comes out of a sandbox: two pipes and a socket, read with limits.

Everything here is untrusted. Of the output of a request at most `output_bytes` are kept, the rest
is read, counted and dropped. A frame that is too long or unknown ends the sandbox (`fault`). While
no request runs nothing is read, so a program that goes on writing is stopped by the full pipe.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

import msgspec

from antiphon.tools.sandbox.base import CellOutput

__all__ = ["PNG", "CellReport", "Channel", "ShellReport"]

PNG: Final = b"\x89PNG\r\n\x1a\n"
MAX_IMAGES: Final = 32
_MAX_LENGTHS: Final = {b"R": 0, b"D": 0, b"E": 128 * 1024, b"S": 1}
_PIECE: Final = 64 * 1024
_MAX_PENDING: Final = 256
_HEADER: Final = struct.Struct(">cI")
_PIPES: Final[tuple[Literal["stdout", "stderr"], ...]] = ("stdout", "stderr")


class CellReport(msgspec.Struct, frozen=True):
    """What the kernel reports at the end of a cell: nothing, or a traceback."""

    traceback: str = ""


class ShellReport(msgspec.Struct, frozen=True):
    """What the kernel reports at the end of a shell command."""

    exit_code: int


class Channel:
    """The gateway's ends. `changed` is set when there is something new to look at."""

    def __init__(self, control: socket.socket, stdout: int, stderr: int, image_bytes: int) -> None:
        self.changed = asyncio.Event()
        self.is_ready = False
        self.is_closed = False
        self.fault = ""
        self.report: CellReport | ShellReport | None = None
        self.cut_bytes = 0
        self._control = control
        self._pipes = dict(zip(_PIPES, (stdout, stderr), strict=True))
        self._decoders = {kind: _decoder() for kind in _PIPES}
        self._frames = bytearray()
        self._pending: deque[CellOutput] = deque()
        self._image_bytes = image_bytes
        self._room = _PIECE
        self._images = 0
        self._reading: set[int] = set()
        self._loop = asyncio.get_running_loop()

    async def send(self, kind: bytes, text: str, output_bytes: int) -> None:
        """Send a request, C a cell or S a shell command, and begin to read what comes back."""
        self.report, self.cut_bytes, self._images = None, 0, 0
        self._room = output_bytes
        self.listen()
        body = text.encode("utf-8", "surrogatepass")
        await self._loop.sock_sendall(self._control, _HEADER.pack(kind, len(body)) + body)

    def listen(self) -> None:
        """Read what comes, until `pause`."""
        if not self.is_closed:
            for fd, read in self._sources():
                self._loop.add_reader(fd, read)
                self._reading.add(fd)

    def pause(self) -> None:
        """Read nothing for now."""
        for fd in self._reading:
            self._loop.remove_reader(fd)
        self._reading.clear()

    def take(self) -> list[CellOutput]:
        """Return the output that has come, and read on if it was too much at once."""
        self.changed.clear()
        taken = list(self._pending)
        self._pending.clear()
        if not self._reading and self.report is None and not self.fault:
            self.listen()
        return _join(taken)

    def drain(self) -> None:
        """Read what is in the pipes at this moment."""
        for kind in _PIPES:
            # A pipe holds at most 1 MiB; a program that goes on writing is not followed.
            for _ in range(16):
                if not self._read_pipe(kind):
                    break

    def close(self) -> None:
        """Close everything; nothing is read after this."""
        if not self.is_closed:
            self.pause()
            self.is_closed = True
            self._control.close()
            for fd in self._pipes.values():
                os.close(fd)
        self.changed.set()

    def _sources(self) -> list[tuple[int, Callable[[], object]]]:
        pipes = [(fd, self._reader(kind)) for kind, fd in self._pipes.items()]
        return [(self._control.fileno(), self._read_control), *pipes]

    def _reader(self, kind: Literal["stdout", "stderr"]) -> Callable[[], object]:
        return lambda: self._read_pipe(kind)

    def _read_pipe(self, kind: Literal["stdout", "stderr"]) -> bool:
        """Read a piece of a pipe. Return whether there may be more."""
        fd = self._pipes[kind]
        try:
            piece = os.read(fd, _PIECE)
        except BlockingIOError:
            return False
        if not piece:
            self._ignore(fd)
            return False
        kept = piece[: self._room]
        self._room -= len(kept)
        self.cut_bytes += len(piece) - len(kept)
        if text := self._decoders[kind].decode(kept):
            self._push(CellOutput(kind, text))
        return True

    def _read_control(self) -> None:
        try:
            piece = self._control.recv(_PIECE)
        except BlockingIOError:
            return
        except ConnectionError:
            piece = b""
        if not piece:
            self._end("exit")
            return
        self._frames += piece
        while self._next_frame():
            pass

    def _next_frame(self) -> bool:
        if self.fault or len(self._frames) < _HEADER.size:
            return False
        kind, length = _HEADER.unpack_from(self._frames)
        if length > self._longest(kind):
            self._end("protocol")
            return False
        end = _HEADER.size + length
        if len(self._frames) < end:
            return False
        payload = bytes(memoryview(self._frames)[_HEADER.size : end])
        del self._frames[:end]
        self._take_frame(kind, payload)
        return True

    def _longest(self, kind: bytes) -> int:
        return self._image_bytes if kind == b"I" else _MAX_LENGTHS.get(kind, -1)

    def _take_frame(self, kind: bytes, payload: bytes) -> None:
        if kind == b"R":
            self.is_ready = True
            self.changed.set()
        elif kind == b"I":
            self._take_image(payload)
        elif kind == b"S":
            self._take_report(ShellReport(int.from_bytes(payload, "big")))
        else:
            self._take_report(CellReport(payload.decode("utf-8", "replace")))

    def _take_report(self, report: CellReport | ShellReport) -> None:
        # What was written before the report is in the pipes by now.
        self.drain()
        self._finish_text()
        self.report = report
        self.pause()
        self.changed.set()

    def _take_image(self, payload: bytes) -> None:
        self._images += 1
        if self._images > MAX_IMAGES or not payload.startswith(PNG):
            self.cut_bytes += len(payload)
            return
        self.drain()
        self._push(CellOutput("image", image=payload))

    def _push(self, output: CellOutput) -> None:
        self._pending.append(output)
        self.changed.set()
        if output.image or len(self._pending) >= _MAX_PENDING:
            self.pause()

    def _finish_text(self) -> None:
        for kind in _PIPES:
            if text := self._decoders[kind].decode(b"", final=True):
                self._pending.append(CellOutput(kind, text))

    def _end(self, fault: str) -> None:
        self.fault = fault
        self.drain()
        self._finish_text()
        self.pause()
        self.changed.set()

    def _ignore(self, fd: int) -> None:
        if fd in self._reading:
            self._loop.remove_reader(fd)
            self._reading.discard(fd)


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _join(outputs: list[CellOutput]) -> list[CellOutput]:
    """Return the outputs with neighbours of one kind joined."""
    joined: list[CellOutput] = []
    texts: list[str] = []
    for place, output in enumerate(outputs):
        if output.kind == "image":
            joined.append(output)
            continue
        texts.append(output.text)
        following = outputs[place + 1].kind if place + 1 < len(outputs) else None
        if following != output.kind:
            joined.append(CellOutput(output.kind, "".join(texts)))
            texts.clear()
    return joined
