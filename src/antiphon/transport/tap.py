"""Chunks of a body that are handed over the moment they arrive.

While a stream waits for its next token, whoever reads it may leave a function here. A read of the
socket that brings whole HTTP chunks, nothing more and nothing less, is then given to it at once:
the library's parser, its reader's account and a task that wakes up are more than half of what
a token costs otherwise.

The parser need not see such chunks, because it is between two chunks before them and after them.
That is known, not guessed: every byte since the head of the answer is looked at here. What is
not plain (a chunk that is cut, an extension, a trailer, the end of the body) goes to the parser
as ever, and from a cut on everything does, or from a flood that leaves no time to look at it.

Because it sees every byte, it also knows a stale connection: a reused one that breaks before the
first byte of an answer. Such a failure is raised as StaleConnection.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from aiohttp import ClientConnectionError, TCPConnector
from aiohttp.client_proto import ResponseHandler

__all__ = ["MOST", "StaleConnection", "Tap", "TappedHandler", "install_taps", "split_chunks"]

Tap = Callable[[bytes], bool]
"""Is given the content of the chunks that one read of the socket brought; says if it took it."""

MOST: Final = 32 * 1024
"""A stream of which one read brings more than this is in no need of a tap."""

_END: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"
_PLAIN_HEAD: Final = b"HTTP/1.1 200 "
_CHUNKED: Final = b"\r\ntransfer-encoding: chunked\r\n"
_size: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n").match
_alone: Final = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n(.+)\r\n", re.DOTALL).fullmatch


class StaleConnection(ClientConnectionError):
    """A reused connection broke before the first byte of the answer.

    The peer closed it while it was idle, and the close crossed our request.
    """


class TappedHandler(ResponseHandler):
    """The library's end of a connection, with a tap on it."""

    _requests = 0

    # What has come since the request, or since the end of a chunk; None if there is no telling
    # any more where chunks end. Nobody looks at it before there is a tap.
    _unseen: bytes | None = None
    _has_head = False
    _tap: Tap | None = None

    def set_response_params(self, *args: object, **params: object) -> None:
        """Expect the answer to a new request."""
        self._requests += 1
        self._unseen, self._has_head = b"", False
        super().set_response_params(*args, **params)  # type: ignore[arg-type] # as they came

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        """Break off what waits for the answer; a stale connection is reported as such."""
        is_unanswered = self._unseen == b"" and not self._has_head
        if self._requests > 1 and is_unanswered:
            exc = StaleConnection(str(exc))
        super().set_exception(exc, *cause)

    def open_tap(self, tap: Tap) -> None:
        """Give this what comes next, as long as that is whole chunks; only while nothing waits."""
        if self._is_between():
            self._tap = tap

    def close_tap(self) -> None:
        """Let everything go to the parser."""
        self._tap = None

    def data_received(self, data: bytes) -> None:
        """Take what one read of the socket brought."""
        if self._tap is not None:
            content = split_chunks(data) if len(data) <= MOST else None
            if content is None:
                self._unseen = self._tap = None
            elif self._tap(content):
                return
        elif self._unseen is not None:
            self._unseen = self._unseen + data if len(self._unseen) < MOST else None
        super().data_received(data)

    def _is_between(self) -> bool:
        """Say whether the parser stands between two chunks, or before the first."""
        unseen = self._unseen
        if unseen is None or self._reading_paused:
            return False
        if not self._has_head:
            end = _end_of_head(unseen)
            unseen = None if end is None else unseen[end:]
        if unseen and split_chunks(unseen) is None:
            unseen = None
        self._has_head = True
        self._unseen = None if unseen is None else b""
        return self._unseen is not None


def install_taps(connector: TCPConnector) -> None:
    """Let this pool have connections with taps, if it is made as we know it."""
    made = getattr(connector, "_factory", None)
    if isinstance(made, partial) and made.func is ResponseHandler and not made.args:
        connector._factory = partial(TappedHandler, **made.keywords)  # type: ignore[assignment] # a kind of it


def split_chunks(data: bytes, start: int = 0) -> bytes | None:
    """Return the content of the chunks that begin here, if they are whole and plain to the end."""
    alone = _alone(data, start)
    if alone is not None:  # most tokens come so
        size, content = alone.groups()
        if int(size, 16) == len(content) > 0:
            return content
    contents: list[bytes] = []
    while start < len(data):
        found = _size(data, start)
        if found is None:
            return None
        begin = found.end()
        end = begin + int(found[1], 16)
        start = end + len(_END)
        if end == begin or data[end:start] != _END:
            return None
        contents.append(data[begin:end])
    return b"".join(contents)


def _end_of_head(data: bytes) -> int | None:
    """Return where the head of a chunked answer ends, or None if this is none, or not all of it."""
    end = data.find(_HEAD_END)
    if end < 0 or not data.startswith(_PLAIN_HEAD):
        return None
    return end + len(_HEAD_END) if _CHUNKED in data[: end + 2].lower() else None
