"""Several workers behind one socket: kept alive, stopped together, given up on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import aiohttp
import msgspec
import pytest

from antiphon.cli.remote import Remote, Server
from antiphon.gateway.workers import MAX_DEATHS, restart_pause
from tests.cli.processes import ECHO, WATCHDOG_SECONDS, Served, environment, serve
from tests.postgres import fresh_database
from tests.scraping import scraped, value_of

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

# Each worker says its number and process id, then does as `act` says.
_PROGRAM = """
import os, signal, sys, threading
from antiphon.gateway.notify import ServiceManager
from antiphon.gateway.workers import run_workers

def work(index, line):
    # A pipe: an Event that is set in a handler may wait for a lock that its own thread holds.
    stopped, stop = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop, b"x"))
    os.write(1, f"{{index}} {{os.getpid()}}\\n".encode())
    {act}

class Settings:
    def read(self):
        return "digest"

    def adopt(self):
        return "reloaded"

sys.exit(
    run_workers(
        2,
        work,
        ServiceManager(os.environ),
        drain_seconds=lambda: {drain},
        settings=Settings(),
    )
)
"""
_WAIT = "os.read(stopped, 1)"


def test_the_pause_before_another_try_grows_until_it_is_given_up() -> None:
    pauses = [restart_pause(deaths) for deaths in range(1, MAX_DEATHS + 1)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, None]


async def test_workers_share_what_is_stored(tmp_path: Path) -> None:
    with serve("--workers", "2", home=tmp_path) as served:
        async with Remote(Server(served.base_url)) as remote:
            body = msgspec.json.encode({"input": "hi"})
            made = msgspec.json.decode((await remote.fetch("POST", "/responses", body)).body)
        for _ in range(8):  # new connections, which either worker may take
            async with Remote(Server(served.base_url)) as remote:
                reply = await remote.fetch("GET", f"/responses/{made['id']}")
                assert reply.head.status == 200
        assert served.stop() == 0


async def test_all_workers_put_the_mark_of_the_gateway_on_their_ids(tmp_path: Path) -> None:
    with serve("--workers", "2", home=tmp_path, extra={"ANTIPHON_ID_MARK": "eu-1"}) as served:
        made = []
        for _ in range(8):  # new connections, which either worker may take
            async with Remote(Server(served.base_url)) as remote:
                reply = await remote.fetch("POST", "/responses", b'{"input": "hi"}')
                made.append(msgspec.json.decode(reply.body)["id"])
        assert served.stop() == 0
    assert len(set(made)) == 8
    assert {name[:9] for name in made} == {"resp_eu-1"}


class _Program:
    """A parent with two workers, whose births can be waited for."""

    def __init__(self, home: Path, act: str, drain: float = 30.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(act=act, drain=drain)],
            env=environment(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def birth(self) -> tuple[int, int]:
        """Wait for the next worker; return its number and process id."""
        assert self.process.stdout is not None
        index, pid = self.process.stdout.readline().split()
        return int(index), int(pid)

    def end(self) -> tuple[int, str]:
        """Wait for the end of everybody; return the exit code and what was logged."""
        _, errors = self.process.communicate(timeout=WATCHDOG_SECONDS)
        return self.process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_parent_stops_every_worker(tmp_path: Path, number: signal.Signals) -> None:
    program = _Program(tmp_path, _WAIT)
    assert {program.birth()[0], program.birth()[0]} == {0, 1}
    program.process.send_signal(number)
    assert program.end()[0] == 0


def test_the_keyboard_reaches_only_the_parent(tmp_path: Path) -> None:
    program = _Program(tmp_path, _WAIT)
    births = [program.birth(), program.birth()]
    # Ctrl-C goes to a whole process group, and a worker that gets it twice does not drain.
    assert [os.getpgid(pid) for _, pid in births] == [pid for _, pid in births]
    program.process.terminate()
    assert program.end()[0] == 0


def test_a_worker_that_dies_is_replaced_under_its_number(tmp_path: Path) -> None:
    program = _Program(tmp_path, _WAIT)
    first = dict([program.birth(), program.birth()])
    os.kill(first[1], signal.SIGKILL)
    index, pid = program.birth()
    assert index == 1
    assert pid not in first.values()
    program.process.terminate()
    code, errors = program.end()
    assert code == 0
    assert "worker 1 died by SIGKILL; another one in 0.1 s" in errors


def test_workers_that_cannot_be_kept_alive_end_it_with_an_error(tmp_path: Path) -> None:
    program = _Program(tmp_path, f"sys.exit(3) if index == 1 else {_WAIT}")
    births = [program.birth()[0] for _ in range(1 + MAX_DEATHS)]
    code, errors = program.end()
    assert births.count(1) == MAX_DEATHS
    assert code == 1
    assert f"{MAX_DEATHS} times in a row; giving up" in errors


def test_a_worker_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    act = "[threading.Event().wait() for _ in iter(int, 1)]"
    program = _Program(tmp_path, act, drain=-10.0)  # no patience at all
    program.birth()
    program.birth()
    program.process.terminate()
    code, errors = program.end()
    assert code == 1
    assert "does not stop; it is killed" in errors


def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    program = _Program(tmp_path, f"{_WAIT}; os.write(1, b'bye\\n')")
    program.birth()
    program.birth()
    program.process.kill()
    assert program.process.stdout is not None
    # The pipe ends when the last process that holds it has ended.
    said = program.process.stdout.read().splitlines()
    program.end()
    assert said == ["bye", "bye"]


async def test_two_workers_serve_the_sum_of_their_metrics_on_a_port_of_their_own(
    tmp_path: Path,
) -> None:
    config = f"metrics_port = 0\n{ECHO}"
    with serve("--workers", "2", home=tmp_path, config=config) as served:
        url = _metrics_url(served)
        async with aiohttp.ClientSession() as session:
            for _ in range(20):  # a connection each: the kernel shares them out
                async with aiohttp.ClientSession() as other:
                    body = {"input": "hi"}
                    async with other.post(f"{served.base_url}/responses", json=body) as answer:
                        assert answer.status == 200
            async with asyncio.timeout(60):
                # A worker shares its counts once a second, and nothing reports that it did.
                while await _completed(session, url) < 20:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            for _ in range(6):
                assert await _completed(session, url) == 20
            async with session.get(url.replace("/metrics", "/v1/models")) as other_path:
                assert other_path.status == 404


async def _completed(session: aiohttp.ClientSession, url: str) -> float:
    return value_of(await _scrape(session, url), "antiphon_responses_total", status="completed")


async def _scrape(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url, headers={"Connection": "close"}) as answer:
        return await answer.text()


def _metrics_url(served: Served) -> str:
    assert served.process.stdout is not None
    lines = iter(served.process.stdout.readline, "")
    return next(line.split()[1] for line in lines if line.split()[:1] == ["metrics"])


async def ask_often(served: Served, times: int) -> None:
    """Ask the model that many times."""
    for _ in range(times):  # a connection each: the kernel shares them out
        async with aiohttp.ClientSession() as session:
            body = {"input": "one two three", "stream": True}
            async with session.post(f"{served.base_url}/responses", json=body) as answer:
                assert answer.status == 200
                await answer.read()


async def _counts_after(session: aiohttp.ClientSession, url: str, responses: int) -> str:
    """Return a scrape that has as many responses; a worker shares its counts once a second."""
    async with asyncio.timeout(60):
        while await _completed(session, url) < responses:  # noqa: ASYNC110 - nothing reports that
            await asyncio.sleep(0.2)
    return await _scrape(session, url)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_nodes_of_one_store_count_apart_and_each_is_the_sum_of_its_workers(
    tmp_path: Path, kind: str
) -> None:
    config = f"metrics_port = 0\n{ECHO}"
    homes = [tmp_path / "a", tmp_path / "b"]
    for home in homes:
        home.mkdir()
    async with fresh_database() if kind == "postgres" else nullcontext("") as url:
        store = ("--store", url or f"sqlite:{tmp_path / 'shared.db'}")
        with (
            serve("--workers", "2", *store, home=homes[0], config=config) as first,
            serve("--workers", "2", *store, home=homes[1], config=config) as second,
        ):
            async with aiohttp.ClientSession() as session:
                for served, times in ((first, 12), (second, 5)):
                    await ask_often(served, times)
                for served, times in ((first, 12), (second, 5)):
                    place = _metrics_url(served)
                    text = await _counts_after(session, place, times)
                    _check_counts(text, times)
                    for _ in range(6):  # whichever worker answers
                        assert _steady(await _scrape(session, place)) == _steady(text)


def _check_counts(text: str, times: int) -> None:
    """Check what this many answers of the echo model come to: three words each."""
    labels = {"kind": "output", "model": "scripted", "basis": "reported"}
    assert value_of(text, "antiphon_tokens_total", **labels) == 3 * times
    assert value_of(text, "antiphon_tokens_total", kind="output") == 3 * times
    outcome = {"backend": "echo", "outcome": "completed"}
    assert value_of(text, "antiphon_upstream_requests_total", **outcome) == times
    for histogram in ("antiphon_turn_first_seconds", "antiphon_output_tokens_per_second"):
        assert value_of(text, f"{histogram}_count") == times, histogram
    assert value_of(text, "antiphon_ledger_open_charges") == 0
    assert value_of(text, "antiphon_store_commit_seconds_count") > 0
    assert value_of(text, "antiphon_store_group_size_sum") >= times
    assert value_of(text, "antiphon_build_info") == 1  # not added up


def _steady(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what stays as it is while nobody asks.

    The store is kept up, and the workers of the sandbox are probed, at times of their own.
    """
    found = scraped(text)
    moving = ("antiphon_store", "antiphon_sandbox")
    return {key: value for key, value in found.items() if not key[0].startswith(moving)}
