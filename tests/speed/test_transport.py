"""What the client connection alone may cost, in steps of Python: see `test_cost` for the method.

There is no socket: the test feeds the connection what a read would bring. So the counts are exact.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

import pytest

from antiphon.transport.connection import Connection
from antiphon.transport.http import Limits
from antiphon.transport.stream import ByteStream
from antiphon.transport.target import target_finder
from tests.speed.counting import Steps

_SLACK: Final = 1.0 if sys.version_info[:2] == (3, 11) else 1.3
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT: Final = b'data: {"choices":[{"delta":{"content":" word"}}]}\n\n'
_CHUNK: Final = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_REPLY: Final = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nDate: now\r\nContent-Length: 2\r\n\r\n{}"
_TIMES: Final = 20


class _Transport(asyncio.Transport):
    """Accepts everything."""

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def abort(self) -> None: ...


def _connect() -> Connection:
    connection = Connection(asyncio.get_running_loop(), _ignore, _ignore)
    connection.connection_made(_Transport())
    return connection


def _ignore(_: Connection) -> None: ...


@pytest.mark.parametrize(("chunks", "limit"), [(1, 136), (16, 136)])
async def test_a_read_that_brings_chunks(chunks: int, limit: int) -> None:
    """However many chunks a read brings, it costs the same."""
    connection, steps, got = _connect(), Steps(), bytearray()

    def take(data: bytes) -> bool:
        got.extend(data)
        return True

    exchange = connection.ask(b"", None)
    connection.data_received(_HEAD)
    await exchange.begin()
    stream = ByteStream(exchange, Limits(), asyncio.get_running_loop().time(), 1e9)
    reading = asyncio.create_task(stream.read_or_hear(take))
    await asyncio.sleep(0)
    data = _CHUNK * chunks
    with steps.counted():
        for _ in range(_TIMES):
            connection.data_received(data)
    assert bytes(got) == _EVENT * (_TIMES * chunks)
    reading.cancel()
    _check(f"a read of {chunks}", steps.total / _TIMES, limit)


async def test_a_request_and_its_answer() -> None:
    connection, steps = _connect(), Steps()
    find = target_finder({"user-agent": "x", "accept-encoding": "identity", "Authorization": "y"})
    for count in (1, _TIMES):
        with steps.counted():
            for _ in range(count):
                target = find("http://127.0.0.1/v1/chat/completions")
                head = target.head("POST", {"Accept": "application/json"}, 2)
                exchange = connection.ask(head, b"{}")
                connection.data_received(_REPLY)
                await exchange.begin()
                assert await exchange.read() == b"{}"
                assert await exchange.read() == b""
        if count == 1:
            steps = Steps()
    _check("a request", steps.total / _TIMES, 1030)


def _check(what: str, cost: float, limit: int) -> None:
    print(f"\n{what}: {cost:,.0f} steps, of {limit:,} at most")
    assert 0 < cost <= limit * _SLACK
