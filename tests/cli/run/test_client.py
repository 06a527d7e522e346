"""A client program in our terminal: whose signals are whose, and which exit code is ours."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.cli.errors import CliError
from antiphon.cli.run import client
from antiphon.cli.run.client import Launch, raising_on_signals, run_program
from tests.cli.processes import ECHO, WATCHDOG_SECONDS, environment
from tests.cli.run.running import Started, put_codex, started
from tests.cli.terminals import CTRL_D, ENTER, at_terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")


class _Running:
    """`antiphon run codex -- wait` in a process of its own, its output in a pipe."""

    def __init__(self, home: Path) -> None:
        (home / "antiphon.toml").write_text(ECHO)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "run", "codex", "--", "wait"],
            cwd=home,
            env=environment(home, {"PATH": put_codex(home / "bin"), "TMPDIR": str(home)}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.started: Started = started(self.output.readline())
        assert self.output.readline() == "waits\n"
        self.watch = socket.create_connection(self.started.address, WATCHDOG_SECONDS)
        kill = (self.started.pid, signal.SIGKILL)
        self.watchdog = threading.Timer(WATCHDOG_SECONDS, os.kill, kill)
        self.watchdog.start()

    def close(self) -> None:
        self.watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.output.close()
        self.watch.close()

    def client_is_gone(self) -> bool:
        """Wait for the client's end: it holds the pipe that we read."""
        return self.output.read() == "" and self.watchdog.is_alive()

    def gateway_is_gone(self) -> bool:
        """Wait for the gateway's end; the system closes its connections then."""
        try:
            return self.watch.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.fixture
def running(tmp_path: Path) -> Iterator[_Running]:
    it = _Running(tmp_path)
    yield it
    it.close()


def test_its_end_is_ours(running: _Running) -> None:
    assert running.started.hears_ctrl_c
    out, _ = running.process.communicate("bye", WATCHDOG_SECONDS)
    assert running.process.returncode == 0
    assert out == ""
    assert running.gateway_is_gone()


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_signal_to_us_reaches_the_client_and_then_both_end(
    running: _Running, number: signal.Signals
) -> None:
    running.process.send_signal(number)
    assert running.process.wait(WATCHDOG_SECONDS) == 5  # what the client makes of it
    assert running.gateway_is_gone()


def test_to_kill_us_by_force_leaves_nobody_behind(running: _Running) -> None:
    running.process.kill()
    running.process.wait()
    assert running.client_is_gone()
    assert running.gateway_is_gone()


async def test_ctrl_c_is_the_clients_and_the_gateway_goes_on(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text(ECHO)
    extra = {"PATH": put_codex(tmp_path / "bin"), "TMPDIR": str(tmp_path)}
    async with at_terminal("run", "codex", "--", "wait", home=tmp_path, extra=extra) as terminal:
        await terminal.until("waits")
        assert '"is_terminal": true' in terminal.said
        for _ in range(2):
            terminal.type("\x03")
            await terminal.until("interrupted still here")
        terminal.type(f"bye{ENTER}{CTRL_D}")
        assert await terminal.end() == 0


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("not a program")
    with pytest.raises(CliError, match=r"codex cannot be started: Permission denied"):
        run_program(Launch([str(program)], {}), lambda pid: None)


def test_a_program_that_does_not_obey_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_GRACE_SECONDS", 0.01)
    os.mkfifo(tmp_path / "ready")

    def ask_twice_to_end(pid: int) -> None:
        (tmp_path / "ready").read_text()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)

    deaf = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    deaf += "open(sys.argv[1], 'w').close(); signal.pause()"
    launch = Launch([sys.executable, "-c", deaf, str(tmp_path / "ready")], dict(os.environ))
    assert run_program(launch, ask_twice_to_end) == 137


def test_a_signal_before_the_program_is_there_reaches_it_too() -> None:
    relay = client._Relay()
    relay.note(signal.SIGTERM, None)
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as process:
        relay.attach(process)
        assert process.wait(WATCHDOG_SECONDS) == -signal.SIGTERM
    relay.close()


def test_a_fault_of_ours_ends_the_program() -> None:
    seen: list[int] = []

    def break_down(pid: int) -> None:
        seen.append(pid)
        raise RuntimeError("a bug")

    launch = Launch([sys.executable, "-c", "import signal; signal.pause()"], dict(os.environ))
    with pytest.raises(RuntimeError, match="a bug"):
        run_program(launch, break_down)
    with pytest.raises(ProcessLookupError):
        os.kill(seen[0], 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_before_the_client_runs_a_signal_leaves_by_the_front_door(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as leaving, raising_on_signals():
        os.kill(os.getpid(), number)
        signal.pause()
    assert leaving.value.code == 128 + number
    assert signal.getsignal(number) == before
