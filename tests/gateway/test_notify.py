"""What a service manager learns from a gateway: it starts, stops and shows signs of life."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.gateway.notify import ServiceManager
from tests.cli.processes import WATCHDOG_SECONDS, serve
from tests.gateway.managers import Manager

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no systemd")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


def test_without_a_manager_nothing_is_sent() -> None:
    alone = ServiceManager({})
    alone.ready()
    assert alone.watchdog_seconds is None


def test_programs_that_are_started_do_not_inherit_the_manager(manager: Manager) -> None:
    environ = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "2000000", "PATH": "/bin"}
    service = ServiceManager(environ)
    assert environ == {"PATH": "/bin"}
    assert service.watchdog_seconds == 2.0
    service.beat()
    assert manager.next() == "WATCHDOG=1"


def test_a_watchdog_of_another_process_is_not_ours(manager: Manager) -> None:
    environ = {
        "NOTIFY_SOCKET": str(manager.path),
        "WATCHDOG_USEC": "2000000",
        "WATCHDOG_PID": str(os.getpid() + 1),
    }
    assert ServiceManager(environ).watchdog_seconds is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract names")
def test_an_abstract_socket_is_reached() -> None:
    name = f"antiphon-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(WATCHDOG_SECONDS)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert sock.recv(100) == b"STOPPING=1"


def test_a_reload_has_the_time_that_systemd_asks_for(manager: Manager) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(manager.path)}).reloading()
    first, _, second = manager.next().partition("\n")
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


def test_a_manager_that_is_gone_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager({"NOTIFY_SOCKET": "/nothing/here"}).ready()
    assert "the service manager was not told READY" in caplog.text


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_reports_its_start_its_life_and_its_stop(
    tmp_path: Path, manager: Manager, workers: str
) -> None:
    extra = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "400000"}
    with serve("--workers", workers, home=tmp_path, extra=extra) as served:
        started = manager.until("READY=1")
        assert set(started) <= {"READY=1", "WATCHDOG=1"}
        assert manager.until("WATCHDOG=1") == ["WATCHDOG=1"]
        assert served.stop() == 0
    stopped = manager.until("STOPPING=1")
    assert set(stopped) <= {"WATCHDOG=1", "STOPPING=1"}


def test_a_worker_that_is_stuck_ends_the_signs_of_life(tmp_path: Path, manager: Manager) -> None:
    extra = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "1000000"}
    with serve("--workers", "2", home=tmp_path, extra=extra) as served:
        manager.until("READY=1")
        children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children")
        if not children.exists():
            pytest.skip("the system does not list children")
        stuck = int(children.read_text().split()[0])
        os.kill(stuck, signal.SIGSTOP)
        try:
            _wait_for_lines(served.errors, 1)
            manager.pending()
            _wait_for_lines(served.errors, 3)
            assert manager.pending() == []
        finally:
            os.kill(stuck, signal.SIGCONT)
        assert served.stop() == 0


def _wait_for_lines(log: Path, count: int) -> None:
    """Wait until the log has named a stuck worker that often; nothing else reports it."""
    deadline = time.monotonic() + WATCHDOG_SECONDS
    while log.read_text().count("shows no sign of life") < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
