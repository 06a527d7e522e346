"""Many readers at once: when did each event arrive, and was every answer whole?

While it runs it only receives: each piece is kept with the time it came. What was in them is
looked at afterwards, so that a thousand streams of 20 tokens a second leave it half idle. An
answer is whole if it holds as many deltas as it should and says that it ended; the delay of an
event is the time from the stamp in its text (see stamped.py) to its arrival here. A reader
asks again and again for `seconds`, or once if that is 0. Readers begin spread over `ramp` seconds.
Over WebSockets all are connected before the first asks. `TURN` in a body becomes another number in
each request, so that no two are the same.

Runs as a process of its own; reads a job as JSON from stdin and prints a result.

    echo '{"port": 4680, …}' | python bench/readers.py
"""

from __future__ import annotations

import gc
import itertools
import json
import re
import select
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from load import without_chunks

__all__ = ["TURN", "Job", "read_all"]

TURN: Final = "turn-00000000"

_RECEIVE: Final = 32_768
_LAST_CHUNK: Final = b"0\r\n\r\n"
_MAX_BYTES: Final = 2 << 30
_CHAT_TEXT: Final = rb'\{(?:"role": ?"assistant", ?)?"content": ?'
_MESSAGES_TEXT: Final = rb'\{"type": ?"text_delta", ?"text": ?'
# In Responses the delta is the text itself.
_BEFORE: Final = rb'"delta": ?(?:%b|%b)?' % (_CHAT_TEXT, _MESSAGES_TEXT)
_DELTA: Final = re.compile(_BEFORE + rb'" [w@](\d+)')
_STAMP: Final = re.compile(_BEFORE + rb'" @(\d{16})')
_END: Final = re.compile(rb'"type": ?"(?:response\.completed|message_stop)"|data: \[DONE\]')
_UPGRADE: Final = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
_TEXT_FRAME: Final = 0x81
_LAST_EVENTS: Final = (
    b'{"type":"response.completed"',
    b'{"type":"response.failed"',
    b'{"type":"response.incomplete"',
    b'{"type":"error"',
)


class Job(NamedTuple):
    """What is asked, by how many, for how long; what a whole answer holds."""

    port: int
    path: str
    body: dict[str, object]
    readers: int
    units: int
    """Deltas of a streamed answer, or 0 for one that is not streamed."""
    seconds: float = 0.0
    ramp: float = 0.0
    limit: float = 60.0
    """After so many seconds what is not there is lost."""
    pace: float = 0.0
    """Seconds from one token to the next as the upstream sends them, or 0."""
    marker: str = ""
    """What an answer that is not streamed must hold."""
    headers: Mapping[str, str] = MappingProxyType({})
    record: str = ""
    """A file for the body of one whole answer."""
    is_socket: bool = False
    """Whether to ask over WebSockets, one for each reader."""


class _Answer:
    """The pieces of one answer, and when they came."""

    def __init__(self) -> None:
        self.asked_at = time.monotonic_ns()
        self.times: list[int] = []
        self.pieces: list[bytes] = []
        self.missing: int | None = None

    def add(self, data: bytes) -> bool:
        """Take a piece; return True if it is the last."""
        self.times.append(time.monotonic_ns())
        self.pieces.append(data)
        if len(self.pieces) == 1:
            head, _, body = data.partition(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: *(\d+)", head)
            self.missing = int(found[1]) - len(body) if found else None
        elif self.missing is not None:
            self.missing -= len(data)
        if self.missing is not None:
            return self.missing <= 0
        if len(data) < len(_LAST_CHUNK) and len(self.pieces) > 1:
            data = self.pieces[-2] + data
        return data.endswith(_LAST_CHUNK)

    def body(self) -> bytes:
        head, _, body = b"".join(self.pieces).partition(b"\r\n\r\n")
        return without_chunks(body) if b"chunked" in head.lower() else body

    def is_fine(self) -> bool:
        return bool(self.pieces) and self.pieces[0].startswith(b"HTTP/1.1 200")

    def has_event(self, piece: bytes) -> bool:
        return b"data: " in piece or b"data:{" in piece


class _SocketAnswer(_Answer):
    """The same over a WebSocket, where each event is a frame."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        self._events: list[bytes] = []

    def add(self, data: bytes) -> bool:
        self.times.append(time.monotonic_ns())
        self.pieces.append(data)
        frames, self._rest = _take_frames(self._rest + data)
        self._events += frames
        return any(frame.startswith(_LAST_EVENTS) for frame in frames)

    def body(self) -> bytes:
        """Return the events as SSE has them."""
        return b"".join(b"data: %b\n\n" % event for event in self._events)

    def is_fine(self) -> bool:
        return bool(self._events) and not self._events[-1].startswith(_LAST_EVENTS[-1])

    def has_event(self, piece: bytes) -> bool:
        return b'{"type":"' in piece


def _take_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the texts of the whole frames of a server, and what is left."""
    texts, place = [], 0
    while len(data) >= place + 2:
        size, start = data[place + 1], place + 2
        if size >= 126:
            start += 2 if size == 126 else 8
            size = int.from_bytes(data[place + 2 : start])
        if len(data) < start + size:
            break
        if data[place] == _TEXT_FRAME:
            texts.append(data[start : start + size])
        place = start + size
    return texts, data[place:]


def _frame(body: bytes) -> bytes:
    """Return a text frame of a client; a mask of zeros changes nothing."""
    size = len(body)
    if size < 126:
        head = bytes([_TEXT_FRAME, 0x80 | size])
    elif size < 1 << 16:
        head = bytes([_TEXT_FRAME, 0x80 | 126]) + size.to_bytes(2)
    else:
        head = bytes([_TEXT_FRAME, 0x80 | 127]) + size.to_bytes(8)
    return head + bytes(4) + body


class _Run:
    def __init__(self, job: Job) -> None:
        self._job = job
        self._numbers = itertools.count()
        body = json.dumps(job.body, separators=(",", ":")).encode()
        host = f"Host: 127.0.0.1:{job.port}"
        named = [f"{name}: {value}" for name, value in job.headers.items()]
        content = ("Content-Type: application/json", f"Content-Length: {len(body)}")
        post = "\r\n".join([f"POST {job.path} HTTP/1.1", host, *content, *named, "", ""])
        get = "\r\n".join([f"GET {job.path} HTTP/1.1", host, *_UPGRADE, *named, "", ""])
        self._upgrade = get.encode()
        self._request = _frame(body) if job.is_socket else post.encode() + body
        self._differs = TURN.encode() in body
        self._sockets: list[socket.socket] = []
        self._poller = select.epoll()
        self._open: dict[int, tuple[socket.socket, _Answer]] = {}
        self._received = 0
        self.done: list[_Answer] = []
        self.lost: list[_Answer] = []

    def run(self) -> float:
        """Read until all is read; return the seconds it took."""
        job = self._job
        if job.is_socket:
            self._sockets = [self._open_socket() for _ in range(job.readers)]
        began = time.monotonic()
        starts = [began + job.ramp * number / job.readers for number in range(job.readers)]
        starts.reverse()
        while starts or self._open:
            now = time.monotonic()
            if now > began + job.limit or self._received > _MAX_BYTES:
                break
            while starts and starts[-1] <= now:
                starts.pop()
                self._connect()
            wait = starts[-1] - time.monotonic() if starts else began + job.limit - now
            for file, _ in self._poller.poll(max(0.0, wait)):
                self._receive(file, is_last_round=time.monotonic() >= began + job.seconds)
        seconds = time.monotonic() - began
        for sock, answer in self._open.values():
            self.lost.append(answer)
            sock.close()
        return seconds

    def _connect(self) -> None:
        make = self._open_socket if self._job.is_socket else self._open_connection
        sock = self._sockets.pop() if self._sockets else make()
        self._poller.register(sock.fileno(), select.EPOLLIN)
        self._ask(sock)

    def _open_connection(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._job.port), timeout=10)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _open_socket(self) -> socket.socket:
        """Return a connection that is a WebSocket. The server says nothing before it is asked."""
        sock = self._open_connection()
        sock.sendall(self._upgrade)
        head = b""
        while b"\r\n\r\n" not in head:
            data = sock.recv(_RECEIVE)
            head += data
            if not data or not head.startswith(b"HTTP/1.1 101"[: len(head)]):
                raise SystemExit(f"no WebSocket: {head[:300]!r}")
        return sock

    def _ask(self, sock: socket.socket) -> None:
        answer = _SocketAnswer() if self._job.is_socket else _Answer()
        self._open[sock.fileno()] = (sock, answer)
        request = self._request
        if self._differs:
            turn = f"turn-{next(self._numbers):08}"
            request = request.replace(TURN.encode(), turn.encode())
        sock.sendall(request)

    def _receive(self, file: int, *, is_last_round: bool) -> None:
        sock, answer = self._open[file]
        try:
            data = sock.recv(_RECEIVE)
        except ConnectionError:
            data = b""
        self._received += len(data)
        if data and not answer.add(data):
            return
        self.done.append(answer)
        del self._open[file]
        if is_last_round or not answer.is_fine():
            sock.close()
        elif data:
            self._ask(sock)
        else:
            sock.close()
            self._connect()


def read_all(job: Job) -> dict[str, Any]:
    """Do the job and return what was seen."""
    gc.disable()  # the pieces are kept anyway; looking through them takes time from the readers
    run = _Run(job)
    cpu = time.process_time()
    seconds = run.run()
    cpu = time.process_time() - cpu
    result: dict[str, Any] = {"seconds": seconds, "cpu": cpu, "readers": job.readers}
    result |= _judge(run, job)
    result["rate"] = _rate(job, seconds, result["units"])
    result["cpu_in_all"] = time.process_time()
    if job.record:
        whole = next((answer for answer in run.done if answer.is_fine()), None)
        Path(job.record).write_bytes(whole.body() if whole else b"")
    return result


def _judge(run: _Run, job: Job) -> dict[str, Any]:
    units = whole = 0
    refusal = ""
    firsts: list[float] = []
    delays: list[float] = []
    wholes: list[float] = []
    for answer in run.done + run.lost:
        body = answer.body()
        if not answer.is_fine():
            refusal = refusal or b"".join(answer.pieces)[:300].decode("latin-1")
            continue
        count, is_whole = _count(body, job)
        units += count
        whole += is_whole
        firsts += _first(answer)
        if is_whole:
            wholes.append((answer.times[-1] - answer.asked_at) / 1e6)
        if job.pace:
            delays += _delays(answer)
    return {
        "answers": len(run.done),
        "units": units,
        "whole": whole,
        "lost": len(run.lost) + len(run.done) - whole,
        "refusal": refusal,
        "first": _quantiles(firsts),
        "delay": _quantiles(delays),
        "answer": _quantiles(wholes),
        "at_once": _most_at_once(run.done + run.lost),
    }


def _count(body: bytes, job: Job) -> tuple[int, bool]:
    if not job.units:
        is_whole = job.marker.encode() in body
        return int(is_whole), is_whole
    count = len(_DELTA.findall(body))
    return count, count == job.units and _END.search(body) is not None


def _first(answer: _Answer) -> list[float]:
    """Return the milliseconds until the first event."""
    for moment, piece in zip(answer.times, answer.pieces, strict=True):
        if answer.has_event(piece):
            return [(moment - answer.asked_at) / 1e6]
    return []


def _delays(answer: _Answer) -> list[float]:
    """Return the milliseconds that each event took."""
    return [
        moment / 1e6 - int(stamp) / 1e3
        for moment, piece in zip(answer.times, answer.pieces, strict=True)
        for stamp in _STAMP.findall(piece)
    ]


def _rate(job: Job, seconds: float, units: int) -> float:
    """Return the deltas a second that came, as a share of those that were asked for."""
    if not job.pace:
        return 1.0
    asked = job.readers * job.units
    ideal = job.ramp * (job.readers - 1) / job.readers + job.units * job.pace
    return min(1.0, units / asked * ideal / seconds)


def _most_at_once(answers: list[_Answer]) -> int:
    """Return how many answers were arriving at the same time at most."""
    seen = [answer.times for answer in answers if answer.times]
    moves = sorted([(times[0], 1) for times in seen] + [(times[-1], -1) for times in seen])
    return max(itertools.accumulate(step for _, step in moves), default=0)


def _quantiles(values: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest, all 0 if there are none."""
    if not values:
        return {"p50": 0.0, "p99": 0.0, "max": 0.0}
    values.sort()
    last = len(values) - 1
    return {"p50": values[last // 2], "p99": values[last * 99 // 100], "max": values[-1]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(read_all(Job(**json.load(sys.stdin)))) + "\n")
