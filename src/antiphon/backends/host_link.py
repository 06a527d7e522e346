"""One connection to an editor that answers, and the requests that share it.

Every line is one message, so many requests run at once and their answers are mixed; each goes to
the inbox of its request. What the connection guarantees:

- A line is written whole or not at all, also if its sender is cancelled.
- A request that is left is cancelled at the editor at once. Its seat is free again when the
  editor has confirmed the end.
- Memory is limited. While the reader of one answer is behind by more than an inbox holds, nothing
  is read, and so the others wait as well (they share one stream of bytes). A reader that holds up
  others for `STALL_SECONDS` loses its answer, with an error that states this.
- A line that cannot be read, and names no request, may have been for any: then all requests fail
  and the connection is closed. A message of a new type that is for no request is ignored.
"""

from __future__ import annotations

import asyncio
import copy
import errno
import itertools
from collections.abc import Callable
from typing import Final

import msgspec

from antiphon.backends.host_file import Editor
from antiphon.backends.host_inbox import Inbox
from antiphon.protocol.errors import BackendError, OutOfFiles
from antiphon.transport.exchange import late
from antiphon.version import __version__
from antiphon.wires.host.answers import Received, Unreadable, read_answer
from antiphon.wires.host.faults import fault_of, invalid_answer
from antiphon.wires.host.lines import MAX_LINE_BYTES, LineReader, LongLine
from antiphon.wires.host.messages import (
    VERSION,
    Cancel,
    Failed,
    Hello,
    Log,
    ModelsChanged,
    UsageChanged,
    Welcome,
)

__all__ = ["STALL_SECONDS", "HostLink", "open_link"]

STALL_SECONDS: Final = 30.0
"""How long the reader of one answer may keep the others from being read."""

_PIECE: Final = 64 * 1024
_OUT_OF_FILES: Final = (errno.EMFILE, errno.ENFILE)


async def open_link(
    editor: Editor, seconds: float, stall: float, check: Callable[[Editor], None]
) -> HostLink:
    """Connect to the editor and greet it, within this time. Raise BackendError if it refuses.

    `check` runs in a thread before anything is sent, and raises if the editor is another one.
    """
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(editor.host, editor.port, limit=_PIECE)
            link = HostLink(editor, reader, writer, stall)
            try:
                await asyncio.to_thread(check, editor)
                await link.greet()
            except BaseException:
                link.close()
                raise
            return link
    except TimeoutError:
        raise late(f"{editor.name} did not greet us") from None
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise OutOfFiles() from None
        raise _not_running(editor) from None


class HostLink:
    """A connection that was opened. `is_open` until either side closes it."""

    def __init__(
        self,
        editor: Editor,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        stall: float,
    ) -> None:
        self.is_open = True
        self.is_used = False
        """Whether a request was sent on it."""
        self._editor = editor
        self._reader = reader
        self._writer = writer
        self._stall = stall
        self._lines = LineReader()
        self._inboxes: dict[int | str, Inbox] = {}
        self._ids = itertools.count(1)
        self._seats = asyncio.Semaphore(1)
        self._max_line = MAX_LINE_BYTES
        self._reading: asyncio.Task[None] | None = None

    async def greet(self) -> None:
        """Send our greeting, and read on when the editor has answered it."""
        token = self._editor.token.reveal()
        hello = Hello(version=VERSION, name=f"antiphon {__version__}", token=token)
        self._writer.write(msgspec.json.encode(hello) + b"\n")
        rest = await self._read_welcome()
        self._reading = asyncio.create_task(self._read(rest))

    async def send(self, line_for: Callable[[int], bytes]) -> Inbox:
        """Send a request when the editor has room for one more; return where its answer comes."""
        await self._seats.acquire()
        if not self.is_open:
            self._seats.release()
            raise _closed()
        inbox = Inbox(next(self._ids))
        line = line_for(inbox.id)
        if len(line) > self._max_line:
            self._seats.release()
            raise _too_large(len(line), self._max_line)
        self._inboxes[inbox.id] = inbox
        self.is_used = True
        try:
            self._writer.write(line)
            await self._writer.drain()
        except OSError:
            pass  # the reader has noticed, or will
        except BaseException:
            self.leave(inbox)
            raise
        return inbox

    def leave(self, inbox: Inbox) -> None:
        """Stop a request whose reader goes; nothing happens if it has ended."""
        inbox.leave()
        self._cancel(inbox)

    def _cancel(self, inbox: Inbox) -> None:
        """Ask the editor to stop a request, once; nothing is asked for one that has ended."""
        if self.is_open and not inbox.is_finished and not inbox.is_cancelled:
            inbox.is_cancelled = True
            self._writer.write(msgspec.json.encode(Cancel(id=inbox.id)) + b"\n")

    def close(self) -> None:
        """Close the connection. What still runs ends with an error."""
        if self._reading is not None:
            self._reading.cancel()
        self._end(_closed())

    # Reading.

    async def _read_welcome(self) -> list[bytes | LongLine]:
        """Read up to the answer to our greeting; return what came after it."""
        while data := await self._reader.read(_PIECE):
            lines = self._lines.feed(data)
            for place, line in enumerate(lines):
                if self._is_welcome(_message_of(line)):
                    return lines[place + 1 :]
        raise _closed("before it had greeted us")

    def _is_welcome(self, message: Received) -> bool:
        match message:
            case Welcome(version=1):
                self._max_line = min(message.max_line_bytes, MAX_LINE_BYTES)
                self._seats = asyncio.Semaphore(max(1, message.max_requests))
                return True
            case Log() | UsageChanged() | ModelsChanged() | Unreadable(id=None, is_new=True):
                return False
            case Failed():
                raise fault_of(self._redacted(message).error)
            case Welcome():
                raise invalid_answer(f"it speaks version {message.version} of the bridge protocol")
            case _:
                raise invalid_answer("it does not greet us as the bridge protocol has it")

    async def _read(self, lines: list[bytes | LongLine]) -> None:
        """Give each message to its request, until the connection ends."""
        try:
            for line in lines:
                await self._take(line)
            while data := await self._reader.read(_PIECE):
                for line in self._lines.feed(data):
                    await self._take(line)
        except OSError:
            pass  # as at the end of the input
        except BackendError as error:
            self._end(error)
        finally:
            self._end(_closed())  # in any case: nothing is read for its requests any more

    async def _take(self, line: bytes | LongLine) -> None:
        message = _message_of(line)
        if isinstance(message, Failed):
            message = self._redacted(message)
        if isinstance(message, Log | UsageChanged | ModelsChanged) or _is_new(message):
            return
        request_id = None if isinstance(message, Welcome) else message.id
        if request_id is None:
            raise _without_request(message)
        inbox = self._inboxes.get(request_id)
        if inbox is None:
            return  # of a request that has ended
        inbox.put(message, len(line) if isinstance(line, bytes) else 0)
        if inbox.has_ended:
            del self._inboxes[request_id]
            self._seats.release()
        elif inbox.is_full:
            await self._wait_for(inbox)

    async def _wait_for(self, inbox: Inbox) -> None:
        """Read nothing until a reader has caught up; it may not hold up others for long."""
        while inbox.is_full:
            try:
                async with asyncio.timeout(self._stall):
                    await inbox.drained()
            except TimeoutError:
                if len(self._inboxes) > 1:
                    inbox.fail(_slow(self._stall))
                    self._cancel(inbox)

    def _redacted(self, failed: Failed) -> Failed:
        """Return an error without our token, should the editor repeat it."""
        redact = self._editor.token.redact
        error = failed.error
        plain = msgspec.structs.replace(
            error, message=redact(error.message), action=redact(error.action)
        )
        return Failed(id=failed.id, error=plain)

    def _end(self, error: BackendError) -> None:
        """End the connection and all its requests."""
        if not self.is_open:
            return
        self.is_open = False
        self._writer.transport.abort()
        inboxes, self._inboxes = self._inboxes, {}
        for inbox in inboxes.values():
            inbox.fail(copy.copy(error))  # each turn adds to its own
            self._seats.release()


def _message_of(line: bytes | LongLine) -> Received:
    if isinstance(line, LongLine):
        return Unreadable(None, f"a line of it has {line.length} bytes")
    return read_answer(line)


def _is_new(message: Received) -> bool:
    """Return whether the message is of a type that we do not know, and for no request."""
    return isinstance(message, Unreadable) and message.is_new and message.id is None


def _without_request(message: Received) -> BackendError:
    """Return why no request can go on: one of them did not get this message."""
    if isinstance(message, Failed):
        return fault_of(message.error)
    if isinstance(message, Unreadable):
        return invalid_answer(message.why)
    return invalid_answer(f"it is {type(message).__name__}, which was not asked for")


def _not_running(editor: Editor) -> BackendError:
    return BackendError(
        f"{editor.name} does not answer at {editor.host}:{editor.port}; start the editor, and "
        "turn on that it offers its models",
        code="upstream_unreachable",
        status=503,
    )


def _closed(when: str = "before the answer was complete") -> BackendError:
    return BackendError(f"the editor closed the connection {when}", code="upstream_closed")


def _too_large(size: int, limit: int) -> BackendError:
    return BackendError(
        f"the request has {size} bytes, and the editor takes {limit}; send fewer or smaller images",
        code="request_too_large",
        status=413,
        type="invalid_request_error",
        param="input",
    )


def _slow(seconds: float) -> BackendError:
    return BackendError(
        f"the answer was read so slowly that it held up other requests for {seconds:g} seconds",
        code="reader_too_slow",
        status=408,
        type="invalid_request_error",
    )
