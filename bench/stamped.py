"""A model server for many streams at once, whose tokens say when they were sent.

It answers chat completions and Responses, by the path. The message of a Responses answer has an
id of its own each time, because some gateways store it under that.

Bytes prepared beforehand, one loop over epoll, so that a thousand
streams of 20 tokens a second leave it half idle. A request that is not streamed gets the
answer of upstream.py; one that is streamed gets what the name of its model says:

    | flat    | 500 tokens, as fast as the reader reads, one send for each            |
    | flood   | the same, 16 tokens to a send                                        |
    | brief   | 20 tokens, the same way                                              |
    | paced   | 80 tokens, 20 a second, each with the microsecond it was sent at     |
    | short   | 40 tokens, the same way                                              |
    | slow    | 12 tokens, 2 a second, the same way                                  |

Runs as a process of its own and prints the port it listens on.

    python bench/stamped.py
"""

from __future__ import annotations

import heapq
import itertools
import re
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from apis import Api, read_request
from native import MESSAGE_ID
from upstream import json_answer, stream_writes, whole_answer

__all__ = ["MODELS", "PACES", "TOKENS", "serve"]

PACES: Final = {"paced": 0.05, "short": 0.05, "slow": 0.5}
"""Seconds from one token to the next."""
TOKENS: Final = {
    "flat": 500,
    "flood": 500,
    "brief": 20,
    "paced": 80,
    "short": 40,
    "slow": 12,
    "whole": 100,
}
MODELS: Final = tuple(TOKENS)

_STAMP: Final = "0" * 16
_WRITES_A_TURN: Final = 32
_RECEIVE: Final = 1 << 18
_MAX_BODY: Final = 64 << 20
_STREAMED: Final = re.compile(rb'"stream": ?true')

_APIS: Final[tuple[Api, ...]] = ("chat", "responses")
_FLAT: Final = {
    (api, name): stream_writes(count, 16 if name == "flood" else 1, api=api)
    for name, count in TOKENS.items()
    if name not in PACES
    for api in _APIS
}
# The parts of each write between its stamps: none, one of a token, or all in the text of an end.
_SPLIT: Final = {
    (api, name): [
        write.split(_STAMP.encode())
        for write in stream_writes(TOKENS[name], 1, f" @{_STAMP}", api=api)
    ]
    for name in PACES
    for api in _APIS
}
_MESSAGE: Final = MESSAGE_ID.encode()
_LIST: Final = json_answer({"object": "list", "data": [{"id": name} for name in MODELS]})


class _Connection:
    """One connection: what it has received, and what it still has to say."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = bytearray()
        self.unsent = b""
        self.flat: list[bytes] = []
        self.paced: list[list[bytes]] = []
        self.stamps: list[bytes] = []
        """Those of the answer so far: the end of a Responses answer repeats its text."""
        self.message = b""
        """The id of the message, in a Responses answer."""
        self.place = 0
        self.due = 0.0
        self.pace = 0.0
        self.is_gone = False

    def send(self, data: bytes) -> bool:
        """Send; return False if the reader must read first."""
        if self.message:
            data = data.replace(_MESSAGE, self.message)
        if self.unsent:
            self.unsent += data
            return False
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        self.unsent = data[sent:]
        return not self.unsent

    def take_request(self) -> tuple[bytes, bytes] | None:
        """Return the head and the body of a request, if one is there."""
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self.received[:end])
        found = re.search(rb"(?i)content-length: *(\d+)", head)
        length = int(found[1]) if found else 0
        if length > _MAX_BODY:
            raise ConnectionError("a request is too large")
        if len(self.received) < end + 4 + length:
            return None
        body = bytes(self.received[end + 4 : end + 4 + length])
        del self.received[: end + 4 + length]
        return head, body


class _Server:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._poller = select.epoll()
        self._poller.register(self._listener.fileno(), select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, _Connection]] = []
        self._ready: deque[_Connection] = deque()
        self._numbers = itertools.count()

    def run(self) -> None:
        while True:
            for file, mask in self._poller.poll(self._patience()):
                connection = self._connections.get(file)
                if connection is None:
                    self._accept()
                elif mask & select.EPOLLIN:
                    self._attempt(self._receive, connection)
                elif mask & select.EPOLLOUT:
                    self._attempt(self._resume, connection)
                else:
                    self._close(connection)
            self._send_due()
            for _ in range(len(self._ready)):
                self._attempt(self._send_flat, self._ready.popleft())

    def _patience(self) -> float | None:
        if self._ready:
            return 0
        if not self._due:
            return None
        return max(0.0, self._due[0][0] - time.monotonic())

    def _attempt(self, action: Callable[[_Connection], None], connection: _Connection) -> None:
        try:
            if not connection.is_gone:
                action(connection)
        except ConnectionError:
            self._close(connection)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[sock.fileno()] = _Connection(sock)
            self._poller.register(sock.fileno(), select.EPOLLIN)

    def _receive(self, connection: _Connection) -> None:
        data = connection.sock.recv(_RECEIVE)
        if not data:
            self._close(connection)
            return
        connection.received += data
        while (request := connection.take_request()) is not None:
            self._answer(connection, *request)

    def _answer(self, connection: _Connection, head: bytes, body: bytes) -> None:
        api, model = read_request(head, body)
        connection.place = 0
        connection.message = b"msg_bench%08x" % next(self._numbers) if api == "responses" else b""
        if head.startswith(b"GET "):
            self._send(connection, _LIST)
        elif not _STREAMED.search(body):
            self._send(connection, whole_answer(len(body), api))
        elif model in PACES:
            connection.paced, connection.stamps = _SPLIT[api, model], []
            connection.pace = PACES[model]
            connection.due = time.monotonic()
            self._send_paced(connection)
        else:
            connection.flat = _FLAT.get((api, model), _FLAT[api, "whole"])
            self._ready.append(connection)

    def _send(self, connection: _Connection, data: bytes) -> bool:
        if connection.send(data):
            return True
        self._poller.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        return False

    def _resume(self, connection: _Connection) -> None:
        data, connection.unsent = connection.unsent, b""
        if self._send(connection, data):
            self._poller.modify(connection.sock.fileno(), select.EPOLLIN)
            if connection.place < len(connection.flat):
                self._ready.append(connection)

    def _send_flat(self, connection: _Connection) -> None:
        """Send so many writes, then let the others have their turn."""
        place = connection.place
        for data in connection.flat[place : place + _WRITES_A_TURN]:
            connection.place += 1
            if not connection.send(data):
                self._poller.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
                return
        if connection.place < len(connection.flat):
            self._ready.append(connection)
        else:
            connection.flat = []

    def _send_due(self) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            self._attempt(self._send_paced, heapq.heappop(self._due)[2])

    def _send_paced(self, connection: _Connection) -> None:
        """Send the next token with its stamp; the head and the end need no pause of their own."""
        parts = connection.paced[connection.place]
        connection.place += 1
        is_token = len(parts) == 2
        if is_token:
            stamp = b"%016d" % (time.monotonic_ns() // 1000)
            connection.stamps.append(stamp)
            self._send(connection, stamp.join(parts))
        else:
            self._send(connection, _with_stamps(parts, connection.stamps))
        if connection.place == len(connection.paced):
            connection.paced = []
            return
        if is_token:
            connection.due += connection.pace
        heapq.heappush(self._due, (connection.due, next(self._numbers), connection))

    def _close(self, connection: _Connection) -> None:
        if not connection.is_gone:
            connection.is_gone = True
            del self._connections[connection.sock.fileno()]
            connection.sock.close()


def _with_stamps(parts: list[bytes], stamps: list[bytes]) -> bytes:
    """Return a beginning, or an end that repeats the text with the stamps that were sent."""
    between = zip(itertools.cycle(stamps), parts[1:], strict=False)
    return parts[0] + b"".join(stamp + part for stamp, part in between)


def serve() -> None:
    """Serve on a free port of this machine until the process is ended."""
    server = _Server()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        serve()
