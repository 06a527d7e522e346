"""Tokens that expire: printed by a command, shared, renewed, and never shown."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest

from antiphon.protocol.errors import BackendError
from antiphon.transport.http import HttpClient
from antiphon.transport.secret import Secret
from antiphon.transport.token import TokenSource
from tests.transport.raw import Connection, Request, raw_server, reply

# Prints token-1, token-2 and so on: a line of the file for each run.
_COUNTING = """
import pathlib, sys
runs = pathlib.Path(sys.argv[1])
with runs.open("a") as file:
    file.write("run\\n")
print("token-" + str(len(runs.read_text().splitlines())))
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def counting(path: Path) -> list[str]:
    return [sys.executable, "-c", _COUNTING, str(path)]


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


async def test_a_token_is_used_until_it_is_old(tmp_path: Path) -> None:
    clock = Clock()
    source = TokenSource(counting(tmp_path / "runs"), 60.0, clock=clock)
    assert (await source()).reveal() == "token-1"
    clock.now = 59.0
    assert (await source()).reveal() == "token-1"
    clock.now = 60.0
    assert (await source()).reveal() == "token-2"


async def test_requests_at_the_same_time_share_one_run(tmp_path: Path) -> None:
    source = TokenSource(counting(tmp_path / "runs"), 60.0)
    tokens = await asyncio.gather(*(source() for _ in range(20)))
    assert {token.reveal() for token in tokens} == {"token-1"}


async def test_a_request_that_is_cancelled_does_not_end_the_run_for_others(tmp_path: Path) -> None:
    source = TokenSource(counting(tmp_path / "runs"), 60.0)
    first, second = asyncio.create_task(source()), asyncio.create_task(source())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).reveal() == "token-1"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/does/not/exist"], "it cannot be started"),
        (program("raise SystemExit(3)"), "it ended with status 3"),
        (program("print('geheim\\ngeheim')"), "it did not print one line"),
        (program("pass"), "it did not print one line"),
        (program("import sys; sys.stdout.buffer.write(b'\\xff')"), "it did not print one line"),
        (program("print('geheim' * 100000)"), "it printed more than 65536 bytes"),
    ],
)
async def test_a_command_that_fails_is_the_operators_to_fix(command: list[str], why: str) -> None:
    source = TokenSource(command, 60.0)
    with pytest.raises(BackendError) as caught:
        await source()
    assert why in caught.value.message
    assert caught.value.code == "upstream_auth"
    assert "geheim" not in caught.value.message


async def test_a_command_that_does_not_end_is_killed() -> None:
    source = TokenSource(program("import time; time.sleep(600)"), 60.0, limit=0.5)
    with pytest.raises(BackendError, match=r"it took longer than 0\.5 seconds"):
        await source()


async def test_a_command_whose_child_prints_without_end_is_killed() -> None:
    source = TokenSource(["sh", "-c", "yes; true"], 60.0)
    async with asyncio.timeout(60):
        with pytest.raises(BackendError, match="more than"):
            await source()


async def test_what_a_command_has_started_is_killed_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}; sleep 600"
    source = TokenSource(["sh", "-c", script], 60.0, limit=3.0)
    async with asyncio.timeout(60):
        with pytest.raises(BackendError, match="longer than"):
            await source()
        await asyncio.to_thread(_wait_for_end, int(pid.read_text()))


def _wait_for_end(pid: int) -> None:
    while _is_running(pid):
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    """Return whether the process is there and not a zombie, which nobody may have collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_failed_run_is_repeated_for_the_next_request(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    text = f"import pathlib; print(pathlib.Path({str(path)!r}).read_text())"
    source = TokenSource(program(text), 60.0)
    with pytest.raises(BackendError):
        await source()
    path.write_text("token")
    assert (await source()).reveal() == "token"


async def test_a_refused_token_is_replaced_and_the_request_sent_again(tmp_path: Path) -> None:
    clock = Clock()
    source = TokenSource(counting(tmp_path / "runs"), 3600.0, clock=clock)

    async def answer(request: Request, connection: Connection) -> None:
        is_good = request.headers["authorization"] == "Bearer token-2"
        await connection.write(reply(b"{}", status="200 OK" if is_good else "401 No"))

    async with raw_server(answer) as server:
        client = HttpClient(key=source)
        await source()
        clock.now = 100.0
        got = await client.fetch("POST", server.url, body=b"{}")
        assert got.head.status == 200
        await client.close()
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer token-1",
        "Bearer token-2",
    ]


async def test_a_token_that_was_just_printed_is_not_asked_for_again(tmp_path: Path) -> None:
    source = TokenSource(counting(tmp_path / "runs"), 3600.0)

    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}", status="401 No"))

    async with raw_server(answer) as server:
        client = HttpClient(key=source)
        assert (await client.fetch("GET", server.url)).head.status == 401
        await client.close()
    assert len(server.requests) == 1


async def test_a_refused_token_that_is_no_longer_used_means_another_try(tmp_path: Path) -> None:
    source = TokenSource(counting(tmp_path / "runs"), 3600.0)
    await source()
    assert source.refuse(Secret("an-older-one")) is True


async def test_a_key_goes_into_the_header_that_is_named() -> None:
    async def answer(_: Request, connection: Connection) -> None:
        await connection.write(reply(b"{}"))

    async with raw_server(answer) as server:
        client = HttpClient(key=Secret("sk-1"), key_header="x-api-key")
        await client.fetch("GET", server.url)
        await client.close()
    assert server.requests[0].headers["x-api-key"] == "sk-1"
    assert "authorization" not in server.requests[0].headers
