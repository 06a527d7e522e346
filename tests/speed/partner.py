"""The other side of what is counted, in a thread that nobody counts.

It plays the model behind a gateway and the reader in front of it, or the server of a client, and
goes in lock step: the next words come only when the last ones were read. So the same things
are done in the same order each time, and what they take can be counted.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any, Final, NamedTuple

from antiphon.protocol.codec import encode_all_sse
from antiphon.protocol.deltas import Delta, Stopped, TextGrew
from tests.building import COUNTED, build

__all__ = ["DOORS", "Address", "Door", "Partner"]

Address = tuple[str, int]

_PATIENCE: Final = 600.0
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n"
_STREAM: Final = _HEAD % (b"text/event-stream", b"Transfer-Encoding: chunked\r\n")
_SAID: Final = [{"role": "user", "content": "Say a word"}]
_USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_DONE: Final = b"data: [DONE]\n\n"


class Door(NamedTuple):
    """How a stream is asked for, what each of its deltas has in it, and what its end."""

    fields: dict[str, Any]
    delta: bytes
    end: bytes = _DONE


DOORS: Final = {
    "responses": Door({}, b"event: response.output_text.delta\n"),
    "chat": Door(
        {"path": "/v1/chat/completions", "messages": _SAID, "store": True},
        b'"delta":{"content":',
    ),
    "messages": Door(
        {"path": "/v1/messages", "messages": _SAID, "max_tokens": 99, "store": True},
        b'"delta":{"type":"text_delta",',
        b"event: message_stop\n",
    ),
}


class Partner:
    """A thread that calls `play`, with itself and where its gateway is, once `start` says so.

    Make it before counting begins: threads that are started later are counted.
    """

    def __init__(self, play: Callable[[Partner, Address], None]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(_PATIENCE)
        self._connection: socket.socket | None = None
        self._address: Future[Address] = Future()
        self._over: Future[None] = Future()
        self._heard = threading.Semaphore(0)
        threading.Thread(target=self._run, args=(play,), daemon=True).start()

    @property
    def base_url(self) -> str:
        """Where the model is, or the server."""
        return f"http://127.0.0.1:{self._server.getsockname()[1]}/v1"

    def start(self, address: Address = ("", 0)) -> Future[None]:
        """Let it play with the gateway at this address; return what is done when it is over."""
        self._address.set_result(address)
        return self._over

    def note_heard(self) -> None:
        """Say that the reader has an event that `speak` told."""
        self._heard.release()

    # Before a gateway and behind it.

    def stream(
        self, address: Address, reads: int, to_a_read: int, door: str = "responses", **more: Any
    ) -> None:
        """Ask for a stream of so many reads, with so many words each; read all of it.

        `more` are further fields of the request.
        """
        words = _frame(_chunk({"content": " word"}) * to_a_read)
        fields, delta, end = DOORS[door]
        with _ask(address, stream=True, **(fields | more)) as reader:
            model = self._take_request()
            model.sendall(_STREAM + _frame(_chunk({"role": "assistant", "content": "A"})))
            _read_deltas(reader, 1, delta)
            for _ in range(reads):
                model.sendall(words)
                _read_deltas(reader, to_a_read, delta)
            model.sendall(_frame(_chunk({}, "stop") + _DONE) + _frame(b""))
            assert end in b"".join(iter(lambda: reader.recv(1 << 20), b""))

    def turn(self, address: Address, previous: str | None = None, tools: Sequence[Any] = ()) -> str:
        """Ask for an answer that is not streamed, and return its id."""
        choice = {"index": 0, "message": {"content": "A word"}, "finish_reason": "stop"}
        with _ask(
            address, stream=False, previous_response_id=previous, tools=list(tools)
        ) as reader:
            self._take_request().sendall(_answer({"choices": [choice], "usage": _USAGE}))
            answer = json.loads(_read_message(reader)[1])
        assert answer["status"] == "completed"
        return str(answer["id"])

    # Before a client.

    def speak(self, reads: int, to_a_read: int) -> None:
        """Answer a client with a stream of so many reads, with so many words each."""
        said: list[Delta] = [TextGrew(" word")] * (reads * to_a_read)
        events = build([TextGrew("A"), *said, COUNTED, Stopped("stop")])
        first = next(n for n, event in enumerate(events) if "delta" in event.type) + 1
        last = first + len(said)
        edges = [0, *range(first, last + 1, to_a_read), len(events)]
        client = self._take_request()
        client.sendall(_STREAM)
        for begin, end in pairwise(edges):
            client.sendall(_frame(encode_all_sse(events[begin:end])))
            for _ in events[begin:end]:
                assert self._heard.acquire(timeout=_PATIENCE), "an event was not heard"
        client.sendall(_frame(_DONE) + _frame(b""))

    def _run(self, play: Callable[[Partner, Address], None]) -> None:
        try:
            play(self, self._address.result(_PATIENCE))
        except (OSError, LookupError, ValueError, AssertionError) as fault:
            self._over.set_exception(fault)
        else:
            self._over.set_result(None)
        finally:
            self._server.close()
            if self._connection is not None:
                self._connection.close()

    def _take_request(self) -> socket.socket:
        """Take the next request, on the connection that is kept; return where to answer."""
        if self._connection is None:
            self._connection, _ = self._server.accept()
            self._connection.settimeout(_PATIENCE)
        if _read_message(self._connection)[0].startswith(b"GET "):
            # A gateway asks once which models there are.
            self._connection.sendall(_answer({"data": [{"id": "m"}]}))
            _read_message(self._connection)
        return self._connection


def _frame(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def _chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    body = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _answer(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return _HEAD % (b"application/json", b"Content-Length: %d\r\n" % len(data)) + data


def _ask(address: Address, path: str = "/v1/responses", **fields: Any) -> socket.socket:
    asked = {} if "messages" in fields else {"input": "Say a word"}
    # Without spaces, as most clients write it.
    body = json.dumps({"model": "m"} | asked | fields, separators=(",", ":")).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address[0]}\r\nConnection: close\r\n"
    head += "Content-Type: application/json\r\n"
    sock = socket.create_connection(address, _PATIENCE)
    sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return sock


def _read_deltas(sock: socket.socket, count: int, delta: bytes) -> None:
    """Read until so many deltas have come, all of the last one too."""
    data = b""
    while data.count(delta) < count or not data.endswith(b"\n\n\r\n"):
        data += _more(sock)
    assert data.count(delta) == count


def _read_message(sock: socket.socket) -> tuple[bytes, bytes]:
    """Read a request or an answer; return its head and its body."""
    data = _more(sock)
    while b"\r\n\r\n" not in data:
        data += _more(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    while len(body) < int(fields.get(b"content-length", b"0")):
        body += _more(sock)
    return head, body


def _more(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 20)
    assert data, "the connection was closed too early"
    return data
