"""A server that answers what a test tells it to, right or wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

from antiphon.protocol.codec import encode_event, encode_response
from antiphon.protocol.deltas import TextGrew
from tests.building import COUNTED, STOP, build

__all__ = [
    "Answer",
    "Canned",
    "Json",
    "canned_server",
    "hello_events",
    "hello_response",
    "sse",
    "unnamed",
]

Json = dict[str, Any]


class Canned(NamedTuple):
    """One answer. Its body is never whole if it is `cut` (closed early) or if it stalls."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {"Content-Type": "application/json"}
    cut: bool = False
    stall: bool = False


Answer = Callable[[str, str, Json], Canned]


def hello_events() -> list[Json]:
    """Return a stream without fault that says hello, as JSON objects."""
    events = build([TextGrew("Hel"), TextGrew("lo"), COUNTED, STOP])
    return [msgspec.json.decode(encode_event(event)) for event in events]


def hello_response() -> bytes:
    """Return the response with which that stream ends."""
    last = build([TextGrew("Hel"), TextGrew("lo"), COUNTED, STOP])[-1]
    return encode_response(last.response)  # type: ignore[union-attr]  # a terminal event


def sse(events: list[Json], *, end: bytes = b"data: [DONE]\n\n", cut: bool = False) -> Canned:
    """Return the events as a stream."""
    frames = (
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))
        for event in events
    )
    return Canned(200, b"".join(frames) + end, {"Content-Type": "text/event-stream"}, cut)


def unnamed(events: list[Json]) -> Canned:
    """Return the events as a stream without event names."""
    frames = (b"data: %b\n\n" % msgspec.json.encode(event) for event in events)
    body = b"".join(frames) + b"data: [DONE]\n\n"
    return Canned(200, body, {"Content-Type": "text/event-stream"})


@contextmanager
def canned_server(answer: Answer, seen: list[Mapping[str, str]] | None = None) -> Iterator[str]:
    """Serve on loopback; yield the base URL. `answer` gets method, path below /v1 and body.

    The headers of each request are added to `seen`, with names in lower case.
    """

    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                body = msgspec.json.decode(data) if data else {}
            except msgspec.DecodeError:
                body = {"not_json": True}
            if seen is not None:
                seen.append({name.lower(): value for name, value in self.headers.items()})
            said = answer(self.command, self.path.removeprefix("/v1"), body)
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.body) + (said.cut or said.stall)))
            try:
                self.end_headers()
                self.wfile.write(said.body)
            except ConnectionError:  # who asked has left, as interrupted programs do
                self.close_connection = True
                return
            if said.stall:
                over.wait()
            self.close_connection = said.cut or said.stall

        do_POST = do_DELETE = do_GET  # noqa: N815 - the names that the library looks for

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
